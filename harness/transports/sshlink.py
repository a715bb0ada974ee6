"""The connections of transport `ssh`: every hop of the way, its host key, one deadline.

Fabric and Paramiko are used here, in sshkeys.py and in ssh.py, and neither's types leave these files.
What is written by hand is what they lack, each a limit that was met in practice:

* Fabric checks no host key, shares its keyword arguments between hosts, dials jump hosts in reverse
  order, drops a hop on the target's address and leaves gateways open: so each link gets its own
  Config and arguments, its own key policy, and a socket that we dialled and that we close.
* Paramiko waits without limit in several places (a channel's reply, a vanished peer, the agent):
  so every act runs under `within`.
* Paramiko's ProxyCommand never notices that its program has ended: so that is a plain socket pair.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
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
from harness.transports.sshkeys import OurKeys

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
