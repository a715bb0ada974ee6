"""Our keys for one SSH login: which are offered, in which order, and what is said when none is taken.

Part of transport `ssh`; see sshlink.py.  No password is ever asked for or sent.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import paramiko

from harness.errors import AuthError
from harness.sshconfig import SshSettings


class OurKeys:
    """Which keys one link offers, and the words for a server that takes none.

    An explicit key, or IdentitiesOnly, is offered alone: an agent full of keys runs into the
    server's limit of attempts.  The agent is then asked only to sign with that same key.
    """

    def __init__(self, who: str, settings: SshSettings, explicit: Path | None) -> None:
        self._who = who
        self._settings = settings
        self._explicit = explicit
        self._offered: list[str] = []
        self._problems: list[str] = []
        self._hints: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> list[str]:
        """Log in; called by paramiko once the host's key was accepted.  Raises AuthError."""
        user = self._settings.user
        try:
            # What OpenSSH does too: "none" tells which methods there are and costs no attempt.
            return transport.auth_none(user)
        except paramiko.BadAuthenticationType as error:
            self._require_publickey(error.allowed_types)
        agent = _open_agent(self._settings)
        self._offered, self._problems, self._hints = [], [], []
        try:
            for label, key in self._keys(agent):
                self._offered.append(label)
                if self._accepted(transport, user, key):
                    return []
        finally:
            if agent is not None:
                agent.close()
        raise self._refused()

    def _accepted(self, transport: paramiko.Transport, user: str, key: paramiko.PKey) -> bool:
        try:
            more = transport.auth_publickey(user, key)
        except paramiko.AuthenticationException as error:
            if not transport.is_active():
                raise AuthError(
                    f"{self._who}: {self._settings} closed the connection after {len(self._offered)} keys",
                    hint="name the right one: `key:` in hosts.yaml, or IdentityFile and IdentitiesOnly in ssh_config",
                ) from error
            return False
        if more:
            raise AuthError(
                f"{self._who}: {self._settings} took the key and wants {', '.join(more)} as well",
                hint="let this user in by key alone (AuthenticationMethods publickey)",
            )
        return True

    def _require_publickey(self, allowed: list[str]) -> None:
        if "publickey" not in allowed:
            raise AuthError(
                f"{self._who}: {self._settings} offers only {', '.join(allowed) or 'nothing'}; keys are needed, "
                "passwords are never sent",
                hint="there: PubkeyAuthentication yes in sshd_config, and your public key in authorized_keys",
            )

    def _keys(self, agent: paramiko.Agent | None) -> Iterator[tuple[str, paramiko.PKey]]:
        settings = self._settings
        held = {key.asbytes(): key for key in agent.get_keys()} if agent is not None else {}
        offered: set[bytes] = set()
        for path in (self._explicit,) if self._explicit is not None else settings.identity_files:
            for key in self._from_file(path, held):
                offered.add(key.asbytes())
                yield str(path), key
        if self._explicit is None and not settings.identities_only:
            for blob, agent_key in held.items():
                if blob not in offered:
                    yield "a key of the agent", agent_key

    def _from_file(self, path: Path, held: dict[bytes, paramiko.AgentKey]) -> Iterator[paramiko.PKey]:
        wanted = self._explicit is not None or self._settings.identities_given
        if not path.is_file():
            if wanted:
                self._problems.append(f"key file {path} is not there")
            return
        try:
            key = paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):
            # Without the passphrase only the agent can use it, and we know it by its public half.
            same = held.get(_public_blob(path))
            if same is not None:
                yield same
            else:
                self._problems.append(f"key file {path} needs a passphrase and the agent does not hold it")
                self._hints.append(f"ssh-add {path}")
            return
        except Exception as error:  # the file's content decides what is raised; none of it ends the run
            if wanted:
                self._problems.append(f"key file {path} cannot be used: {str(error) or type(error).__name__}")
            return
        yield key
        if key.public_blob is not None:
            key.public_blob = None  # the certificate was not taken; the bare key may be
            yield key

    def _refused(self) -> AuthError:
        tried = f"refused {', '.join(dict.fromkeys(self._offered))}" if self._offered else "was offered no key"
        end = self._settings
        copy = f"ssh-copy-id -p {end.port} {end.user}@{end.hostname}"
        return AuthError(
            "; ".join([f"{self._who}: {end} {tried}", *self._problems]), hint=self._hints[0] if self._hints else copy
        )


def _open_agent(settings: SshSettings) -> paramiko.Agent | None:
    if settings.identity_agent == "none":
        return None
    try:
        return paramiko.Agent()
    except Exception:  # no agent, or one that does not speak: the files may still do
        return None


def _public_blob(path: Path) -> bytes:
    try:
        return base64.b64decode(Path(f"{path}.pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return b""
