"""A lab on the loopback: real sshd programs that behave like good, wrong and broken machines.

    with Fleet(directory) as fleet:
        fleet.add("good")
        fleet.add("impostor", known_hosts="wrong")
        fleet.write_inventory(directory / "hosts.yaml")
        ... harness.transports.connect(host, ssh_config=fleet.ssh_config)

Every machine has its own port, host key and sshd_config; all of it lies in one directory, with a
client key, a known_hosts file and an ssh_config that names nothing outside, so neither ~/.ssh nor
/etc/ssh plays a part.  It needs sshd and ssh-keygen, no root: a user's own sshd lets in that user.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

import yaml

import probe_payload
from harness.errors import Blocked
from harness.hostkeys import hashed_name
from harness.records.inventory import Host

ADDRESS = "127.0.0.1"
START_SECONDS = 10.0
INSTALL_HINT = "make system-deps"

State = Literal["up", "down", "hang"]
KnownAs = Literal["right", "wrong", "unknown", "revoked", "authority", "hashed"]


def find_sshd() -> Path | None:
    """The sshd program, or null where OpenSSH's server is not installed."""
    # It lies outside an ordinary user's PATH, and must be started by its absolute path.
    places = f"{os.defpath}:/usr/local/sbin:/usr/sbin:/sbin:/usr/lib/ssh:/usr/libexec"
    found = shutil.which("sshd") or shutil.which("sshd", path=places)
    return Path(found).absolute() if found and shutil.which("ssh-keygen") else None


