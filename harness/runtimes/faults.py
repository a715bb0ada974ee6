"""What an engine's refusal means and the command that mends it.  Pure.

An engine says what is wrong in a sentence of its own; the table turns the known ones into a reason
code and a command.  Texts of docker 20 to 29, podman 4 and 5, the NVIDIA container toolkit and CDI.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.errors import Blocked, CommandFailed, HostError
from harness.records.base import BackendName
from harness.records.containers import EngineFacts, HostFacts
from harness.transports.base import Completed

JOIN_RENDER = "sudo usermod -aG render,video $USER  # then log in again"
INSTALL_TOOLKIT = (
    "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker"
    " && sudo systemctl restart docker"
)
_MAKE_CDI = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
INSTALL = {
    "docker": "install docker on this host (Debian: sudo apt-get install docker.io), or use another runtime",
    "podman": "install podman on this host (Debian: sudo apt-get install podman), or use another runtime",
    "apptainer": "install apptainer on this host, or `module load apptainer` where the site has modules",
}


class Fault(NamedTuple):
    """A text that engines print, its reason code, what it means, and what to type."""

    pattern: re.Pattern[str]
    reason: str
    means: str
    hint: str | None


def _fault(pattern: str, reason: str, means: str, hint: str | None) -> Fault:
    return Fault(re.compile(pattern, re.IGNORECASE), reason, means, hint)


FAULTS = (
    _fault(r"permission denied.*(docker daemon socket|docker api|podman\.sock|docker\.sock)|connect: permission denied",
           "engine_permission", "this user may not talk to the docker daemon",
           "sudo usermod -aG docker $USER  # then log in again; or use rootless docker or podman"),
    _fault(r"cannot connect to the docker daemon|failed to connect to the docker api|is the docker daemon running",
           "engine_down", "the docker daemon is not running", "sudo systemctl start docker"),
    _fault(r"could not select device driver|unknown or invalid runtime name: nvidia"
           r"|nvidia-container-(runtime|cli).*not found",
           "nvidia_runtime", "docker has no NVIDIA runtime: the toolkit is missing or not configured", INSTALL_TOOLKIT),
    _fault(r"driver/library version mismatch|nvml error: driver/library",
           "driver_mismatch", "the NVIDIA driver was updated and the old one is still loaded", "sudo reboot"),
    _fault(r"unsatisfied condition: (cuda|driver)|please update your driver",
           "driver_mismatch", "the image needs a newer NVIDIA driver than this host has",
           "update the driver, or choose an image with an older CUDA; nvidia-smi shows the driver"),
    _fault(r"unresolvable cdi devices|failed to stat cdi host device|cdi device injection failed|failed to inject cdi",
           "cdi_stale", "the CDI specification is missing or older than the driver", _MAKE_CDI),
    _fault(r"error mounting \S*(nvidia|libcuda)\S*.*no such file|stat /\S*(nvidia|libcuda)\S*: no such file",
           "cdi_stale", "the CDI specification names files of another driver", _MAKE_CDI),
    _fault(r"nvml error: driver not loaded|load library failed: libnvidia-ml|libnvidia-ml\.so\.1: cannot open",
           "driver_missing", "the NVIDIA driver is not loaded on this host", "sudo modprobe nvidia; nvidia-smi"),
    _fault(r"nvml: unknown error|nvml error: unknown|gpu is lost|fallen off the bus",
           "device_lost", "the NVIDIA driver lost the GPU", "sudo systemctl restart docker, or reboot"),
    _fault(r"nvidia-container-cli: device error|unknown device.*(MIG|GPU)-",
           "device_missing", "the NVIDIA driver does not know the device that was asked for", "nvidia-smi -L"),
    _fault(r"no such image|image not known|unable to find a (name and tag )?match|pull access denied|manifest unknown",
           "image_absent", "the image is not on this host", None),
    _fault(r"exec format error|no matching manifest|image .* platform .* does not match",
           "image_arch", "the image is made for another CPU architecture", None),
    _fault(r"error gathering device information|error stating device|stat /dev/\S+: no such file|device .*no such file",
           "device_missing", "a device file that the backend needs is not on this host", "ls -l /dev/kfd /dev/dri"),
    _fault(r"no space left on device|disk quota exceeded",
           "disk_full", "a disk of this host is full", "df -h; docker system df shows what the engine holds"),
    _fault(r"error during connect|setting up.*(newuidmap|newgidmap)|newuidmap.*(denied|not found)|no subuid ranges",
           "engine_setup", "the rootless engine is not set up for this user",
           "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER"),
    _fault(r"lsetxattr.*operation not supported|SELinux relabeling.*not allowed|relabel failed",
           "selinux_label", "SELinux cannot label the run directory on this file system",
           "set `workdir:` of this host in hosts.yaml to a local file system"),
)  # fmt: skip


def fault_of(text: str, *, image: str = "", backend: BackendName | None = None) -> Blocked | None:
    """The known fault in an engine's words, or None."""
    for fault in FAULTS:
        if fault.pattern.search(text):
            means = fault.means.replace("the image", f"the image {image}", 1) if image else fault.means
            hint = fault.hint
            if fault.reason in ("image_absent", "image_arch"):
                hint = build_image(backend)
            return Blocked(f"{means}: {last_line(text)}", reason=fault.reason, hint=hint)
    return None


