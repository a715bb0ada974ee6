"""Backends: what each is called, what it needs of a host, and which ones a host has.  A table, not classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.records.base import BackendName
from harness.records.containers import HostFacts

INTEL, AMD = "0x8086", "0x1002"


@dataclass(frozen=True)
class Backend:
    """One row: torch's word for the device and what a container of it needs.

    `environment` is set inside; `refused` says why there is no container of it.
    """

    torch_device: str
    device_files: tuple[str, ...] = ()
    driver_fact: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    refused: str | None = None


# An engine whose default runtime is NVIDIA's gives every container all GPUs: only `void` keeps them out.
_NO_NVIDIA = {"NVIDIA_VISIBLE_DEVICES": "void"}

BACKENDS: Mapping[BackendName, Backend] = {
    "cpu": Backend("cpu", environment=_NO_NVIDIA),
    # `utility` brings nvidia-smi, which names the driver and the MIG slices.
    "cuda": Backend("cuda", driver_fact="nvidia_gpus", environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}),
    "rocm": Backend("cuda", ("/dev/kfd", "/dev/dri"), environment=_NO_NVIDIA),
    "xpu": Backend("xpu", ("/dev/dri",), environment=_NO_NVIDIA),
    "mps": Backend("mps", refused="a container on macOS is Linux without Metal: probe mps with runtime: bare"),
}


@dataclass(frozen=True)
class CudaBuild:
    """A CUDA build of torch: the oldest driver that it runs on and the capabilities that it has code for."""

    name: str
    driver: int
    lowest: tuple[int, int]
    highest: tuple[int, int]


# Newest first.  CUDA 13 dropped everything before Turing; 12.6 has no code for Blackwell.
CUDA_BUILDS = (
    CudaBuild("cu130", 580, (7, 5), (12, 1)),
    CudaBuild("cu126", 525, (5, 0), (9, 0)),
)


@dataclass(frozen=True)
class Choice:
    """A backend that fits a host, why, and for CUDA the build (None where none fits: `why` says so)."""

    backend: BackendName
    why: str
    cuda_build: str | None = None


def choose_backends(facts: HostFacts) -> tuple[Choice, ...]:
    """The backends that `backend: auto` takes on this host, the CPU first, each with its reason."""
    chosen = [Choice("cpu", "every host has a CPU")]
    if facts.nvidia_gpus or facts.nvidia_fault:
        chosen.append(_cuda(facts))
    if facts.files("/dev/kfd"):
        chosen.append(Choice("rocm", f"/dev/kfd is there, {_counted(len(facts.render_nodes(AMD)), 'render node')}"))
    intel = [node.path for node in facts.render_nodes(INTEL) if node.vendor == INTEL]
    if intel:
        chosen.append(Choice("xpu", f"{', '.join(intel)} {'is' if len(intel) == 1 else 'are'} of an Intel GPU"))
    return tuple(chosen)


def _cuda(facts: HostFacts) -> Choice:
    if not facts.nvidia_gpus:
        return Choice("cuda", f"an NVIDIA driver is there, but: {facts.nvidia_fault}")
    seen = f"{_counted(len(facts.nvidia_gpus), 'NVIDIA GPU')} ({facts.nvidia_gpus[0].name})"
    capabilities = sorted(_pair(gpu.capability) for gpu in facts.nvidia_gpus if gpu.capability)
    driver = int((facts.nvidia_driver or "0").partition(".")[0] or 0)
    if not capabilities or not driver:
        return Choice("cuda", f"{seen}; driver or capability unknown, so the newest build", CUDA_BUILDS[0].name)
    runs = [build for build in CUDA_BUILDS if build.driver <= driver]
    # The lowest capability decides: a build without code for it loses a GPU for good, while a newer
    # GPU is only one driver update away from the newer build.
    fits = [build for build in runs if build.lowest <= capabilities[0] <= build.highest]
    fits.sort(key=lambda build: build.highest < capabilities[-1])
    known = f"{seen}, driver {facts.nvidia_driver}, lowest capability {capabilities[0][0]}.{capabilities[0][1]}"
    if fits:
        return Choice("cuda", f"{known}: {fits[0].name} covers both", fits[0].name)
    wanted = [build for build in CUDA_BUILDS if build.lowest <= capabilities[0] <= build.highest]
    if not wanted:
        return Choice("cuda", f"{known}: no build of torch has code for it")
    return Choice("cuda", f"{known}: update the driver to {min(build.driver for build in wanted)} or newer")


def _pair(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
