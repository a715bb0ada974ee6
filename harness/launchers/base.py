"""The contract of a launcher: who starts a command on a host, and what its acts give.

Every act is short, has a deadline and may be done over another connection than the one before: all
that an act needs stands on the host and in the Place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from harness.transports.base import Transport

RESULT = "result.jsonl"


@dataclass(frozen=True)
class Place:
    """A private directory on a host and the python that acts in it.

    `inside` is the path under which the command sees the directory, where that is another one.
    """

    root: str
    folder: str
    python: str
    python_version: str
    inside: str | None = None

    @property
    def result(self) -> str:
        """Path of the JSON Lines file, as the host sees it."""
        return f"{self.folder}/{RESULT}"

    @property
    def seen(self) -> str:
        """The directory as the command sees it: what its arguments must name."""
        return self.inside or self.folder


@dataclass(frozen=True)
class State:
    """What a poll says.  `lost`: the command and its keeper were killed from outside.

    `oom_kills` is how many processes the kernel killed for memory there since the start, if it tells.
    `exit_reason` is None for a command that ended by itself, else deadline, cancelled, memory or
    not_started.  `result_sha256` is None while it runs, and where the host has no program to hash with:
    then the length is what can be compared.
    """

    state: Literal["running", "ended", "lost"]
    offset: int
    progress: str
    result_bytes: int
    result_sha256: str | None
    exit_code: int | None
    exit_reason: str | None
    survivors: tuple[int, ...]
    stderr: str
    oom_kills: int | None = None


class Launcher(Protocol):
    """The acts in their order.  A module with these functions is a launcher too."""

    def prepare(self, transport: Transport, python: str, root: str | None, /) -> Place:
        """Make a private directory below `root`; raises Blocked where there is no room or no python."""

    def push(self, transport: Transport, place: Place, payload: Path, /) -> str:
        """Put the payload there; returns its sha256, the same here and there, or raises CommandFailed."""

    def start(
        self, transport: Transport, place: Place, argv: tuple[str, ...], environment: dict[str, str],
        deadline: float, /,
    ) -> None:  # fmt: skip
        """Start argv detached, with a deadline in seconds; raises Blocked or CommandFailed."""

    def poll(self, transport: Transport, place: Place, offset: int, /) -> State:
        """What the command is doing; `offset` is where the last poll's progress ended."""

    def cancel(self, transport: Transport, place: Place, /) -> tuple[int | str, ...]:
        """End the command and all that it started; returns the pids or containers that would not go."""

    def clean(self, transport: Transport, place: Place, /) -> str | None:
        """Remove everything of ours; returns why that could not be, or None."""

    def discard(self, transport: Transport, place: Place, /) -> str | None:
        """Remove a directory in which nothing was started; returns why it could not be, or None."""
