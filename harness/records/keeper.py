"""What the keeper on a host answers, one record an act: a stranger's words, checked before they are used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.records.base import Count, Record, Sha256, Text, Word

Pids = Annotated[tuple[Count, ...], Field(max_length=10_000)]
Folder = Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$", max_length=4000)]


class KeeperPlace(Record):
    """Where the private directory was made; nowhere if this python is too old to act there."""

    python: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")]
    home: Text = ""
    root: Folder | None = None
    folder: Folder | None = None


class KeeperHashes(Record):
    """sha256 of each file as it arrived."""

    hashes: Annotated[tuple[Sha256, ...], Field(max_length=100)]


class KeeperStarted(Record):
    """The command runs, or `error` and the last words of whoever should have started it."""

    error: Text | None = None
    detail: Text = ""


class KeeperExit(Record):
    """How the command ended; `reason` is null if by itself, else deadline, cancelled or not_started."""

    code: Annotated[int, Field(ge=-(2**31), le=2**31)] | None = None
    reason: Word | None = None
    survivors: Pids = ()
    oom_kills: Count | None = Field(None, description="by the kernel, for memory, since the command was started")


class KeeperPoll(Record):
    """What the command is doing; `offset` is where `progress` ended."""

    state: Literal["running", "ended", "lost"]
    exit: KeeperExit | None = None
    offset: Count
    progress: Annotated[str, StringConstraints(max_length=64 * 1024)]
    result_bytes: Count
    result_sha256: Sha256 | None = None
    stderr: Text = ""


class KeeperLeft(Record):
    """Processes that would not die."""

    left: Pids


class KeeperRemoved(Record):
    """Whether the directory is gone, and why not."""

    removed: bool
    why: Text = ""


class KeeperSwept(Record):
    """How many directories of earlier runs were removed."""

    removed: Count
