"""Which words give a container its devices, from the facts of the host and the engine.  Pure.

What cannot work is refused here, before anything starts: a container without its device would
otherwise start and find none.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.backends import AMD, BACKENDS, INTEL
from harness.errors import Blocked
from harness.records.containers import ContainerJob, DeviceFile, HostFacts
from harness.runtimes import faults

_NVIDIA_CDI = "nvidia.com/gpu="


def device_words(job: ContainerJob) -> tuple[str, ...]:
    """Flags of `docker run` and `podman run` for the devices of the job's backend.

    Raises Blocked where the host or its engine cannot give them, with the command that mends it.
    """
    refused = BACKENDS[job.backend].refused
    if refused:
        raise Blocked(refused, reason="no_container", hint="runtime: bare")
    if job.backend == "cuda":
        return _nvidia(job)
    if job.backend == "rocm":
        _require(job.host, "/dev/kfd", "install the amdgpu driver: sudo amdgpu-install --usecase=dkms")
        nodes = _nodes(job, AMD)
        return (*_device("/dev/kfd"), *_dri(job, nodes), *_groups(job, (*job.host.files("/dev/kfd"), *nodes)))
    if job.backend == "xpu":
        nodes = _nodes(job, INTEL)
        return (*_dri(job, nodes), *_groups(job, nodes))
    return ()


def _device(path: str) -> tuple[str, str]:
    return ("--device", path)


def _dri(job: ContainerJob, nodes: Sequence[DeviceFile]) -> tuple[str, ...]:
    if not job.devices:
        return _device("/dev/dri")
    return tuple(word for node in nodes for word in _device(node.path))


def _require(host: HostFacts, path: str, hint: str) -> None:
    if not host.files(path):
        why = host.unknown.get("device_files")
        raise Blocked(f"there is no {path} on this host{': ' + why if why else ''}", reason="device_missing", hint=hint)


def _nodes(job: ContainerJob, vendor: str) -> tuple[DeviceFile, ...]:
    """The render nodes asked for: all of the vendor's, or those at the wished places among them."""
    _require(job.host, "/dev/dri/", "load the GPU's kernel driver (xe, i915 or amdgpu); then: ls -l /dev/dri")
    nodes = job.host.render_nodes(vendor)
    if not nodes:
        raise Blocked(f"/dev/dri has no render node of vendor {vendor}", reason="device_missing", hint="ls -l /dev/dri")
    wished = [int(word) for word in job.devices if word.isdigit()]
    if len(wished) != len(job.devices) or any(index >= len(nodes) for index in wished):
        raise Blocked(
            f"device {', '.join(job.devices)} was asked for; this host has {', '.join(node.path for node in nodes)}",
            reason="device_missing", hint=f"write an index from 0 to {len(nodes) - 1}",
        )  # fmt: skip
    return tuple(nodes[index] for index in wished) or nodes


def _groups(job: ContainerJob, files: Sequence[DeviceFile]) -> tuple[str, ...]:
    """The host's group ids of the files: numbers differ from host to host, and names mean nothing inside."""
    closed = [file for file in files if not file.open_to_all]
    if job.engine.rootless:
        return _rootless_groups(job, closed)
    if any(file.gid == 0 for file in closed):
        paths = ", ".join(file.path for file in closed if file.gid == 0)
        raise Blocked(f"only root may open {paths}", reason="render_permission",
                      hint="give the files to group render: sudo udevadm trigger, then: ls -l /dev/dri")  # fmt: skip
    return tuple(word for gid in sorted({file.gid for file in closed}) for word in ("--group-add", str(gid)))


def _rootless_groups(job: ContainerJob, closed: Sequence[DeviceFile]) -> tuple[str, ...]:
    """A rootless engine cannot give what its user lacks; podman can keep the user's own groups."""
    by_group = [file for file in closed if file.uid != job.host.uid and not file.mode.endswith("+")]
    if not by_group:
        return ()
    missing = [file.path for file in by_group if file.gid not in job.host.groups]
    if missing:
        raise Blocked(f"this user may not open {', '.join(missing)}", reason="render_permission",
                      hint=faults.JOIN_RENDER)  # fmt: skip
    if job.engine.engine == "podman":
        return ("--group-add", "keep-groups")
    raise Blocked(
        f"rootless docker drops this user's groups, and {by_group[0].path} is open to a group only",
        reason="render_permission", hint="use runtime: podman, or a docker engine that runs as root",
    )  # fmt: skip


def _nvidia(job: ContainerJob) -> tuple[str, ...]:
    if not job.host.nvidia_gpus:
        raise faults.no_nvidia(job.host)
    if _has_cdi(job):
        return tuple(word for name in _cdi_names(job) for word in _device(name))
    if job.engine.engine == "podman":
        # podman takes --gpus in silence and may start without any GPU.
        raise Blocked("podman gets NVIDIA GPUs by CDI only, and this host has no CDI specification",
                      reason="nvidia_runtime", hint=faults.make_cdi(job.host))  # fmt: skip
    if job.host.nvidia_toolkit is False and "nvidia" not in job.engine.runtimes:
        raise Blocked("docker cannot give NVIDIA GPUs to a container: the NVIDIA container toolkit is not installed",
                      reason="nvidia_runtime", hint=faults.INSTALL_TOOLKIT)  # fmt: skip
    if not job.devices:
        return ("--gpus", "all")
    # The value is read as CSV: several devices are one field, in quotes of its own.
    wished = "device=" + ",".join(_toolkit_name(word, job.host) for word in job.devices)
    return ("--gpus", f'"{wished}"' if "," in wished else wished)


def _has_cdi(job: ContainerJob) -> bool:
    known = _known(job)
    if known is not None:
        return any(name.startswith(_NVIDIA_CDI) for name in known)
    return (job.engine.engine == "podman" or job.engine.cdi_enabled is True) and any(
        "nvidia" in path for path in job.host.cdi_specs
    )


def _known(job: ContainerJob) -> tuple[str, ...] | None:
    """The CDI names that exist, as the engine or else the toolkit lists them; None where nobody does."""
    if job.engine.cdi_devices is not None:
        return job.engine.cdi_devices
    return job.host.cdi_devices if job.engine.engine == "podman" or job.engine.cdi_enabled else None


def _cdi_names(job: ContainerJob) -> tuple[str, ...]:
    known = _known(job)
    names = []
    for word in job.devices or ("all",):
        forms = [_NVIDIA_CDI + form for form in (word, *_other_forms(word, job.host))]
        name = forms[0] if known is None else next((form for form in forms if form in known), None)
        if name is None:
            raise Blocked(f"the CDI specification does not know {forms[0]}: it is older than the MIG layout",
                          reason="cdi_stale", hint=faults.make_cdi(job.host))  # fmt: skip
        names.append(name)
    return tuple(names)


def _other_forms(word: str, host: HostFacts) -> tuple[str, ...]:
    """Other names of a device: a specification has indices, UUIDs, or both."""
    for gpu in host.nvidia_gpus:
        if word in (gpu.uuid, str(gpu.index)):
            return (str(gpu.index), gpu.uuid)
        for part in gpu.slices:
            if word == part.uuid:
                return (f"{gpu.index}:{part.index}",)
    return ()


def _toolkit_name(word: str, host: HostFacts) -> str:
    known = {name for gpu in host.nvidia_gpus for name in (str(gpu.index), gpu.uuid, *(s.uuid for s in gpu.slices))}
    if word not in known:
        raise Blocked(f"this host has no NVIDIA device {word}", reason="device_missing", hint="nvidia-smi -L")
    return word
