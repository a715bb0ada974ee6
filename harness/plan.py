"""hosts x targets -> jobs, and why something is skipped.  Pure; `atlas plan` prints it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.records.inventory import Host, Target
from harness.records.work import Job, PlanEntry, Selection


def plan(hosts: Sequence[Host], selection: Selection, named: Collection[str] = ()) -> tuple[PlanEntry, ...]:
    """One entry a target, in the order of hosts.yaml; `named` are the `host/target` words that were asked for."""
    return tuple(_entry(host, target, selection, named) for host in hosts for target in host.targets)


def _entry(host: Host, target: Target, selection: Selection, named: Collection[str]) -> PlanEntry:
    skip = _reason_to_skip(host, target, named)
    if skip:
        return PlanEntry(host=host.name, target=target.name, skip=skip)
    if target.runtime != "bare":
        target = target.model_copy(update={"backends": (target.backend,)})  # its image is made for one
    wanted = tuple(device.split(":")[0] for device in selection.devices)
    devices = selection.devices
    if target.backends and wanted:
        devices = tuple(d for d in selection.devices if d.split(":")[0] in target.backends)
        if not devices:
            looks = ", ".join(target.backends)
            skip = f"hosts.yaml has it look for {looks}; --device asks for {', '.join(selection.devices)}"
            return PlanEntry(host=host.name, target=target.name, skip=skip)
    elif target.backends:
        devices = tuple(target.backends)
    job = Job(host=host, target=target, selection=selection.model_copy(update={"devices": devices}))
    return PlanEntry(host=host.name, target=target.name, job=job)


def _reason_to_skip(host: Host, target: Target, named: Collection[str]) -> str | None:
    """Why this target cannot or must not run, whatever devices are asked for."""
    if not target.enabled and f"{host.name}/{target.name}" not in named:
        return f"enabled: false in hosts.yaml; name it to run it: {host.name}/{target.name}"
    if target.runtime == "bare":
        return None
    if target.backend is None:
        return f"runtime: {target.runtime} needs `backend:`, the kind of image; write cpu, cuda, rocm or xpu"
    if target.backend == "mps":
        return "no container has Metal: macOS shares its GPU with none; give this host a bare target for mps"
    return None


def jobs(entries: Sequence[PlanEntry]) -> tuple[Job, ...]:
    """The jobs of a plan."""
    return tuple(entry.job for entry in entries if entry.job is not None)
