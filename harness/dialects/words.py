"""Facts and figures in the words of the report: labels, units, one sentence for a cell."""

from __future__ import annotations

import datetime
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import probe_payload
from harness.records.containers import ContainerFacts
from harness.records.payload import CellRecord, Correctness, DeviceRecord, Environment
from harness.records.view import TargetView


class Pair(NamedTuple):
    """A label and its value."""

    label: str
    value: str


# Field of Environment -> label.  Every fact that the record can hold is named here; a test counts.
_ENVIRONMENT = {
    "torch_version": "torch",
    "torch_git": "torch git",
    "torch_build": "torch build",
    "torch_build_version": "build version",
    "torch_default_backend": "torch.compile backend",
    "torch_threads": "threads",
    "torch_interop_threads": "inter-op threads",
    "torch_cpu_capability": "torch CPU capability",
    "triton_version": "Triton",
    "python_version": "Python",
    "python_implementation": "Python implementation",
    "python_executable": "Python executable",
    "os": "OS",
    "kernel": "kernel",
    "arch": "architecture",
    "machine_model": "machine",
    "cpu_model": "CPU",
    "cpu_count": "CPUs",
    "cpu_granted": "cores granted",
    "memory_bytes": "memory",
    "memory_limit_bytes": "memory limit",
    "vector_isa": "vector ISA",
    "cxx": "C++ compiler",
    "cxx_version": "C++ compiler version",
    "fingerprint": "fingerprint",
}
_DEVICE = {
    "name": "name",
    "capability": "capability",
    "memory_bytes": "memory",
    "driver": "driver",
    "uuid": "UUID",
    "compute_units": "compute units",
    "warp_size": "warp size",
    "shared_memory_bytes": "shared memory",
    "mig_parent": "MIG parent",
    "mig_slice": "MIG slice",
}


def plural(number: int, noun: str) -> str:
    """`1 cell`, `3 cells`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1: `48 KiB`, `15.5 GiB`."""
    value, unit = float(number), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.1f}".removesuffix(".0") + f" {unit}"


def when(stamp: str) -> str:
    """`30 Nov 2026, 09:14 UTC`; a stamp of another form stays as it is."""
    try:
        moment = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return stamp
    utc = moment.astimezone(datetime.timezone.utc) if moment.tzinfo else moment
    return f"{utc.day} {utc:%b %Y, %H:%M} UTC"


def environment_facts(environment: Environment) -> tuple[Pair, ...]:
    """Every fact, in a fixed order; an unknown one says why it is unknown."""
    backends = (
        Pair(f"{backend.name} available", f"{backend.available}{_because(backend.reason)}")
        for backend in environment.backends
    )
    covers = environment.fingerprint_covers
    return (
        *_known(environment.model_dump(include=set(_ENVIRONMENT)), _ENVIRONMENT, environment.unknown),
        *([Pair("fingerprint covers", ", ".join(covers))] if covers else []),
        *(Pair(f"start-up: {what.replace('_', ' ')}", f"{took:g} s") for what, took in environment.startup.items()),
        *backends,
        *(Pair(f"set: {name}", value) for name, value in environment.env_set.items()),
        *(Pair(f"cleared: {name}", value) for name, value in environment.env_cleared.items()),
    )


def device_facts(device: DeviceRecord) -> tuple[Pair, ...]:
    """What is known about one device; facts that its kind does not have are left out."""
    facts = device.model_dump(include=set(_DEVICE))
    asked = {name: label for name, label in _DEVICE.items() if facts[name] is not None or name in device.unknown}
    return tuple(_known(facts, asked, device.unknown))


