"""Host keys: what the known_hosts files say about one host, and the verdict on the key it shows.

Only the lines that name the host are ever looked at, so a `@cert-authority` line, an unknown key
type or plain garbage that concerns other hosts does no harm.

    strict        the key must be stored
    accept-new    a host of which nothing is stored is stored now; a changed key is still refused
    SHA256:...    the key must have this fingerprint; the files only say what is revoked
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HostKeyError

# A known_hosts file that is larger is not read to its end; OpenSSH's own are a few kilobytes.
_FILE_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True)
class StoredKey:
    """One line of a known_hosts file that names the host."""

    marker: str  # "", "revoked" or "cert-authority"
    key_type: str
    blob: bytes
    path: Path
    line: int
    name: str  # the name it was found by

    @property
    def where(self) -> str:
        """file:line, for messages."""
        return f"{self.path}:{self.line}"


def fingerprint(blob: bytes) -> str:
    """The key's fingerprint as `ssh-keygen -l` prints it: SHA256:..."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def stored_keys(name: str, files: Iterable[Path]) -> tuple[StoredKey, ...]:
    """The lines that name `name` (a host, `[host]:port` or an alias) in the files that exist."""
    found = []
    for path in files:
        try:
            with path.open("rb") as stream:
                text = stream.read(_FILE_LIMIT).decode("utf-8", "replace")
        except OSError:
            continue  # as OpenSSH does: a file that cannot be read knows nobody
        for number, line in enumerate(text.splitlines(), 1):
            key = _read_line(name.lower(), line, path, number)
            if key is not None:
                found.append(key)
    return tuple(found)


def _read_line(name: str, line: str, path: Path, number: int) -> StoredKey | None:
    words = line.split()
    marker = ""
    if words and words[0].startswith("@"):
        marker = words.pop(0)[1:]
    if len(words) < 3 or words[0].startswith("#") or not _names_host(words[0], name):
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except binascii.Error:
        return None
    return StoredKey(marker, words[1], blob, path, number, name)


