"""One run's results -> the merged view: device x function, groups of equal code, a title.

Pure, and linear in cells: code is normalised once for each distinct text, equality is one list of
groups, never a list of partners at each cell, and the table has only so many places.  Findings are
added by harness.findings, which stands above this module.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import probe_payload
from harness.normalise import normal_hash
from harness.records.payload import CellRecord, DeviceRecord, Environment, Result
from harness.records.view import Code, CodeGroup, Column, Report, ReportCell, Row, TargetView
from harness.records.work import JobSummary, Outcome, RunManifest
from harness.wire import lack

Results = Mapping[str, tuple[Outcome, Result | None]]

BROKEN = ("failed", "wrong", "crashed", "timeout")
NOT_READY = ("blocked", "unreachable", "timeout", "failed", "cancelled", "not_run")
# Rows times columns: names come from hosts, and each new one costs a place in every row.
PLACES = 200_000
BACKEND_NAMES = {"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "mps": "MPS"}


class _Merged(NamedTuple):
    """A target with what it reported; `result` is empty, not absent, where nothing came."""

    job: JobSummary
    outcome: Outcome
    result: Result


def build(manifest: RunManifest, results: Results, *, ended: str | None = None) -> Report:
    """The report of a run, without findings.

    `results` maps `host/target` to how that job ended and what came back; a job of the manifest
    that is missing there did not get its turn.  `ended` is ISO 8601 UTC, null for a killed run.
    """
    merged = [_merge(job, results) for job in manifest.jobs]
    normals = {sha: normal_hash(text) for sha, text in code_texts(results).items()}
    cells = [cell for item in merged for cell in _cells(item, normals)]
    columns, left_out = _columns(cells, sum(map(_height, merged)))
    rows = [row for item in merged for row in _rows(item, columns)]
    return Report(
        run=manifest.run,
        harness_version=manifest.harness_version,
        command=manifest.command,
        started=manifest.started,
        ended=ended,
        title=_title(merged),
        summary=_summary(cells, rows, left_out),
        targets=tuple(_target(item) for item in merged),
        columns=columns,
        rows=tuple(rows),
        cells=tuple(cells),
        codes=tuple(_codes(cells, results, normals)),
        groups=tuple(_groups(cells)),
        findings=(),
    )


def code_texts(results: Results) -> dict[str, str]:
    """sha256 -> generated text, each once, over all targets."""
    return {sha: text for _, result in results.values() if result for sha, text in result.artifacts.items()}


def cell_key(host: str, target: str, torch: str | None, cell: CellRecord) -> str:
    """`host/target/device@torch/function~variant`.  The torch version is a host's word: it is cleaned."""
    version = re.sub(r"[^A-Za-z0-9._+-]", "_", torch or "unknown")[:40]
    return f"{host}/{target}/{cell.device}@{version}/{cell.function}~{cell.variant}"


def repeat_command(host: str, target: str, cell: CellRecord) -> str:
    """What a person types on the control machine to run one cell again."""
    place = host if target == "native" else f"{host}/{target}"
    return shlex.join(["atlas", "probe", place, "--device", cell.device, "--function", cell.function])


def _merge(job: JobSummary, results: Results) -> _Merged:
    missing = Outcome(host=job.host, target=job.target, status="not_run", message="the run ended before its turn")
    outcome, result = results.get(f"{job.host}/{job.target}", (missing, None))
    return _Merged(job, outcome, result or Result())


def _target(item: _Merged) -> TargetView:
    job, outcome, result = item
    return TargetView(
        host=job.host,
        target=job.target,
        transport=job.transport,
        groups=job.groups,
        outcome=outcome,
        run=result.run,
        environment=result.environment,
        devices=tuple(result.devices),
        end=result.end,
        unknown_fields=result.unknown_fields,
        faults=tuple(result.faults),
    )


def _torch(result: Result) -> str | None:
    return result.environment.torch_version if result.environment else None


def _latest(result: Result) -> list[CellRecord]:
    """A cell that was run again is written again; its last record counts, at its first place."""
    by_name = {(cell.device, cell.function, cell.variant): cell for cell in result.cells}
    return list(by_name.values())


