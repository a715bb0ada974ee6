"""The contract of a transport: how a machine is reached.

A transport carries argv lists, bytes and nothing else.  `run` is for short acts with a deadline
(make a directory, start, poll, cancel); a probe is never run through it but started detached by a
launcher, and its results travel by `get`, never through captured output.  One suite,
tests/contract, holds every transport to this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# What `run` keeps of each stream; more is cut, never an error.
OUTPUT_LIMIT = 256 * 1024


@dataclass(frozen=True)
class Completed:
    """How a short act ended.  `exit_code` is negative for a signal, as in subprocess."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes


class Transport(Protocol):
    """One connection to one machine, opened, used and closed by one thread."""

    def open(self) -> None:
        """Connect and check the host's key.

        Raises Unreachable (HostKeyError among them) or AuthError.
        """

    def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        """Run one command to its end, standard input empty, no login-shell files needed.

        Raises DeadlineExceeded after `timeout` seconds (the remote process is not promised to be
        gone: what must die is started by a launcher), Unreachable if the connection is lost.
        """

    def put(self, data: bytes, path: str, *, mode: int) -> None:
        """Write a new file at an absolute path; raises CommandFailed where that fails."""

    def get(self, path: str, *, limit: int) -> bytes:
        """Read a file; raises CommandFailed if it is not there or longer than `limit` bytes."""

    def close(self) -> None:
        """Close everything that `open` opened, gateways included; never raises."""
