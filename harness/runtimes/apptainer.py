"""`apptainer exec` around a command.

There is no daemon and so no detached container: the direct launcher's keeper starts and ends it.
The command has a process namespace of its own, so that nothing survives apptainer's end.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.backends import BACKENDS
from harness.errors import Blocked
from harness.records.containers import ContainerJob
from harness.runtimes import faults, run_words

# Apptainer puts the host's driver libraries where the linker's cache does not look; Triton asks that cache.
_DRIVER_LIBRARIES = "/.singularity.d/libs"


def user(job: ContainerJob) -> str:
    """uid:gid inside: always the user that runs apptainer."""
    return f"{job.uid}:{job.gid}"


def wrap(argv: Sequence[str], job: ContainerJob) -> tuple[str, ...]:
    """The argv that runs `argv` in the image, in the foreground; raises Blocked where a device cannot be had."""
    variables = run_words.environment(job)
    if job.backend == "cuda":
        variables["TRITON_LIBCUDA_PATH"] = _DRIVER_LIBRARIES
    words = ["apptainer", "exec", "--containall", "--no-home", "--no-privs", "--net", "--network", "none", "--bind",
             f"{job.folder}:{run_words.INSIDE}", "--pwd", run_words.INSIDE, *_devices(job, variables)]  # fmt: skip
    # Not by --env: it splits its value at commas.
    return (*words, job.image, "env", *(f"{name}={value}" for name, value in variables.items()), *argv)


def _devices(job: ContainerJob, variables: dict[str, str]) -> tuple[str, ...]:
    backend = BACKENDS[job.backend]
    if backend.refused:
        raise Blocked(backend.refused, reason="no_container", hint="runtime: bare")
    if job.backend == "cuda":
        if not job.host.nvidia_gpus:
            raise faults.no_nvidia(job.host)
        if job.devices:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(job.devices)
        return ("--nv",)
    missing = [path for path in backend.device_files if not job.host.files(path)]
    if missing:
        raise Blocked(f"there is no {missing[0]} on this host", reason="device_missing", hint="ls -l /dev/kfd /dev/dri")
    if job.backend == "rocm":
        if job.devices:
            variables["HIP_VISIBLE_DEVICES"] = ",".join(job.devices)
        return ("--rocm",)
    if job.backend == "xpu":
        if job.devices:
            variables["ZE_AFFINITY_MASK"] = ",".join(job.devices)
        return ("--bind", "/dev/dri")  # --containall has a /dev of its own
    return ()
