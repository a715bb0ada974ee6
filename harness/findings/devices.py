"""One neutral block for each device, in the original probe's words; no device is the special case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import probe_payload
from harness.findings.lookup import Lookup
from harness.matrix import listed
from harness.records.payload import CellRecord
from harness.records.view import Finding, Labelled, ReportCell, Row


def device_blocks(lookup: Lookup) -> Iterator[Finding]:
    """What each device generated, emitted, handed on and fell back from."""
    by_row: dict[tuple[str, str, str], list[ReportCell]] = {}
    for cell in lookup.report.cells:
        by_row.setdefault((cell.host, cell.target, cell.cell.device), []).append(cell)
    for key, row in lookup.rows.items():
        cells = by_row.get(key)
        if cells:
            yield _block(lookup, row, cells)


def _block(lookup: Lookup, row: Row, cells: list[ReportCell]) -> Finding:
    records = [cell.cell for cell in cells]
    kinds = dict.fromkeys(kind for record in records for kind in record.kinds if kind not in probe_payload.CALLED_KINDS)
    device = lookup.devices.get((row.host, row.target, row.device))
    shown = (device and device.name) or row.fact
    subject = f"{lookup.host(row.host, row.target)} {row.device}"
    lines = [
        ("Inductor-generated kernels", listed(probe_payload.KINDS.get(kind, kind) for kind in kinds) or "none"),
        ("Triton emitted here", "yes" if "triton" in kinds else "no"),
        ("handed to an extern library", _titles(records, lambda kind: kind in ("extern", "custom_op"))),
        ("fell back to ATen", _titles(records, lambda kind: kind == "aten_fallback")),
        ("ended otherwise", _otherwise(records)),
    ]
    return Finding(
        id="device",
        group="device",
        subject=subject,
        sentence=f"{subject}{f' ({shown})' if shown else ''}, torch {row.torch}",
        block=tuple(Labelled(label=label, value=value) for label, value in lines if value),
        cells=tuple(cell.key for cell in cells),
        hosts=(row.host,),
    )


def _titles(records: Iterable[CellRecord], wanted: Callable[[str], bool]) -> str:
    names = [record.title or record.function for record in records if any(map(wanted, record.kinds))]
    return ", ".join(dict.fromkeys(names))


def _otherwise(records: Iterable[CellRecord]) -> str:
    names = [
        f"{record.title or record.function} ({record.status.replace('_', ' ')})"
        for record in records
        if record.status not in probe_payload.RAN_STATUSES
    ]
    return ", ".join(dict.fromkeys(names))
