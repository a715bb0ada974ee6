"""Transport `ssh`: a machine reached by SSH, through Fabric and Paramiko.

`run` uses a channel of its own instead of Fabric's runner, whose captured output costs quadratic
time, whose `env=` is pasted unquoted and whose timeout leaves the channel open; so reads are
bounded and the deadline is ours.  The login shell, which may be fish or csh and may print a
greeting, is asked for nothing but `exec /bin/sh`; the command goes to that shell by its standard
input, quoted once, behind a marker that tells its output from whatever was printed before.

A remote signal reaches us as the shell's 128 + number and is given as -number; a program that
itself exits with such a code reads the same.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import shlex
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import paramiko

from harness.errors import Blocked, CommandFailed, DeadlineExceeded, HostError, Unreachable
from harness.hostkeys import HostKeyRule
from harness.records.inventory import Host
from harness.sshconfig import SshSettings, route
from harness.transports.base import OUTPUT_LIMIT, Completed
from harness.transports.sshlink import Deadline, Overdue, Way, within

T = TypeVar("T")

# Some waits inside Paramiko take no timeout; this long after ours the connection itself is cut.
GRACE_SECONDS = 5.0
# A background process may keep the output open after the command has ended.
TRAILING_SECONDS = 1.0
# A transfer may take this, and its bytes at the slowest link that is still of use.
TRANSFER_SECONDS = 60.0
TRANSFER_BYTES_PER_SECOND = 64 * 1024
_CHUNK = 32 * 1024


class SshTransport:
    """One SSH connection to one host, through its jump hosts.

    `ssh_config` replaces the user's and the system's ssh_config; null means OpenSSH's own files.
    """

    def __init__(self, host: Host, *, ssh_config: Path | None = None) -> None:
        self._host = host
        self._ssh_config = ssh_config
        self._way: Way | None = None
        self._sftp: paramiko.SFTPClient | None = None

    def open(self) -> None:
        """Connect hop by hop, all within the host's connect_timeout; see Transport.open."""
        self.close()
        host = self._host
        way = Way(host.name, Path(host.key).expanduser() if host.key else None)
        try:
            within(host.connect_timeout, lambda: self._open(way, Deadline(host.connect_timeout)))
        except Overdue:
            way.close()
            raise Unreachable(
                f"{host.name}: no connection within {host.connect_timeout:g} s; it hung in {way.stage}",
                hint=f"{self._ssh_command()} -v true",
            ) from None
        except BaseException:
            way.close()
            raise
        self._way = way

    def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        """Run one command; see Transport.run.  An unknown program is exit code 127."""
        words = tuple(argv)
        transport = self._transport()
        act = _Act(self._host.name, words, timeout)
        try:
            return within(timeout + GRACE_SECONDS, lambda: act.run(transport))
        except Overdue:
            self.close()
            raise act.overdue() from None
        except HostError:
            raise
        except Exception as error:
            raise self._broken(f"running {act.shown}", error) from error

    def put(self, data: bytes, path: str, *, mode: int) -> None:
        """Write a new file by SFTP; see Transport.put.  Raises Blocked where there is no SFTP."""

        def write(sftp: paramiko.SFTPClient) -> None:
            with _create(sftp, path) as stream:
                stream.set_pipelined(True)
                stream.chmod(mode)  # before the first byte is in it
                for start in range(0, len(data), _CHUNK):
                    stream.write(data[start : start + _CHUNK])
            size = sftp.stat(path).st_size
            if size != len(data):
                raise OSError(f"{size} of {len(data)} bytes arrived")

        self._transfer("write", path, write, len(data))

    def get(self, path: str, *, limit: int) -> bytes:
        """Read a regular file by SFTP; see Transport.get.  Raises Blocked where there is no SFTP."""
        too_long = CommandFailed(f"{self._host.name}: {path} is longer than {limit} bytes", reason="too_long")

        def read(sftp: paramiko.SFTPClient) -> bytes:
            facts = sftp.stat(path)
            size = facts.st_size or 0
            if facts.st_mode is not None and not stat.S_ISREG(facts.st_mode):
                raise OSError("not a regular file")
            if size > limit:
                raise too_long
            data = bytearray()
            with sftp.open(path, "rb") as stream:
                if size:
                    stream.prefetch(size)
                while chunk := stream.read(_CHUNK):
                    data += chunk
                    if len(data) > limit:
                        raise too_long
            return bytes(data)

        return self._transfer("read", path, read, limit)

    def close(self) -> None:
        """Close SFTP, the connection and every jump host's; never raises."""
        way, self._way, self._sftp = self._way, None, None
        if way is not None:
            way.close()

    def _open(self, way: Way, deadline: Deadline) -> None:
        hops = route(self._host, config=self._ssh_config)
        for hop in hops:
            last = hop is hops[-1]
            way.open(hop, self._rule(hop, last=last), deadline, last=last)

    def _rule(self, settings: SshSettings, *, last: bool) -> HostKeyRule:
        # A pin belongs to the host itself; its jump hosts are then held to their stored keys.
        mode = self._host.host_key
        if not last and mode.startswith("SHA256:"):
            mode = "strict"
        return HostKeyRule(
            host=self._host.name if last else f"{self._host.name}: jump host {settings.name}",
            lookup=settings.lookup_name,
            mode=mode,
            user_files=settings.user_known_hosts,
            global_files=settings.global_known_hosts,
            revoked_file=settings.revoked_host_keys,
            hash_names=settings.hash_known_hosts,
            connect_command=self._ssh_command() if last else self._ssh_command(settings.name),
        )

    def _ssh_command(self, jump: str | None = None) -> str:
        """The words a person types to reach the same machine with OpenSSH."""
        host = self._host
        words = ["ssh"]
        words += ["-F", str(self._ssh_config)] if self._ssh_config else []
        if jump is None:
            words += ["-i", host.key] if host.key else []
            words += ["-p", str(host.port)] if host.port else []
            words += ["-l", host.user] if host.user else []
            words += ["-J", ",".join(host.jump)] if host.jump else []
        return shlex.join([*words, jump or host.address or host.name])

    def _transport(self) -> paramiko.Transport:
        transport = self._way.links[-1].transport if self._way is not None and self._way.links else None
        if transport is None:
            raise Unreachable(f"{self._host.name}: not connected")
        return transport

    def _broken(self, what: str, error: Exception) -> HostError:
        """The error of an act on an open connection in our words."""
        name, said = self._host.name, str(error) or type(error).__name__
        way = self._way
        transport = way.links[-1].transport if way is not None and way.links else None
        if transport is None or not transport.is_active():
            return Unreachable(f"{name}: the connection was lost while {what}", reason="connection_lost")
        if isinstance(error, TimeoutError):
            return DeadlineExceeded(f"{name}: {what} did not end in time")
        if isinstance(error, paramiko.ChannelException):
            # sshd counts a session until its process ends, also when we have given it up.
            return CommandFailed(
                f"{name}: {what} failed: sshd opens no further session on this connection ({error.text})",
                hint="commands that did not end hold them (MaxSessions); open a new connection",
                reason="no_session",
            )
        return CommandFailed(f"{name}: {what} failed: {said}")

    def _transfer(self, verb: str, path: str, act: Callable[[paramiko.SFTPClient], T], size: int) -> T:
        what = f"{'writing' if verb == 'write' else 'reading'} {path}"
        if not path.startswith("/") or "\0" in path:
            raise CommandFailed(f"{self._host.name}: cannot {verb} {path!r}: not an absolute path")
        transport = self._transport()
        seconds = TRANSFER_SECONDS + size / TRANSFER_BYTES_PER_SECOND
        try:
            return within(seconds, lambda: act(self._open_sftp(transport)))
        except Overdue:
            self.close()
            raise DeadlineExceeded(f"{self._host.name}: {what} took over {seconds:.0f} s") from None
        except HostError:
            raise
        except FileExistsError as error:
            raise CommandFailed(f"{self._host.name}: {path} is already there") from error
        except Exception as error:
            if not isinstance(error, FileNotFoundError | PermissionError):
                self._drop_sftp()  # its replies may be out of step now
            raise self._broken(what, error) from error

    def _open_sftp(self, transport: paramiko.Transport) -> paramiko.SFTPClient:
        if self._sftp is not None:
            return self._sftp
        channel = transport.open_session(timeout=self._host.connect_timeout)
        channel.settimeout(TRANSFER_SECONDS / 2)
        try:
            channel.invoke_subsystem("sftp")
            self._sftp = paramiko.SFTPClient(channel)
        except (paramiko.SSHException, paramiko.SFTPError, EOFError) as error:
            channel.close()
            if not transport.is_active():
                raise
            raise Blocked(
                f"{self._host.name}: sshd there gives no usable SFTP ({str(error) or type(error).__name__})",
                hint="there, in sshd_config: Subsystem sftp internal-sftp; then reload sshd",
                reason="no_sftp",
            ) from error
        return self._sftp

    def _drop_sftp(self) -> None:
        sftp, self._sftp = self._sftp, None
        if sftp is not None:
            with contextlib.suppress(Exception):
                sftp.close()


