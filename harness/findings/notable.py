"""What is neither broken nor a difference, and still worth a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import probe_payload
from harness.findings.lookup import Lookup, clip, finding, name, some
from harness.matrix import BACKEND_NAMES, counted, listed
from harness.records.payload import CellRecord
from harness.records.view import Finding, ReportCell, TargetView

_QUIET = {
    "eager_fallback": "runs in eager mode instead of compiled",
    "cpu_fallback": "runs on the CPU instead of the device",
    "unsupported": "is not supported",
    "no_graph": "gives nothing to compile",
    "flaky": "ended differently in several attempts",
}


def notable(lookup: Lookup) -> Iterator[Finding]:
    """Agreement first, then what Inductor did not generate, then what the record itself lacks."""
    yield from _agreement(lookup)
    yield from _quiet(lookup)
    yield from _graph_breaks(lookup)
    yield from _aten_fallbacks(lookup)
    yield from _unknown_kinds(lookup)
    yield from _routes(lookup)
    yield from _attempts(lookup)
    for target in lookup.report.targets:
        yield from _record(lookup, target)


def _agreement(lookup: Lookup) -> Iterator[Finding]:
    """Functions whose code is one text on every device of a backend, over at least two hosts."""
    same: dict[tuple[str, str, str], list[ReportCell]] = {}
    for cell in lookup.report.cells:
        backend = lookup.row(cell).backend
        if cell.group and backend:
            same.setdefault((backend, cell.cell.function, cell.cell.variant), []).append(cell)
    alike: dict[tuple[str, frozenset[str]], list[list[ReportCell]]] = {}
    for (on, _, _), cells in same.items():
        hosts = frozenset(cell.host for cell in cells)
        if len(hosts) > 1 and len({cell.group for cell in cells}) == 1:
            alike.setdefault((on, hosts), []).append(cells)
    for (on, hosts), functions in alike.items():
        names = listed(dict.fromkeys(name(cells[0]) for cells in functions))
        have = "has" if len(functions) == 1 else "have"
        each = "" if len(functions) == 1 else " each"
        where = listed(sorted(hosts)) if len(hosts) <= 3 else f"all {len(hosts)} hosts that ran it"
        yield finding(
            "notable",
            names,
            f" {have}{each} identical code on {where} ({BACKEND_NAMES.get(on, on)}).",
            [cell for cells in functions for cell in cells],
            detail="Compared in normal form: ids, paths, hashes, thread counts and device properties masked.",
        )


def _quiet(lookup: Lookup) -> Iterator[Finding]:
    ways: dict[tuple[str, str, str, str], list[ReportCell]] = {}
    for cell in lookup.report.cells:
        record = cell.cell
        if record.status in _QUIET:
            ways.setdefault((record.status, record.function, record.variant, record.reason or ""), []).append(cell)
    for (status, _, _, reason), cells in ways.items():
        why = probe_payload.REASONS.get(reason, reason) or clip(cells[0].cell.message or "")
        sentence = f" {_QUIET[status]} on {lookup.places(cells)}{': ' + why if why else ''}."
        yield finding("notable", name(cells[0]), sentence, cells, detail=clip(cells[0].cell.message or "") or None)


def _having(lookup: Lookup, wanted: Callable[[CellRecord], object]) -> Iterator[list[ReportCell]]:
    """Cells of which something holds, by function and variant."""
    found: dict[tuple[str, str], list[ReportCell]] = {}
    for cell in lookup.report.cells:
        if wanted(cell.cell):
            found.setdefault((cell.cell.function, cell.cell.variant), []).append(cell)
    yield from found.values()


def _graph_breaks(lookup: Lookup) -> Iterator[Finding]:
    for cells in _having(lookup, lambda record: record.graph_breaks):
        record = cells[0].cell
        breaks = counted(max(cell.cell.graph_breaks or 0 for cell in cells), "graph break")
        graphs = counted(len(record.graphs), "graph")
        sentence = f" has {breaks} and compiles to {graphs} on {lookup.places(cells)}."
        yield finding("notable", name(cells[0]), sentence, cells, detail=clip("\n".join(record.break_reasons)) or None)


def _aten_fallbacks(lookup: Lookup) -> Iterator[Finding]:
    operations: dict[str, list[ReportCell]] = {}
    for cell in lookup.report.cells:
        for operation in {call.name for call in cell.cell.calls if call.kind == "aten_fallback"}:
            operations.setdefault(operation, []).append(cell)
    for operation, cells in sorted(operations.items()):
        functions = some(dict.fromkeys(name(cell) for cell in cells))
        backends = dict.fromkeys(BACKEND_NAMES.get(lookup.row(cell).backend or "", "?") for cell in cells)
        places = counted(len({lookup.place(cell) for cell in cells}), "device")
        sentence = f" is not generated: {functions} falls back to ATen on {places} ({some(backends)})."
        yield finding("notable", operation, sentence, cells)


def _unknown_kinds(lookup: Lookup) -> Iterator[Finding]:
    known = set(probe_payload.KINDS) - {"unknown"}
    for cells in _having(lookup, lambda record: set(record.kinds) - known):
        kinds = sorted({kind for cell in cells for kind in cell.cell.kinds if kind not in known})
        where = [f"{k.name} at line {k.line}" for k in cells[0].cell.kernels if k.kind not in known]
        detail = f"On {lookup.place(cells[0])}: {some(where)}." if where else None
        sentence = f" holds code of a generator that is not known here ({some(kinds)}) on {lookup.places(cells)}."
        yield finding("notable", name(cells[0]), sentence, cells, detail=detail)


def _routes(lookup: Lookup) -> Iterator[Finding]:
    for cells in _having(lookup, lambda record: any(route.agrees is False for route in record.routes)):
        record = cells[0].cell
        others = [route.name for route in record.routes if route.agrees is False]
        sentence = f" was captured differently by {some(others)} on {lookup.places(cells)}."
        yield finding("notable", name(cells[0]), sentence, cells, detail=f"The code shown is that of {record.route}.")


def _attempts(lookup: Lookup) -> Iterator[Finding]:
    for cells in _having(lookup, lambda record: record.attempts > 1 and record.status != "flaky"):
        times = max(cell.cell.attempts for cell in cells)
        sentence = f" took {counted(times, 'attempt')} on {lookup.places(cells)}."
        yield finding("notable", name(cells[0]), sentence, cells, detail=clip(cells[0].cell.message or "") or None)


def _record(lookup: Lookup, target: TargetView) -> Iterator[Finding]:
    """What the record of one target lacks, or holds beyond what is understood."""
    outcome, place = target.outcome, lookup.host(target.host, target.target)
    sent, ran = outcome.payload_sha256, target.run.payload_sha256 if target.run else None
    end = target.end
    if outcome.status == "partial" or (end is not None and end.reason):
        why = clip(outcome.message or (end.message if end else "") or (end.reason if end else "") or "")
        because = f": {why.rstrip('.')}" if why else ""
        yield _on(target, place, f" was cut short{because}. The cells that came are shown.")
    if sent and ran and sent != ran:
        yield _on(target, place, f" ran another payload than the one sent: {ran[:12]} instead of {sent[:12]}.")
    if target.unknown_fields:
        fields = some(sorted(target.unknown_fields))
        yield _on(target, place, f" sent fields that this version does not know and leaves out: {fields}.")
    if target.faults:
        number = counted(len(target.faults), "line")
        yield _on(target, place, f" sent {number} that could not be read.", detail=clip(target.faults[0]))
    if outcome.left_behind:
        yield _on(target, place, f" still holds files of this run: {clip(outcome.left_behind)}.")


def _on(target: TargetView, place: str, rest: str, detail: str | None = None) -> Finding:
    return finding("notable", place, rest, hosts=[target.host], detail=detail)
