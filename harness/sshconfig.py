"""What OpenSSH itself would do to reach a host, asked of `ssh -G`.

Include, Match, wildcards and ProxyJump have rules that only OpenSSH gets right, so nothing here
reads ssh_config: `resolve` asks for one name, `route` for the whole way with its jump hosts.
Nothing is dialled.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

from harness.errors import Unreachable
from harness.records.base import StrictRecord
from harness.records.inventory import Host

# The names that `ssh -G` lists when nobody set IdentityFile.
_DEFAULT_IDENTITIES = re.compile(r"^~/\.ssh/id_(rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk|xmss)$")
_JUMP = re.compile(r"^(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:\[\]]+)(?::(?P<port>\d+))?/?$")
_SAFE_WORD = re.compile(r"^[A-Za-z0-9_.][A-Za-z0-9_.:%@$-]*$")


class SshSettings(StrictRecord):
    """How OpenSSH would reach one name; paths are expanded, times are seconds."""

    name: str
    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...] = ()
    identities_given: bool = False  # False: only the default names, which need not exist
    identities_only: bool = False
    identity_agent: str | None = None
    proxy_jump: tuple[str, ...] = ()  # nearest first
    proxy_command: str | None = None  # tokens already replaced
    user_known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    revoked_host_keys: Path | None = None
    host_key_alias: str | None = None
    hash_known_hosts: bool = False
    strict_host_key_checking: str = "ask"  # recorded only: hosts.yaml decides
    connect_timeout: float | None = None  # recorded only: hosts.yaml decides

    @property
    def end(self) -> tuple[str, int, str]:
        """What makes two hops the same: address, port and user; the address alone does not."""
        return (self.hostname, self.port, self.user)

    @property
    def lookup_name(self) -> str:
        """The name under which known_hosts files hold this host's keys."""
        if self.host_key_alias:
            return self.host_key_alias.lower()
        host = self.hostname.lower()
        return host if self.port == 22 else f"[{host}]:{self.port}"

    def __str__(self) -> str:
        return f"{self.user}@{self.hostname}:{self.port}"


def resolve(
    name: str,
    *,
    user: str | None = None,
    port: int | None = None,
    config: Path | None = None,
    timeout: float = 10.0,
) -> SshSettings:
    """Ask `ssh -G` how to reach `name`; `config` replaces ~/.ssh/config and the system's file.

    Raises Unreachable where ssh is missing, refuses its configuration or takes over `timeout` seconds.
    """
    program = shutil.which("ssh")
    if program is None:
        raise Unreachable(
            f"{name}: the program ssh is not on this machine's PATH, so its configuration cannot be read",
            hint="sudo apt-get install openssh-client",
        )
    argv = [program, "-G"]
    argv += ["-F", str(config)] if config is not None else []
    argv += ["-l", user] if user is not None else []
    argv += ["-p", str(port)] if port is not None else []
    argv += ["--", name]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"{name}: ssh -G did not answer in {timeout:g} s", hint=f"{shlex.join(argv)}   # a slow Match exec?"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        faults = [line for line in said if not line.startswith("Pseudo-terminal")] or ["no reason given"]
        raise Unreachable(f"{name}: ssh refuses its configuration: {'; '.join(faults[:4])}", hint=shlex.join(argv))
    return parse(name, done.stdout.decode("utf-8", "surrogateescape"))