def _create(sftp: paramiko.SFTPClient, path: str) -> paramiko.SFTPFile:
    """Open a new file for writing; SFTP itself has no word for one that is already there."""
    try:
        return sftp.open(path, "wx")
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        with contextlib.suppress(OSError):
            sftp.lstat(path)
            raise FileExistsError(path) from error
        raise


class _Stream:
    """The first OUTPUT_LIMIT bytes of one stream after the marker line."""

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self.started = False
        self.data = bytearray()

    def feed(self, chunk: bytes) -> None:
        if self.started:
            self.data += chunk[: OUTPUT_LIMIT - len(self.data)]
            return
        self.data += chunk
        before, found, after = self.data.partition(self._marker)
        if found:
            self.started = True
            self.data = after[:OUTPUT_LIMIT]
        elif len(before) > OUTPUT_LIMIT:
            self.data = before[-OUTPUT_LIMIT // 2 :]  # keeps the marker's beginning if it is there


class _Act:
    """One command on its own channel."""

    def __init__(self, host: str, argv: tuple[str, ...], timeout: float) -> None:
        self._host = host
        self._argv = argv
        self._timeout = timeout
        self._deadline = Deadline(timeout)
        self.shown = shlex.join(argv)[:200]
        if not argv or any("\0" in word for word in argv):
            raise CommandFailed(f"{host}: {argv!r} cannot be run: it is empty or holds a NUL")
        marker = f"atlas-{secrets.token_hex(8)}"
        self._out, self._err = (_Stream(f"{marker}\n".encode()) for _ in range(2))
        # The command gets /dev/null, since what is left of our standard input is this text.
        self._script = f"echo {marker}; echo {marker} >&2; {shlex.join(argv)} </dev/null; exit $?\n".encode(
            "utf-8", "surrogateescape"
        )

    def overdue(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"{self._host}: {self.shown} did not end within {self._timeout:g} s")

    def run(self, transport: paramiko.Transport) -> Completed:
        try:
            channel = transport.open_session(timeout=self._deadline.left())
        except paramiko.SSHException:
            if self._deadline.over and transport.is_active():
                raise self.overdue() from None
            raise
        try:
            channel.settimeout(self._deadline.left())
            channel.exec_command("exec /bin/sh")
            channel.sendall(self._script)
            channel.shutdown_write()
            self._read(channel)
        except TimeoutError:
            raise self.overdue() from None
        finally:
            channel.close()
        return self._completed(transport, channel)

    def _read(self, channel: paramiko.Channel) -> None:
        """Take both streams until the command has ended and they are closed, or held by others."""
        quiet_since = time.monotonic()
        with selectors.DefaultSelector() as ready:
            ready.register(channel, selectors.EVENT_READ)
            while True:
                if self._take(channel):
                    quiet_since = time.monotonic()
                elif channel.exit_status_ready():
                    ended = channel.closed or channel.eof_received
                    if ended or time.monotonic() - quiet_since > TRAILING_SECONDS:
                        return
                elif channel.eof_received:
                    # No more output, yet no exit code: the channel is readable now and for ever.
                    channel.status_event.wait(min(self._deadline.left(), 0.25))
                if self._deadline.over:
                    raise self.overdue()
                ready.select(min(self._deadline.left(), 0.25))

    def _take(self, channel: paramiko.Channel) -> bool:
        some = False
        if channel.recv_ready():
            self._out.feed(channel.recv(_CHUNK))
            some = True
        if channel.recv_stderr_ready():
            self._err.feed(channel.recv_stderr(_CHUNK))
            some = True
        return some

    def _completed(self, transport: paramiko.Transport, channel: paramiko.Channel) -> Completed:
        code = channel.exit_status
        if not self._out.started and code != -1:
            said = bytes(self._out.data + self._err.data).decode("utf-8", "replace").strip()
            raise Blocked(
                f"{self._host}: the login shell did not start /bin/sh (exit code {code}): {said[-300:] or 'no word'}",
                hint="give this user a login shell that runs commands (chsh -s /bin/sh)",
                reason="no_shell",
            )
        if code == -1:
            if not transport.is_active():
                raise Unreachable(
                    f"{self._host}: the connection was lost while running {self.shown}", reason="connection_lost"
                )
            raise CommandFailed(f"{self._host}: {self.shown} ended without an exit code")
        if 128 < code <= 128 + 64:
            code = 128 - code
        return Completed(self._argv, code, bytes(self._out.data), bytes(self._err.data))