class Fleet:
    """Machines on 127.0.0.1, running until `stop` or the end of the with block.

    `directory` must be empty or new, absolute and private; it is the caller's to remove.
    Raises Blocked where sshd is missing or does not start.
    """

    def __init__(self, directory: Path) -> None:
        sshd = find_sshd()
        if sshd is None:
            raise Blocked("the loopback fleet needs OpenSSH's server and ssh-keygen", hint=INSTALL_HINT)
        self._sshd = sshd
        self.directory = directory.absolute()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ssh_config = self.directory / "ssh_config"
        self.known_hosts = self.directory / "known_hosts"
        self.key = self.directory / "id_ed25519"
        self._hosts: dict[str, Host] = {}
        self._blocks: dict[str, str] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._sockets: list[socket.socket] = []
        self._bare_python: Path | None = None
        _make_key(self.key)
        self.known_hosts.touch(mode=0o600)
        self._write_config()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add(
        self,
        name: str,
        *,
        state: State = "up",
        known_hosts: KnownAs = "right",
        python: str | None = None,
        torch: bool = True,
        banner: str | None = None,
        force_command: str | None = None,
        set_env: Mapping[str, str] | None = None,
        behind: Sequence[str] = (),
        sshd_config: Sequence[str] = (),
        **host_fields: object,
    ) -> Host:
        """Start one machine and return what hosts.yaml says of it.

        state         up; down: its port is closed; hang: it accepts connections and never speaks
        known_hosts   what the client's file holds: the right or a wrong key, none, the key marked
                      as revoked, only a certificate authority's line, the right key by hashed name
        python        its interpreter, by default the one that runs this
        torch         False: an interpreter that has none of this machine's packages
        banner        text shown before the login
        force_command what runs instead of every command, as sshd's ForceCommand
        behind        names of machines of this fleet to jump through, nearest first
        sshd_config   further lines, for example "MaxStartups 1"; they win over ours
        host_fields   further fields of the Host record
        """
        folder = self.directory / name
        folder.mkdir(mode=0o700)
        port, holder = _reserve(listen=state == "hang")
        _make_key(folder / "host_key")
        self._remember(port, known_hosts, folder)
        if state == "up":
            lines = [*sshd_config, *self._server_lines(folder, port, banner, force_command, set_env or {})]
            if not any(line.startswith("Subsystem") for line in sshd_config):
                lines.append("Subsystem sftp internal-sftp")  # the one line that may not stand twice
            (folder / "sshd_config").write_text("\n".join(lines) + "\n")
            holder.close()
            self._start(name)
        else:
            self._sockets.append(holder)
        if python is None:
            python = sys.executable if torch else str(self._python_without_packages())
        jump = tuple(f"{ADDRESS}:{self._hosts[hop].port}" for hop in behind)
        host = self._record(name, {"port": port, "python": python, "jump": jump, **host_fields})
        self._hosts[name] = host
        self._blocks[name] = "\n".join(
            [f"Host {name}", f"  HostName {ADDRESS}", f"  Port {port}"]
            + ([f"  ProxyJump {','.join(behind)}"] if behind else [])
        )
        self._write_config()
        return host

    def hosts(self) -> tuple[Host, ...]:
        """All machines in the order they were added."""
        return tuple(self._hosts.values())

    def write_inventory(self, path: Path) -> None:
        """Write a hosts.yaml of all machines."""
        entries = {
            host.name: host.model_dump(mode="json", exclude={"name"}, exclude_defaults=True) for host in self.hosts()
        }
        path.write_text(yaml.safe_dump({"hosts": entries}, sort_keys=False))

    def log(self, name: str) -> str:
        """What the sshd of a machine logged so far."""
        return (self.directory / name / "log").read_text(errors="replace")

    def processes(self, name: str) -> list[int]:
        """Process ids below a machine's sshd: its sessions and what they run."""
        server = self._servers[name]
        return _descendants(server.pid)

    def stop(self) -> None:
        """Stop every sshd and all that runs below them; safe to call twice."""
        doomed = [pid for server in self._servers.values() for pid in [*_descendants(server.pid), server.pid]]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for server in self._servers.values():
            server.wait()
        for holder in self._sockets:
            holder.close()
        self._servers.clear()
        self._sockets.clear()

    def _record(self, name: str, fields: Mapping[str, object]) -> Host:
        ours = {"transport": "ssh", "address": ADDRESS, "user": getpass.getuser(), "key": str(self.key)}
        return Host.model_validate({"name": name, **ours, **fields})

    def _server_lines(
        self, folder: Path, port: int, banner: str | None, force_command: str | None, set_env: Mapping[str, str]
    ) -> list[str]:
        lines = [
            f"ListenAddress {ADDRESS}:{port}",
            f"HostKey {folder}/host_key",
            f"PidFile {folder}/pid",
            f"AuthorizedKeysFile {self.key}.pub",
            "StrictModes no",  # the directory may lie below a folder that others can write to
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PermitUserRC no",
            "UseDNS no",
            "LogLevel DEBUG1",
        ]
        if banner is not None:
            (folder / "banner").write_text(banner)
            lines.append(f"Banner {folder}/banner")
        if force_command is not None:
            lines.append(f"ForceCommand {force_command}")
        # A home of its own: what the user's shell files do (bash reads ~/.bashrc under sshd) is no part of
        # these machines, and a session that is killed must not leave their locks behind.
        home = folder / "home"
        home.mkdir(exist_ok=True)
        variables = {"HOME": str(home), **set_env}
        lines.append("SetEnv " + " ".join(f'"{key}={value}"' for key, value in variables.items()))
        return lines

    def _start(self, name: str) -> None:
        if os.geteuid() == 0:
            # sshd separates its privileges there when root starts it; nothing is written into it.
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = self.directory / name
        argv = [str(self._sshd), "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")]
        me = os.getpid()
        # On Linux it goes with this process, whatever ends that: nobody would look for it later.
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True,
                                  preexec_fn=lambda: probe_payload.die_with_parent(me))  # fmt: skip
        self._servers[name] = server
        end = time.monotonic() + START_SECONDS
        while not (folder / "pid").exists():
            if server.poll() is not None or time.monotonic() > end:
                log = folder / "log"
                said = log.read_text(errors="replace").strip() if log.exists() else ""
                raise Blocked(
                    f"the sshd of {name} did not start: {said[-500:] or 'no word'}", hint=shlex.join([*argv, "-t"])
                )
            time.sleep(0.01)

    def _remember(self, port: int, known_as: KnownAs, folder: Path) -> None:
        """Write the line of known_hosts."""
        shown = f"[{ADDRESS}]:{port}"
        key = (folder / "host_key.pub").read_text().split()[:2]
        if known_as == "wrong":
            blob = base64.b64decode(key[1])[:-32] + secrets.token_bytes(32)
            key = [key[0], base64.b64encode(blob).decode()]
        words = [hashed_name(shown) if known_as == "hashed" else shown, *key]
        if known_as in ("revoked", "authority"):
            words.insert(0, "@revoked" if known_as == "revoked" else "@cert-authority")
        if known_as != "unknown":
            with self.known_hosts.open("a") as stream:
                stream.write(f"{' '.join(words)}\n")

    def _write_config(self) -> None:
        common = [
            "Host *",
            f"  User {getpass.getuser()}",
            f'  IdentityFile "{self.key}"',
            "  IdentitiesOnly yes",
            "  IdentityAgent none",
            f'  UserKnownHostsFile "{self.known_hosts}"',
            "  GlobalKnownHostsFile /dev/null",
            "  HashKnownHosts no",
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
        ]
        self.ssh_config.write_text("\n".join([*self._blocks.values(), *common]) + "\n")

    def _python_without_packages(self) -> Path:
        """An interpreter with the standard library alone, whose children have no more than it."""
        if self._bare_python is None:
            folder = self.directory / "bare-python"
            venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
            self._bare_python = folder / "bin" / "python"
        return self._bare_python


def _make_key(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "loopback-fleet", "-f", str(path)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, check=True, timeout=30)


def _reserve(*, listen: bool) -> tuple[int, socket.socket]:
    """A free port and the socket that keeps it: bound it refuses, listening it accepts silently."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((ADDRESS, 0))
    if listen:
        holder.listen(64)
    port: int = holder.getsockname()[1]
    return port, holder


def _descendants(pid: int) -> list[int]:
    """Process ids below `pid`, children first; by ps, which macOS has as well."""
    done = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False, timeout=10)
    children: dict[int, list[int]] = {}
    for line in done.stdout.splitlines():
        child, parent = (int(word) for word in line.split()[:2])
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