def _known(facts: Mapping[str, object], labels: Mapping[str, str], unknown: Mapping[str, str]) -> Iterable[Pair]:
    for name, label in labels.items():
        value = facts[name]
        if value is None:
            yield Pair(label, f"unknown{_because(unknown.get(name, 'not reported'))}")
        elif name.endswith("_bytes") and isinstance(value, int):
            yield Pair(label, size(value))
        else:
            yield Pair(label, f"{value:g}" if isinstance(value, float) else str(value))
    for name in unknown.keys() - labels.keys():
        yield Pair(name, f"unknown{_because(unknown[name])}")


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def source_facts(target: TargetView) -> tuple[Pair, ...]:
    """Where this target's figures come from: way, times, command, payload."""
    outcome, run, end = target.outcome, target.run, target.end
    pairs = (
        ("reached by", target.transport),
        ("groups", ", ".join(target.groups)),
        ("state", outcome.status + _because(None if outcome.reason == outcome.status else outcome.reason)),
        ("message", outcome.message),
        ("started", outcome.started or (run.started if run else None)),
        ("ended", outcome.ended or (end.ended if end else None)),
        ("command", shlex.join(outcome.argv or (tuple(run.argv) if run else ()))),
        ("payload sent", outcome.payload_sha256),
        ("payload that ran", run.payload_sha256 if run else None),
        ("payload version", run.payload_version if run else None),
        ("result file", outcome.result_sha256),
        *_container(outcome.container),
        ("end", _end(target)),
        ("unknown fields", ", ".join(f"{name} ({n})" for name, n in sorted(target.unknown_fields.items()))),
        ("refused lines", "; ".join(target.faults[:10])),
        ("left behind", outcome.left_behind),
    )
    return tuple(Pair(label, value) for label, value in pairs if value)


def _container(facts: ContainerFacts | None) -> tuple[tuple[str, str | None], ...]:
    if facts is None:
        return ()
    engine = f"{facts.engine} {facts.engine_version}{', rootless' if facts.rootless else ''}"
    return (
        ("container", f"{engine}, as {facts.user}, for {facts.backend}"),
        ("image", facts.image),
        ("image ID", facts.image_id),
        ("repo digest", facts.repo_digest or "none: no registry gave this image"),
        ("container flags", shlex.join(facts.flags)),
        ("container notes", "; ".join(facts.notes)),
    )


def _end(target: TargetView) -> str | None:
    if target.end is None:
        return "no end record: the result was cut short" if target.run else None
    return plural(target.end.cells, "cell") + _because(target.end.reason)


def numbers(found: Correctness) -> tuple[Pair, ...]:
    """The comparison with eager: verdict, differences, what is allowed."""
    pairs = (
        ("verdict", found.verdict.replace("_", " ")),
        ("largest difference", _figure(found.max_abs)),
        ("largest relative difference", _figure(found.max_rel)),
        ("allowed, absolute", _figure(found.atol)),
        ("allowed, relative", _figure(found.rtol)),
        ("message", found.message),
    )
    return tuple(Pair(label, value) for label, value in pairs if value is not None)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def sentence(cell: CellRecord) -> str:
    """`Inductor generated 1 C++ kernel, fusing 3 operations, and called aten.sort once.`"""
    if cell.status not in ("generated", "mixed", "extern_only"):
        known = probe_payload.STATUSES.get(cell.status, cell.status.replace("_", " "))
        return f"{known[:1].upper()}{known[1:]}."
    kinds = Counter(kernel.kind for kernel in cell.kernels)
    written = [plural(n, f"{probe_payload.KINDS.get(k, k).split(' / ')[0]} kernel") for k, n in kinds.items()]
    fused = sum(len(kernel.operations) for kernel in cell.kernels)
    called = [call.name + (f" ({call.count} times)" if call.count > 1 else "") for call in cell.calls]
    generated = f"Inductor generated {_and(written)}" if written else "Inductor generated no kernel"
    fusing = f", fusing {plural(fused, 'operation')}" if fused > 1 else ""
    calling = f" {'and' if written else 'but'} called {_and(called[:4])}" if called else ""
    more = f" and {len(called) - 4} more" if len(called) > 4 else ""
    return f"{generated}{fusing}{',' if fusing and calling else ''}{calling}{more}."


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