def _names_host(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        return _hashed_matches(patterns, name)
    matched = False
    for pattern in patterns.lower().split(","):
        negated = pattern.startswith("!")
        body = re.escape(pattern.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(body, name):
            if negated:
                return False
            matched = True
    return matched


def _hashed_matches(field: str, name: str) -> bool:
    parts = field.split("|")
    try:
        salt, stored = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except (IndexError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), stored)


def hashed_name(name: str) -> str:
    """`name` as HashKnownHosts stores it: |1|salt|HMAC-SHA1."""
    salt = secrets.token_bytes(20)
    digest = hmac.new(salt, name.encode(), "sha1").digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@dataclass(frozen=True)
class HostKeyRule:
    """Everything needed to judge the key of one host; made before it is dialled."""

    host: str  # what the messages call it
    lookup: str  # its name in known_hosts files
    mode: str  # strict | accept-new | SHA256:...
    user_files: tuple[Path, ...]
    global_files: tuple[Path, ...]
    revoked_file: Path | None = None  # OpenSSH's RevokedHostKeys
    hash_names: bool = False
    connect_command: str = "ssh"  # what a person types to meet the host once

    def stored(self) -> tuple[StoredKey, ...]:
        """Every line about this host; without its port where the files do not know it with one."""
        files = (*self.user_files, *self.global_files)
        found = stored_keys(self.lookup, files)
        bare = re.fullmatch(r"\[(.+)\]:\d+", self.lookup)
        if bare and not any(key.marker == "" for key in found):
            # OpenSSH accepts a key that is stored for the bare name; it never counts as changed.
            found += stored_keys(bare[1], files)
        return found

    def known_types(self) -> tuple[str, ...]:
        """Key types to ask the host for first, or a host with several keys would look changed."""
        pinned = [key for key in self.stored() if fingerprint(key.blob) == self.mode.rstrip("=")]
        keys = pinned or [key for key in self.stored() if key.marker == ""]
        return tuple(dict.fromkeys(key.key_type for key in keys))

    def check(self, key_type: str, blob: bytes) -> None:
        """Raise HostKeyError unless the key that the host showed may be trusted."""
        stored = self.stored()
        self._check_revoked(key_type, blob, stored)
        if self.mode.startswith("SHA256:"):
            self._check_pin(key_type, blob)
            return
        plain = [key for key in stored if key.marker == ""]
        if any(key.blob == blob for key in plain):
            return
        exact = [key for key in plain if key.name == self.lookup]
        if exact:
            self._refuse_changed(key_type, blob, exact)
        if any(key.marker == "cert-authority" for key in stored):
            self._refuse_certified(key_type, blob, stored)
        if self.mode == "accept-new":
            self._accept(key_type, blob)
            return
        raise HostKeyError(
            f"{self.host}: its key is not known: {self.lookup} shows {_short(key_type)} {fingerprint(blob)}",
            hint=f"compare this with the machine's own (there: ssh-keygen -lf /etc/ssh/ssh_host_"
            f"{_short(key_type)}_key.pub); if they agree, type: {self.connect_command} true",
            reason="host_key_unknown",
        )

    def _check_revoked(self, key_type: str, blob: bytes, stored: tuple[StoredKey, ...]) -> None:
        for key in stored:
            if key.marker == "revoked" and key.blob == blob:
                self._refuse_revoked(key_type, blob, key.where)
        if self.revoked_file is not None and _in_revocation_list(self.host, self.revoked_file, key_type, blob):
            self._refuse_revoked(key_type, blob, str(self.revoked_file))

    def _refuse_revoked(self, key_type: str, blob: bytes, where: str) -> None:
        raise HostKeyError(
            f"{self.host}: its {_short(key_type)} key {fingerprint(blob)} is revoked in {where}",
            hint="give the machine a new host key (there: rm the old one, ssh-keygen -A, restart sshd)",
            reason="host_key_revoked",
        )

    def _check_pin(self, key_type: str, blob: bytes) -> None:
        if fingerprint(blob) != self.mode.rstrip("="):
            raise HostKeyError(
                f"{self.host}: shows {_short(key_type)} {fingerprint(blob)}, pinned is {self.mode}",
                hint="if the machine was given a new key, verify it there and write its fingerprint "
                "in hosts.yaml as host_key",
                reason="host_key_changed",
            )

    def _refuse_changed(self, key_type: str, blob: bytes, known: list[StoredKey]) -> None:
        same = [key for key in known if key.key_type == key_type]
        old = (same or known)[0]
        remove = f"ssh-keygen -R {shlex.quote(self.lookup)} -f {shlex.quote(str(old.path))}"
        raise HostKeyError(
            f"{self.host}: its key has changed: {old.where} holds {_short(old.key_type)} {fingerprint(old.blob)}, "
            f"{self.lookup} shows {_short(key_type)} {fingerprint(blob)}",
            hint=f"only if you know why (a new installation), type: {remove}; then: {self.connect_command} true",
            reason="host_key_changed",
        )

    def _refuse_certified(self, key_type: str, blob: bytes, stored: tuple[StoredKey, ...]) -> None:
        where = next(key.where for key in stored if key.marker == "cert-authority")
        raise HostKeyError(
            f"{self.host}: its key is vouched for only by a certificate authority ({where}), which this transport "
            f"cannot check; the openssh transport, which is to come, will",
            hint=f"until then pin the key once verified: host_key: {fingerprint(blob)} ({_short(key_type)})",
            reason="host_key_certificate",
        )

    def _accept(self, key_type: str, blob: bytes) -> None:
        """Store a new key in the first user file; two threads or programs store it once."""
        if not self.user_files:
            raise HostKeyError(
                f"{self.host}: accept-new has no file to store the key in", hint="set UserKnownHostsFile in ssh_config"
            )
        path = self.user_files[0]
        name = hashed_name(self.lookup) if self.hash_names else self.lookup
        line = f"{name} {key_type} {base64.b64encode(blob).decode()}\n".encode()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                known = [key for key in stored_keys(self.lookup, [path]) if key.marker == ""]
                if not known:
                    size = os.fstat(handle).st_size
                    ragged = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                    os.write(handle, b"\n" + line if ragged else line)
            finally:
                os.close(handle)
        except OSError as error:
            raise HostKeyError(
                f"{self.host}: its new key cannot be stored in {path}: {error.strerror}", hint=f"ls -l {path}"
            ) from error
        if known and all(key.blob != blob for key in known):
            # Someone stored another key between our first look and the lock.
            self._refuse_changed(key_type, blob, known)


def _short(key_type: str) -> str:
    """What /etc/ssh calls the key: ed25519, ecdsa, rsa."""
    return next((word for word in ("ed25519", "ecdsa", "rsa") if word in key_type), key_type)


def _in_revocation_list(host: str, path: Path, key_type: str, blob: bytes) -> bool:
    """Ask ssh-keygen, since the file may be a list of keys or OpenSSH's binary form (KRL)."""
    program = shutil.which("ssh-keygen")
    if program is None or not path.is_file():
        raise HostKeyError(
            f"{host}: RevokedHostKeys names {path}, which cannot be asked", hint=f"ls -l {path}; command -v ssh-keygen"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as key:
        key.write(f"{key_type} {base64.b64encode(blob).decode()}\n")
        key.flush()
        try:
            done = subprocess.run(
                [program, "-Q", "-f", str(path), key.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise HostKeyError(f"{host}: ssh-keygen -Q on {path} did not end") from error
    # Any other end than "not revoked" counts as revoked, as in OpenSSH.
    return done.returncode != 0
