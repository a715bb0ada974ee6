"""`podman run` around a command."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.containers import ContainerJob
from harness.runtimes import run_words


def user(job: ContainerJob) -> str:
    """uid:gid inside and outside: the owner of the run directory."""
    return f"{job.uid}:{job.gid}"


def wrap(argv: Sequence[str], job: ContainerJob) -> tuple[str, ...]:
    """The argv that starts `argv` in a detached container; raises Blocked where its devices cannot be given."""
    mapping = ("--userns", "keep-id") if job.engine.rootless else ()
    return ("podman", "run", "--detach", *run_words.common(job), "--user", user(job), *mapping, job.image,
            *run_words.first_program(argv, job))  # fmt: skip