def refusal(done: Completed, *, image: str = "", backend: BackendName | None = None) -> HostError:
    """The error to raise for an engine's command that ended badly; Blocked where the fault is known."""
    program = done.argv[0]
    text = (done.stderr or done.stdout).decode("utf-8", "replace")
    known = fault_of(text, image=image, backend=backend)
    # An engine ends with these codes too, where a program of the image cannot be started.
    if known is None and done.exit_code in (126, 127) and not re.search("daemon|OCI|container", text):
        return Blocked(f"there is no {program} on this host", reason="engine_absent",
                       hint=INSTALL.get(program, f"install {program} on this host"))  # fmt: skip
    command = " ".join(word if len(word) < 80 else "..." for word in done.argv[:3])
    return known or CommandFailed(
        f"`{command} ...` ended with {done.exit_code}: {last_line(text)}", reason="engine_failed"
    )


def last_line(text: str) -> str:
    """The last line that is not empty and not an engine's advertisement for its help."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "--help" not in line]
    return lines[-1][:400] if lines else "it said nothing"


def build_image(backend: BackendName | None) -> str:
    """The command that brings an image to a host."""
    return f"atlas images build {backend or 'BACKEND'}"


def make_cdi(host: HostFacts) -> str:
    """The command that writes the CDI specification anew."""
    return f"install nvidia-container-toolkit, then: {_MAKE_CDI}" if host.nvidia_toolkit is False else _MAKE_CDI


def no_nvidia(host: HostFacts) -> Blocked:
    """Why a host where CUDA was asked for shows no NVIDIA GPU."""
    said = host.nvidia_fault
    if said is None:
        return Blocked("CUDA was asked for and this host has no NVIDIA driver", reason="device_missing",
                       hint="nvidia-smi must list the GPU on the host itself; install its driver")  # fmt: skip
    known = fault_of(said)
    if known is not None:
        return Blocked(f"nvidia-smi on the host: {known.message}", reason=known.reason, hint=known.hint)
    return Blocked(f"nvidia-smi on the host lists no GPU: {last_line(said)}", reason="driver_missing",
                   hint="sudo modprobe nvidia; nvidia-smi")  # fmt: skip


def device_absent(backend: BackendName, engine: EngineFacts, host: HostFacts, said: str | None = None) -> Blocked:
    """Why a container that started found no device of its backend.

    `said` is what torch or the payload gave as its reason.  To be called where the payload ends with
    `no_device`: the result of such a container is never shown as another device's.
    """
    known = fault_of(said or "")
    if known is not None:
        return known
    found = f"the container found no {backend} device{': ' + said if said else ''}"
    if backend == "cuda" and re.search(r"Error 80[34]|forward compatibility", said or ""):
        return Blocked(f"{found}; the CUDA of the image does not fit driver {host.nvidia_driver} of the host",
                       reason="driver_mismatch",
                       hint="update the host's driver, or choose an image with an older CUDA")  # fmt: skip
    if backend == "cuda":
        if not host.nvidia_gpus:
            return no_nvidia(host)
        return Blocked(f"{found}; nvidia-smi on the host lists {len(host.nvidia_gpus)}", reason="nvidia_runtime",
                       hint=_try_nvidia(engine, host))  # fmt: skip
    if backend in ("rocm", "xpu"):
        where = ", ".join(f"{file.path} {file.mode} group {file.gid}" for file in host.files("/dev/dri/renderD"))
        reason = "render_permission" if where else "device_missing"
        return Blocked(f"{found}; the host has {where or 'no render node'}", reason=reason,
                       hint=JOIN_RENDER if where else "ls -l /dev/dri")  # fmt: skip
    return Blocked(found, reason="device_missing", hint=None)


def _try_nvidia(engine: EngineFacts, host: HostFacts) -> str:
    return make_cdi(host) if host.cdi_specs or engine.engine == "podman" else INSTALL_TOOLKIT
