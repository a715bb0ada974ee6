"""What ran and broke, and what could not start: each with the command to type next."""

from __future__ import annotations

import re
from collections.abc import Iterator

import probe_payload
from harness.findings.lookup import Lookup, clip, finding, name, some
from harness.matrix import BROKEN, NOT_READY
from harness.records.payload import CellRecord
from harness.records.view import Finding, ReportCell, TargetView

_DOES = {
    "failed": "fails",
    "wrong": "gives a wrong result",
    "crashed": "crashed",
    "timeout": "did not finish",
}


def broken(lookup: Lookup) -> Iterator[Finding]:
    """Cells that failed, were wrong, crashed or timed out; one sentence for each way of breaking."""
    ways: dict[tuple[str, ...], list[ReportCell]] = {}
    for cell in lookup.report.cells:
        record = cell.cell
        if record.status in BROKEN:
            ways.setdefault((record.status, record.function, record.variant, record.reason or ""), []).append(cell)
    for cells in sorted(ways.values(), key=lambda found: BROKEN.index(found[0].cell.status)):
        first = cells[0]
        does = "does not compile" if _compiling(first.cell) else _DOES[first.cell.status]
        yield finding(
            "broken",
            name(first),
            f" {does} on {lookup.places(cells)}: {_why(first.cell)}.",
            cells,
            detail=_detail(lookup, cells),
            command=first.cell.hint or first.command,
            command_on=some(dict.fromkeys(cell.host for cell in cells)) if first.cell.hint else "",
        )


def _compiling(record: CellRecord) -> bool:
    return record.status == "failed" and record.phase == "compile"


def _why(record: CellRecord) -> str:
    """The measured difference, the signal or the phase; else what the reason code means."""
    found = record.correctness
    if record.status == "wrong" and found and found.max_abs is not None:
        allowed = f" where {_short(found.atol)} is allowed" if found.atol is not None else ""
        return f"off by {_short(found.max_abs)}{allowed}"
    reason = probe_payload.REASONS.get(record.reason or "", record.reason or probe_payload.STATUSES[record.status])
    exit_ = record.exit
    if record.status == "crashed" and exit_ and (exit_.signal or exit_.code is not None):
        reason = f"killed by {exit_.signal}" if exit_.signal else f"it ended with exit code {exit_.code}"
    phase = f" in phase {record.phase}" if record.status in ("crashed", "timeout") and record.phase else ""
    return reason + phase


def _short(value: float) -> str:
    """`3.1e-2`."""
    return re.sub(r"e([+-])0", r"e\1", f"{value:.1e}")


def _detail(lookup: Lookup, cells: list[ReportCell]) -> str | None:
    message = clip(cells[0].cell.message or "")
    if len(cells) > 1 and message:
        return f"{lookup.place(cells[0])} says: {message}"
    return message or None


def not_ready(lookup: Lookup) -> Iterator[Finding]:
    """Hosts, devices and cells that could not take part, each with what mends it."""
    yield from _hosts(lookup)
    yield from _devices(lookup)
    yield from _cells(lookup)


def _hosts(lookup: Lookup) -> Iterator[Finding]:
    ways: dict[tuple[str, ...], list[TargetView]] = {}
    for target in lookup.report.targets:
        outcome = target.outcome
        if outcome.status in NOT_READY:
            key = (outcome.status, outcome.reason or "", outcome.message or "", outcome.hint or "")
            ways.setdefault(key, []).append(target)
    for (status, reason, message, hint), targets in ways.items():
        hosts = [target.host for target in targets]
        names = some(lookup.host(target.host, target.target) for target in targets)
        is_, did = ("is", "did") if len(targets) == 1 else ("are", "did")
        says = {
            "blocked": f" {is_} blocked",
            "unreachable": " could not be reached",
            "timeout": f" {did} not end by the deadline",
            "failed": f" {did} not give a result",
            "cancelled": f" {did} not end: the run was interrupted",
            "not_run": " got no turn",
        }[status]
        why = clip(message) or probe_payload.REASONS.get(reason, reason.replace("_", " "))
        yield finding(
            "not_ready",
            names,
            f"{says}: {why.rstrip('.')}." if why else f"{says}.",
            hosts=hosts,
            detail=None if is_command(hint) else hint or None,
            command=hint if is_command(hint) else f"atlas probe {' '.join(hosts[:20])}",
            command_on=names if status == "blocked" and is_command(hint) else "",
        )


# Words that a line to type begins with; anything else is advice, and no line to paste.
_PROGRAM = re.compile(
    r"(sudo|ssh(-\w+)?|apt(-get)?|dnf|zypper|apk|brew|pip|python[\d.]*|[.~]?/\S+|docker|podman|apptainer|nvidia-\w+|"
    r"atlas|make|export|df|ls|xcode-select|nvidia-ctk|systemctl|usermod|ldconfig) \S"
)


def is_command(hint: str) -> bool:
    """True for a hint that can be pasted into a shell as it stands."""
    return bool(_PROGRAM.match(hint)) and "`" not in hint and ", or " not in hint


def _told(target: TargetView, reason: str | None) -> bool:
    """True where the host as a whole is blocked for that reason: its finding says it once for all."""
    return target.outcome.status == "blocked" and target.outcome.reason == reason


def _devices(lookup: Lookup) -> Iterator[Finding]:
    for target in lookup.report.targets:
        ways: dict[tuple[str, str, str], list[str]] = {}
        for device in target.devices:
            if device.status == "blocked" and not _told(target, device.reason):
                key = (device.reason or "", device.message or "", device.hint or "")
                ways.setdefault(key, []).append(device.device)
        host = lookup.host(target.host, target.target)
        of_target = lookup.by_target.get((target.host, target.target), [])
        for (reason, message, hint), devices in ways.items():
            why = clip(message) or probe_payload.REASONS.get(reason, reason) or "no reason was given"
            yield finding(
                "not_ready",
                f"{host} {some(devices)}",
                f" {'is' if len(devices) == 1 else 'are'} blocked: {why.rstrip('.')}.",
                [cell for cell in of_target if cell.cell.status == "blocked" and cell.cell.device in devices],
                hosts=[target.host],
                detail=hint if hint and not is_command(hint) else None,
                command=hint if is_command(hint) else None,
                command_on=host if is_command(hint) else "",
            )


def _cells(lookup: Lookup) -> Iterator[Finding]:
    """Blocked cells on devices that are themselves fine: a missing compiler, say."""
    ways: dict[tuple[str, ...], list[ReportCell]] = {}
    for cell in lookup.report.cells:
        record, device = cell.cell, lookup.device(cell)
        if _told(lookup.target(cell), record.reason):
            continue
        if record.status == "blocked" and (device is None or device.status != "blocked"):
            ways.setdefault((cell.host, cell.target, record.reason or "", record.hint or ""), []).append(cell)
    for (host, target, reason, hint), cells in ways.items():
        why = probe_payload.REASONS.get(reason, reason) or clip(cells[0].cell.message or "") or "no reason was given"
        place = lookup.host(host, target)
        yield finding(
            "not_ready",
            place,
            f" cannot compile {some(dict.fromkeys(name(cell) for cell in cells))}: {why}.",
            cells,
            detail=" ".join(filter(None, (clip(cells[0].cell.message or ""), "" if is_command(hint) else hint)))
            or None,
            command=hint if is_command(hint) else None,
            command_on=place if is_command(hint) else "",
        )