def parse(name: str, text: str) -> SshSettings:
    """Read what `ssh -G name` printed; unknown keywords are ignored."""
    words: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        words[key.lower()].append(value.strip())

    def one(key: str, default: str = "") -> str:
        value = words[key][0] if words[key] else default
        return default if value.lower() == "none" else value

    hostname, user, port = one("hostname", name), one("user"), int(one("port", "22"))
    tokens = {"%": "%", "h": hostname, "n": name, "p": str(port), "r": user, "d": str(Path.home())}
    identities = [value for value in words["identityfile"] if value.lower() != "none"]
    timeout = one("connecttimeout")
    command = one("proxycommand")
    revoked = one("revokedhostkeys")
    return SshSettings(
        name=name,
        hostname=hostname,
        user=user,
        port=port,
        identity_files=tuple(_path(value, tokens) for value in identities),
        identities_given=any(not _DEFAULT_IDENTITIES.match(value) for value in identities),
        identities_only=one("identitiesonly") == "yes",
        identity_agent=words["identityagent"][0] if words["identityagent"] else None,
        proxy_jump=tuple(hop.strip() for hop in one("proxyjump").split(",") if hop.strip()),
        proxy_command=_expand_command(name, command, tokens) if command else None,
        user_known_hosts=_paths(one("userknownhostsfile"), tokens),
        global_known_hosts=_paths(one("globalknownhostsfile"), tokens),
        revoked_host_keys=_path(revoked, tokens) if revoked else None,
        host_key_alias=one("hostkeyalias") or None,
        hash_known_hosts=one("hashknownhosts") == "yes",
        strict_host_key_checking=one("stricthostkeychecking", "ask"),
        connect_timeout=float(timeout) if timeout.isdigit() else None,
    )


def route(host: Host, *, config: Path | None = None) -> tuple[SshSettings, ...]:
    """The way to `host`: its jump hosts from the nearest on, then the host itself.

    As in OpenSSH only the first hop keeps a ProxyJump or ProxyCommand of its own, since the later
    ones are dialled through the one before.  A hop on the target's address with another port stays.
    Raises Unreachable for a loop or a hop that cannot be read.
    """
    target = resolve(host.address or host.name, user=host.user, port=host.port, config=config)
    if host.jump:
        jump = () if host.jump == ("none",) else host.jump
        target = target.model_copy(update={"proxy_jump": jump, "proxy_command": None})
    return (*_before(target, config, ()), target)


def _before(
    settings: SshSettings, config: Path | None, seen: tuple[tuple[str, int, str], ...]
) -> tuple[SshSettings, ...]:
    if not settings.proxy_jump:
        return ()
    seen = (*seen, settings.end)
    hops = [_resolve_hop(spec, config) for spec in settings.proxy_jump]
    for hop in hops:
        if hop.end in seen:
            raise Unreachable(
                f"{settings.name}: its ProxyJump leads back to {hop}",
                hint=f"in ssh_config give {hop.name} the line: ProxyJump none",
            )
    later = (hop.model_copy(update={"proxy_jump": (), "proxy_command": None}) for hop in hops[1:])
    return (*_before(hops[0], config, seen), hops[0], *later)


def _resolve_hop(spec: str, config: Path | None) -> SshSettings:
    found = _JUMP.match(spec)
    if found is None or spec.startswith("-"):
        raise Unreachable(f"jump host {spec!r} cannot be read", hint="write it as [user@]address[:port]")
    port = int(found["port"]) if found["port"] else None
    return resolve(found["host"].strip("[]"), user=found["user"], port=port, config=config)


def _expand(value: str, tokens: dict[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), value)


def _expand_command(name: str, command: str, tokens: dict[str, str]) -> str:
    # The command is the user's own shell line, so what is put into it must be a plain word.
    for token in ("h", "n", "r"):
        if f"%{token}" in command and not (_SAFE_WORD.match(tokens[token]) and "$" not in tokens[token]):
            raise Unreachable(f"{name}: {tokens[token]!r} cannot be put into its ProxyCommand", hint=f"ssh -G {name}")
    return _expand(command, tokens)


def _path(value: str, tokens: dict[str, str]) -> Path:
    return Path(_expand(value, tokens)).expanduser()


def _paths(value: str, tokens: dict[str, str]) -> tuple[Path, ...]:
    # `ssh -G` prints several paths on one line without quotes; each is absolute or starts with ~.
    return tuple(_path(part, tokens) for part in re.split(r"\s+(?=[/~])", value) if part)
