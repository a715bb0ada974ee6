"""The connections of transport `ssh`: every hop of the way, its host key, our keys, one deadline.

Fabric and Paramiko are used here and in ssh.py only, and neither's types leave these two files.
What is written by hand is what they lack, each a limit that was met in practice:

* Fabric checks no host key, shares its keyword arguments between hosts, dials jump hosts in reverse
  order, drops a hop on the target's address and leaves gateways open: so each link gets its own
  Config and arguments, its own key policy, and a socket that we dialled and that we close.
* Paramiko waits without limit in several places (a channel's reply, a vanished peer, the agent):
  so every act runs under `within`.
* Paramiko's ProxyCommand never notices that its program has ended: so that is a plain socket pair.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import fabric
import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from harness.errors import AuthError, HostError, Unreachable
from harness.hostkeys import HostKeyRule
from harness.sshconfig import SshSettings

T = TypeVar("T")

KEEPALIVE_SECONDS = 15
# Pauses before the second and third try of a connection that sshd dropped (MaxStartups) or reset.
RETRY_PAUSES = (0.5, 1.5)

# Without a handler Python prints paramiko's tracebacks of failed connections on stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Overdue(Exception):
    """`within` gave up; the act may still be stuck in its thread."""


class Deadline:
    """A moment that is `seconds` away."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that remain, never 0: libraries read 0 as "no limit" or "do not block"."""
        return max(0.001, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._end


def within(seconds: float, act: Callable[[], T]) -> T:
    """What `act` returns or raises; Overdue after `seconds`, whatever act waits for.

    It runs in a thread of its own because name look-ups, the agent and some waits of Paramiko take
    no timeout; a thread that is given up is a daemon and ends when its sockets are closed.
    """
    future: Future[T] = Future()

    def body() -> None:
        try:
            future.set_result(act())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=body, name="atlas-ssh", daemon=True)
    thread.start()
    thread.join(seconds)
    if not future.done():
        raise Overdue
    return future.result()


@dataclass
class Link:
    """One SSH connection and the socket below it."""

    settings: SshSettings
    sock: Any
    helper: subprocess.Popen[bytes] | None = None  # the ProxyCommand
    connection: Any = None

    @property
    def transport(self) -> paramiko.Transport | None:
        """Paramiko's transport while there is one."""
        return self.connection.client.get_transport() if self.connection is not None else None

    def close(self) -> None:
        """Close the connection, its socket and its helper, in whatever state they are."""
        transport = self.transport
        if self.connection is not None:
            with contextlib.suppress(Exception):
                self.connection.close()
            with contextlib.suppress(Exception):
                self.connection.client.close()
        with contextlib.suppress(Exception):
            self.sock.close()
        if self.helper is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.helper.pid, signal.SIGTERM)
            try:
                self.helper.wait(1)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(self.helper.pid, signal.SIGKILL)
                self.helper.wait()
        if transport is not None and transport.is_alive():
            transport.join(2)


@dataclass
class Way:
    """The open links from here to a host, nearest first; `stage` says how far opening came."""

    host: str
    explicit_key: Path | None
    links: list[Link] = field(default_factory=list)
    stage: str = "reading the ssh configuration"
    closed: bool = False

    def open(self, settings: SshSettings, rule: HostKeyRule, deadline: Deadline, *, last: bool) -> None:
        """Add one link through those that are open; retries only what can pass by itself.

        Raises Unreachable, HostKeyError or AuthError, naming the hop where it is not the host itself.
        """
        who = self.host if last else f"{self.host}: jump host {settings.name}"
        keys = OurKeys(who, settings, self.explicit_key if last else None)
        for pause in (*RETRY_PAUSES, None):
            self.stage = f"connecting to {settings}"
            try:
                self._dial(settings, rule, deadline, keys)
                return
            except HostError:
                raise
            except Exception as error:
                self._drop_unfinished(settings)
                if pause is None or not _may_pass(error) or deadline.left() <= pause:
                    raise explain(who, settings, error) from error
            time.sleep(pause)

    def close(self) -> None:
        """Close every link, the farthest first; never raises."""
        self.closed = True
        for link in reversed(self.links):
            link.close()
        self.links.clear()

    def _dial(self, settings: SshSettings, rule: HostKeyRule, deadline: Deadline, keys: OurKeys) -> None:
        link = self._plug(settings, deadline)
        self.links.append(link)
        if self.closed:  # given up meanwhile: nobody else would close this one
            link.close()
            raise ConnectionAbortedError("given up")
        # Everything below is made anew for each link: Fabric writes into what it is given.
        link.connection = fabric.Connection(
            settings.hostname,
            user=settings.user,
            port=settings.port,
            config=fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True),
            connect_kwargs={
                "sock": link.sock,
                "timeout": deadline.left(),
                "banner_timeout": deadline.left(),
                "auth_timeout": deadline.left(),
                "channel_timeout": deadline.left(),
                "allow_agent": False,
                "look_for_keys": False,
                "auth_strategy": keys,
                "transport_factory": _factory(rule.known_types()),
            },
        )
        link.connection.client.set_missing_host_key_policy(_Verdict(rule))
        self.stage = f"the SSH handshake with {settings}"
        link.connection.open()
        link.connection.transport.set_keepalive(KEEPALIVE_SECONDS)

    def _plug(self, settings: SshSettings, deadline: Deadline) -> Link:
        """Something to speak SSH over: a channel of the link before, a program, or a socket."""
        address = (settings.hostname, settings.port)
        if self.links:
            before = self.links[-1].transport
            if before is None:
                raise ConnectionAbortedError("the jump host's connection is gone")
            channel = before.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=deadline.left())
            return Link(settings, channel)
        if settings.proxy_command is not None:
            return _start_proxy(settings, settings.proxy_command)
        sock = socket.create_connection(address, timeout=deadline.left())
        # Small requests would each wait 40 ms for the other side's delayed acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Link(settings, sock)

    def _drop_unfinished(self, settings: SshSettings) -> None:
        if self.links and self.links[-1].settings is settings:
            self.links.pop().close()


