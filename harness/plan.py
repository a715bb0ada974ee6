"""hosts x targets -> jobs, and why something is skipped.  Pure; `atlas plan` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.inventory import Host, Target
from harness.records.work import Job, PlanEntry, Selection


def plan(hosts: Sequence[Host], selection: Selection) -> tuple[PlanEntry, ...]:
    """One entry a target, in the order of hosts.yaml."""
    return tuple(_entry(host, target, selection) for host in hosts for target in host.targets)


def _entry(host: Host, target: Target, selection: Selection) -> PlanEntry:
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


def jobs(entries: Sequence[PlanEntry]) -> tuple[Job, ...]:
    """The jobs of a plan."""
    return tuple(entry.job for entry in entries if entry.job is not None)
