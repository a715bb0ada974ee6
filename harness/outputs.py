"""A report's short forms: the table and sentences for a terminal, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.dialects.visible import one_line
from harness.records.payload import CellRecord, DeviceRecord
from harness.records.view import Report

BAD_CELLS = ("failed", "wrong", "crashed", "timeout", "flaky")


def exit_code(report: Report) -> int:
    """What the process ends with: 1 if it was interrupted, 5 if nothing was selected, else the first of 3, 1, 4, 0."""
    statuses = [target.outcome.status for target in report.targets]
    cells = [entry.cell.status for entry in report.cells]
    if "cancelled" in statuses:  # also before the first cell came: that no host answered is not the hosts' doing
        return 1
    if statuses and all(status == "skipped" for status in statuses):
        return 5
    if not any(status in RAN for status in cells) and not any(status == "skipped" for status in statuses):
        return 3
    if any(status in BAD_CELLS for status in cells) or any(
        s in ("timeout", "failed", "partial", "cancelled", "not_run") for s in statuses
    ):
        return 1
    if "blocked" in cells or any(status in ("blocked", "unreachable") for status in statuses):
        return 4
    return 0


# A cell with one of these came from a host that answered.
RAN = (
    "generated", "mixed", "extern_only", "view_only", "no_graph", "eager_fallback", "cpu_fallback", "unsupported",
    "skipped", *BAD_CELLS,
)  # fmt: skip


def cell_word(cell: CellRecord) -> str:
    """What the terminal's matrix says in a cell: the kinds, or the status where nothing was generated."""
    kinds = "+".join(cell.kinds)
    if cell.status in ("generated", "mixed", "extern_only"):
        return kinds
    return f"{cell.status} ({kinds})" if kinds else cell.status


def matrix_table(report: Report) -> str:
    """The device x function matrix as aligned text."""
    cells = {entry.key: entry.cell for entry in report.cells}
    head = ["host", "device", "torch", *(column.function for column in report.columns)]
    body = []
    targets = Counter(target.host for target in report.targets)
    for row in report.rows:
        place = f"{row.host}/{row.target}" if targets[row.host] > 1 else row.host
        words = [place, row.device or "-", row.torch or "-"]
        if any(row.cells):
            words += [cell_word(cells[key]) if key else "-" for key in row.cells]
        else:
            said = f"{row.status}: {row.blank or ''}"
            words.append(said if len(said) <= 110 else f"{said[:109]}…")
        body.append([one_line(word) for word in words])
    return _aligned(head, body)


def _aligned(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest word; a sentence in the last place of a short row may run on."""
    full = [row for row in body if len(row) == len(head)]
    widths = [max(len(row[i]) for row in [head, *full]) for i in range(len(head))]
    for row in body:
        for i in range(min(3, len(row))):
            widths[i] = max(widths[i], len(row[i]))
    lines = []
    for row in [head, *body]:
        padded = [word.ljust(widths[i]) if i < len(row) - 1 else word for i, word in enumerate(row)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def findings_text(report: Report) -> str:
    """Findings that want a person's hand or eye, each with the line to type, and where.

    A line that a host proposes is shown as its own: nobody here has looked at it.
    """
    theirs = {record.hint for record in _hinting(report)}
    lines = []
    for finding in report.findings:
        if finding.group in ("broken", "not_ready", "changed", "differs"):
            lines.append(f"- {one_line(finding.sentence)}")
            if finding.detail:
                lines.append(f"    {one_line(finding.detail)}")
            if finding.command:
                where = f"on {one_line(finding.command_on)} " if finding.command_on else ""
                source = "  (the host's own words)" if finding.command in theirs else ""
                lines.append(f"    {where}$ {one_line(finding.command)}{source}")
    return "\n".join(lines)


def _hinting(report: Report) -> Iterator[CellRecord | DeviceRecord]:
    """Every record of a host that may say what to type."""
    yield from (entry.cell for entry in report.cells)
    for target in report.targets:
        yield from target.devices


def overview(report: Report) -> str:
    """Title, summary, matrix and findings."""
    parts = [one_line(report.title), one_line(report.summary), "", matrix_table(report)]
    findings = findings_text(report)
    if findings:
        parts += ["", findings]
    return "\n".join(parts)