def _start_proxy(settings: SshSettings, command: str) -> Link:
    ours, theirs = socket.socketpair()
    with theirs:
        # ProxyCommand is a shell line by definition; it is the user's own, from ssh_config.
        helper = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return Link(settings, ours, helper)


class _Verdict(paramiko.MissingHostKeyPolicy):
    """Asks our rule about the key.

    The client is given no stored keys, so paramiko brings every key here: its own table holds one
    key of each type for a host, and its loader fails on lines that are none of the host's business.
    """

    def __init__(self, rule: HostKeyRule) -> None:
        self._rule = rule

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - paramiko's signature
        hostname: str,  # noqa: ARG002
        key: paramiko.PKey,
    ) -> None:
        self._rule.check(key.get_name(), key.asbytes())


def _factory(known_types: tuple[str, ...]) -> Callable[..., paramiko.Transport]:
    """Make transports that ask first for the key types that are stored for the host."""
    wanted = [
        name for kind in known_types for name in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))
    ]

    def make(sock: Any, **options: Any) -> paramiko.Transport:
        transport = paramiko.Transport(sock, **options)
        security = transport.get_security_options()
        offered = list(security.key_types)
        first = [name for name in wanted if name in offered]
        security.key_types = (*first, *(name for name in offered if name not in first))
        return transport

    return make


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


def _may_pass(error: Exception) -> bool:
    """Whether the same attempt may succeed a moment later; a key or a refused port will not."""
    if isinstance(error, paramiko.AuthenticationException | IncompatiblePeer | paramiko.ChannelException):
        return False
    if isinstance(error, paramiko.SSHException):
        return "banner" in str(error) or "Negotiation failed" in str(error)
    return isinstance(error, ConnectionResetError | BrokenPipeError | EOFError | TimeoutError)


def explain(who: str, settings: SshSettings, error: Exception) -> HostError:
    """The error of a failed connection in our words."""
    end = f"{settings.hostname}:{settings.port}"
    look = f"ssh -v -p {settings.port} {settings.user}@{settings.hostname} true"
    if isinstance(error, paramiko.AuthenticationException):
        return AuthError(f"{who}: {settings} ended the login: {error}", hint=look)
    if isinstance(error, socket.gaierror):
        return Unreachable(
            f"{who}: no address for {settings.hostname!r}",
            hint="correct `address` in hosts.yaml or HostName in ssh_config",
        )
    if isinstance(error, paramiko.ChannelException):
        return Unreachable(f"{who}: the hop before it cannot reach {end}: {error.text}", hint=look)
    if isinstance(error, IncompatiblePeer):
        return Unreachable(
            f"{who}: {end} shares no algorithm with this transport: {error}",
            hint="update its sshd; the openssh transport, which is to come, may do",
        )
    if isinstance(error, ConnectionRefusedError):
        return Unreachable(f"{who}: nothing listens at {end}", hint="start sshd there, or correct `port` in hosts.yaml")
    if isinstance(error, TimeoutError):
        return Unreachable(f"{who}: {end} does not answer", hint=look)
    if isinstance(error, paramiko.SSHException) and "banner" in str(error):
        return Unreachable(f"{who}: {end} accepts connections and does not speak SSH (or is too busy)", hint=look)
    said = str(error) or type(error).__name__
    return Unreachable(f"{who}: the connection to {end} failed: {said}", hint=look)
