"""`docker run` around a command."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.containers import ContainerJob
from harness.runtimes import run_words


def user(job: ContainerJob) -> str:
    """uid:gid inside: the owner of the run directory; 0:0 in rootless docker, which is that owner outside."""
    return "0:0" if job.engine.rootless else f"{job.uid}:{job.gid}"


def wrap(argv: Sequence[str], job: ContainerJob) -> tuple[str, ...]:
    """The argv that starts `argv` in a detached container; raises Blocked where its devices cannot be given."""
    mapping = ("--userns", "host") if job.engine.userns_remap else ()
    return ("docker", "run", "--detach", *run_words.common(job), "--user", user(job), *mapping, job.image,
            *run_words.first_program(argv, job))  # fmt: skip