def _cells(item: _Merged, normals: Mapping[str, str]) -> Iterable[ReportCell]:
    host, target = item.job.host, item.job.target
    for cell in _latest(item.result):
        hashes = [normals.get(graph.artifact) for graph in cell.graphs]
        # Without every text nothing can be said about equality.
        known = tuple(value for value in hashes if value is not None)
        normal = known if len(known) == len(hashes) else ()
        yield ReportCell(
            key=cell_key(host, target, _torch(item.result), cell),
            host=host,
            target=target,
            cell=cell,
            command=repeat_command(host, target, cell),
            normal=normal,
            group=_group_id(normal) if normal else None,
        )


def _group_id(normal: tuple[str, ...]) -> str:
    return hashlib.sha256("".join(normal).encode()).hexdigest()[:16]


def _groups(cells: Iterable[ReportCell]) -> Iterable[CodeGroup]:
    members: dict[str, list[ReportCell]] = {}
    for cell in cells:
        if cell.group:
            members.setdefault(cell.group, []).append(cell)
    for group, equal in members.items():
        yield CodeGroup(id=group, normal=equal[0].normal, cells=tuple(cell.key for cell in equal))


def _columns(cells: Iterable[ReportCell], rows: int) -> tuple[tuple[Column, ...], int]:
    """The payload's own functions in the payload's order, then others as they were first seen.

    Of more than there is room for, those that the fewest hosts have get no column; second, how many.
    """
    known = {name: index for index, name in enumerate(probe_payload.FUNCTIONS)}
    titles: dict[tuple[str, str], str] = {}
    hosts: dict[tuple[str, str], set[str]] = {}
    for entry in cells:
        name = entry.cell.function, entry.cell.variant
        titles.setdefault(name, entry.cell.title or entry.cell.function)
        hosts.setdefault(name, set()).add(entry.host)
    room = max(len(known), PLACES // max(rows, 1))
    kept = set(sorted(titles, key=lambda name: -len(hosts[name]))[:room])
    ordered = sorted((name for name in titles if name in kept), key=lambda name: known.get(name[0], len(known)))
    columns = tuple(Column(function=name[0], variant=name[1], title=titles[name]) for name in ordered)
    return columns, len(titles) - len(columns)


def _names(result: Result) -> Iterable[str]:
    """Devices that have a row: those that the host described, then those that only cells name."""
    return dict.fromkeys([*(device.device for device in result.devices), *(cell.device for cell in result.cells)])


def _height(item: _Merged) -> int:
    """How many rows a target has."""
    return len(list(_names(item.result))) or 1


def _rows(item: _Merged, columns: tuple[Column, ...]) -> Iterable[Row]:
    """One row for each device that the host reported; one for the host if it reported none."""
    job, outcome, result = item
    torch = _torch(result)
    keys: dict[str, dict[tuple[str, str], str]] = {}
    for cell in _latest(result):
        by_column = keys.setdefault(cell.device, {})
        by_column[cell.function, cell.variant] = cell_key(job.host, job.target, torch, cell)
    devices = {device.device: device for device in result.devices}
    for name in _names(result):
        device = devices.get(name)
        found = tuple(keys.get(name, {}).get((column.function, column.variant)) for column in columns)
        yield Row(
            host=job.host,
            target=job.target,
            device=name,
            backend=device.backend if device else None,
            fact=_fact(device, result.environment),
            torch=torch or "unknown",
            status=device.status if device else "undescribed",
            cells=found,
            blank=_blank(device, outcome, result, name in keys and not any(found))
            if None in found or not found
            else None,
        )
    if not devices and not keys:
        yield Row(
            host=job.host,
            target=job.target,
            device="",
            backend=None,
            fact=outcome.status,
            torch=torch or "",
            status=outcome.status,
            cells=(None,) * len(columns),
            blank=outcome.message or f"no device was reported; the host is {outcome.status}",
        )


def _fact(device: DeviceRecord | None, environment: Environment | None) -> str:
    """The one fact worth a column: what Inductor generates for depends on it most."""
    if device is None:
        return ""
    if device.status != "ok":
        return device.status
    if device.backend == "cpu":
        isa = environment and (environment.vector_isa or environment.torch_cpu_capability)
        return isa or device.capability or ""
    return device.capability or device.name or ""


def _blank(device: DeviceRecord | None, outcome: Outcome, result: Result, no_column: bool) -> str:
    """Why a row lacks cells; `no_column` if it has some, and none of their functions has a column."""
    if no_column:
        return "its cells are below: the table has no column for their functions"
    if device is not None and device.status != "ok":
        return device.message or probe_payload.REASONS.get(device.reason or "", f"the device is {device.status}")
    if result.end is None:
        return outcome.message or "the result was cut short before this cell"
    return lack(result) or result.end.message or "this target did not run it"


def _codes(cells: Iterable[ReportCell], results: Results, normals: Mapping[str, str]) -> Iterable[Code]:
    """Each text that a cell refers to, in the order of the cells."""
    texts = code_texts(results)
    seen: set[str] = set()
    for graph in (graph for cell in cells for graph in cell.cell.graphs):
        sha = graph.artifact
        if sha in seen or sha not in texts:
            continue
        seen.add(sha)
        language = "cpp" if graph.wrapper == "cpp" else "python"
        yield Code(sha256=sha, normal=normals[sha], lines=len(texts[sha].splitlines()), language=language)


# ------------------------------------------------------------------ sentences


def counted(number: int, noun: str) -> str:
    """`1 cell`, `3 cells`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = list(words) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def _title(merged: list[_Merged]) -> str:
    """`7 of 9 hosts answered; 1 blocked, 1 unreachable.`  A host answered if one of its targets did."""
    by_host: dict[str, list[str]] = {}
    for item in merged:
        by_host.setdefault(item.job.host, []).append(_state(item))
    answered = [host for host, states in by_host.items() if {"answered", "partial"} & set(states)]
    cut = sum("answered" not in by_host[host] for host in answered)
    others = Counter(states[0] for host, states in by_host.items() if host not in set(answered))
    rest = ", ".join(f"{number} {_words(status)}" for status, number in others.items())
    if len(by_host) == 1:
        (host,) = by_host
        state = rest.split(" ", 1)[-1]
        return f"{host} answered{' in part' if cut else ''}." if answered else f"{host} did not answer: {state}."
    part = f" ({cut} in part)" if cut else ""
    return f"{len(answered)} of {len(by_host)} hosts answered{part}{'; ' + rest if rest else ''}."


def _state(item: _Merged) -> str:
    """How a target took part; one that answered that none of its devices can be used is blocked."""
    states = {device.status for device in item.result.devices}
    return "blocked" if item.outcome.status == "answered" and states == {"blocked"} else item.outcome.status


def _words(status: str) -> str:
    return status.replace("_", " ")


def _summary(cells: list[ReportCell], rows: list[Row], left_out: int) -> str:
    """What is broken, then what is generated where."""
    if not cells:
        return "No cell has a result."
    broken = sum(cell.cell.status in BROKEN for cell in cells)
    are = "is" if broken == 1 else "are"
    first = f"{counted(broken, 'cell')} {are} broken." if broken else "No cell is broken."
    idle: Counter[str] = Counter(cell.cell.status for cell in cells)
    for status, words in (("blocked", "blocked"), ("not_run", "without a turn")):
        if idle[status]:
            first += f" {idle[status]} of {counted(len(cells), 'cell')} {'is' if idle[status] == 1 else 'are'} {words}."
    more = f" {counted(left_out, 'function')} more than the table holds {'has' if left_out == 1 else 'have'} no column."
    return f"{first} {_generated(cells, rows)}{more if left_out else ''}"


def _generated(cells: list[ReportCell], rows: list[Row]) -> str:
    """`Where Inductor generates code it is Triton on CUDA and C++ on CPU.`"""
    # A device without a record, or with one that says that nothing can run there, is no witness.
    backends = {(row.host, row.target, row.device): row.backend for row in rows if row.status == "ok"}
    kinds: dict[str, Counter[str]] = {}
    for cell in cells:
        backend = backends.get((cell.host, cell.target, cell.cell.device))
        if backend:
            written = {k: n for k, n in cell.cell.kinds.items() if k not in probe_payload.CALLED_KINDS}
            kinds.setdefault(backend, Counter()).update(written)
    phrases = [
        f"{listed(probe_payload.KINDS.get(kind, kind).split(' / ')[0] for kind, _ in found.most_common())}"
        f" on {BACKEND_NAMES[backend]}"
        for backend, found in kinds.items()
        if found
    ]
    return f"Where Inductor generates code it is {listed(phrases)}." if phrases else "Inductor generated no kernel."
