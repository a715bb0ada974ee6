"""The words that `docker run` and `podman run` have in common.  Pure.

Hardened: no network, read-only root with a private /tmp, no capability, no new privileges, limits on
memory, processes and shared memory.  Caches and TMPDIR lie in the bound directory: an engine's tmpfs
is noexec, and its pages count as memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.backends import BACKENDS
from harness.records.containers import ContainerJob
from harness.runtimes.devices import device_words

_TMP = "/tmp:rw,noexec,nosuid,nodev,size=64m,mode=1777"  # noqa: S108 - the container's own, empty
INSIDE = "/atlas"  # where the run directory lies in every container
LABEL = "inductor-atlas"

# The container's first program.  Standard output goes to a file of the run directory: an engine's own
# log is unbounded and needs the engine to be read.  `timeout` ends the container at its deadline also
# where nobody is left to do it: with it goes process 1, and with that every other process.
_FIRST = (
    'limit=$1; shift; exec >>"$0/progress.log" 2>>"$0/stderr.log" </dev/null;'
    ' if command -v timeout >/dev/null 2>&1; then exec timeout -k 10 "$limit" "$@"; fi; exec "$@"'
)


def first_program(argv: Sequence[str], job: ContainerJob) -> tuple[str, ...]:
    """The words after the image: argv under its deadline, its output in the run directory."""
    return ("-c", _FIRST, INSIDE, f"{job.deadline:.0f}", *argv)


def labels(job: ContainerJob) -> dict[str, str]:
    """What makes a container findable: its run, its owner on the host, its deadline in seconds."""
    owner = job.host.uid if job.host.uid is not None else job.uid
    return {f"{LABEL}.run": job.name, f"{LABEL}.owner": str(owner), f"{LABEL}.deadline": f"{job.deadline:.0f}"}


def memory_limit(job: ContainerJob) -> int | None:
    """Bytes that the container may use; None where the engine cannot limit them or nothing is known."""
    if not job.engine.memory_limit:
        return None
    wished = job.memory_bytes
    if wished is None and job.engine.memory_bytes is not None:
        wished = max(job.engine.memory_bytes * 3 // 4, 2**26)
    return wished


def environment(job: ContainerJob) -> dict[str, str]:
    """Everything that is set inside; the job's own words win.

    HOME, USER and LOGNAME are there because the user id has no name inside, and libraries ask for one.
    """
    return {
        "HOME": f"{INSIDE}/work", "TMPDIR": f"{INSIDE}/work", "USER": "atlas", "LOGNAME": "atlas",
        "ATLAS_RUN_DIRECTORY": job.folder, **BACKENDS[job.backend].environment, **job.environment,
    }  # fmt: skip


def common(job: ContainerJob) -> tuple[str, ...]:
    """The hardening, limits, labels, environment, directory and devices, in a fixed order."""
    words = [
        "--name", job.name, "--pull", "never", "--init", "--entrypoint", "/bin/sh", "--workdir", INSIDE,
        "--network", "none", "--read-only", "--tmpfs", _TMP,
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ipc", "private", "--log-driver", "none",
    ]  # fmt: skip
    memory = memory_limit(job)
    if memory is not None:
        words += ["--memory", str(memory), "--memory-swap", str(memory)]
    if job.engine.pids_limit:
        words += ["--pids-limit", str(job.pids)]
    words += ["--shm-size", str(job.shm_bytes), *_folder(job)]
    for name, value in labels(job).items():
        words += ["--label", f"{name}={value}"]
    for name, value in environment(job).items():
        words += ["--env", f"{name}={value}"]
    return (*words, *device_words(job))


def _folder(job: ContainerJob) -> tuple[str, ...]:
    """The one bound directory, with a private label where SELinux enforces.

    NVIDIA's device files have no type that a confined container may open: there the label goes.
    """
    enforcing = job.host.selinux_enforcing is True and (job.engine.selinux or job.engine.engine == "podman")
    if enforcing and job.backend == "cuda":
        return ("--volume", f"{job.folder}:{INSIDE}", "--security-opt", "label=disable")
    return ("--volume", f"{job.folder}:{INSIDE}{':Z' if enforcing else ''}")


def notes(job: ContainerJob) -> tuple[str, ...]:
    """What this engine could not be asked for, in sentences."""
    if job.engine.engine == "apptainer":
        return ("no limits on memory and processes: apptainer leaves them to the host",)
    said = []
    if not job.engine.memory_limit:
        said.append("no memory limit: this engine cannot set one (cgroup controllers are not delegated to it)")
    if not job.engine.pids_limit:
        said.append("no limit on processes: this engine cannot set one")
    if job.engine.engine == "docker" and job.engine.rootless:
        said.append("uid 0 inside is this host's unprivileged user outside (rootless docker)")
    if job.engine.userns_remap:
        said.append("the engine's user remapping was left out: files must belong to the host's user")
    return tuple(said)
