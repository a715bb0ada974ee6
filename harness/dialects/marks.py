"""Letter, word and colour of a cell: colour never stands alone.

A filled mark ran here, in this run; an outline is a host or cell that was not ready; solid red is
broken; grey is nothing to see.  A mixed cell shows the letters of its parts: its ground is what
was generated, its foot what was called.
"""

from __future__ import annotations

from collections.abc import Iterable

import probe_payload
from harness.records.base import Record
from harness.records.payload import CellRecord
from harness.records.view import Report


class Mark(Record):
    """What stands in a cell.  `css` and `foot` are class names made here, never from a host."""

    letter: str
    word: str
    css: str
    foot: str = ""
    spoken: str


class Legend(Record):
    """A mark and how many cells show it."""

    mark: Mark
    count: int


# kind -> (letter, word, class).  A generator without a colour of its own has a letter pair on plain ground.
_KINDS = {
    "triton": ("T", "triton", "k-triton"),
    "cpp": ("C", "cpp", "k-cpp"),
    "metal": ("M", "metal", "k-metal"),
    "extern": ("E", "extern", "k-extern"),
    "aten_fallback": ("A", "ATen", "k-aten"),
    "custom_op": ("Op", "custom op", "k-other"),
    "cutlass": ("Cu", "cutlass", "k-other"),
    "ck": ("Ck", "ck", "k-other"),
    "halide": ("Ha", "halide", "k-other"),
    "cutedsl": ("Cd", "cutedsl", "k-other"),
    "pallas": ("Pa", "pallas", "k-other"),
    "nv_universal_gemm": ("Nv", "nv gemm", "k-other"),
    "flydsl": ("Fl", "flydsl", "k-other"),
    "unknown": ("?", "unknown", "k-other"),
}
_STATUSES = {
    "failed": ("F", "failed", "k-bad"),
    "wrong": ("W", "wrong", "k-bad"),
    "crashed": ("K", "crashed", "k-bad"),
    "timeout": ("H", "timeout", "k-bad"),
    "flaky": ("Y", "flaky", "k-block"),
    "blocked": ("B", "blocked", "k-block"),
    "unreachable": ("R", "unreachable", "k-block"),
    "unsupported": ("U", "unsupported", "k-none"),
    "eager_fallback": ("G", "eager", "k-none"),
    "cpu_fallback": ("P", "CPU ran", "k-none"),
    "view_only": ("V", "view", "k-none"),
    "no_graph": ("N", "no graph", "k-none"),
    "skipped": ("S", "skipped", "k-none"),
    "not_run": ("–", "not run", "k-none"),  # noqa: RUF001
}
# Of a host as a whole; other words are those of cells.
_OUTCOMES = {"failed": "k-block", "timeout": "k-block", "cancelled": "k-block"}
_FEET = {"extern": "foot-extern", "aten_fallback": "foot-aten", "custom_op": "foot-extern"}
_LETTERS_SHOWN = 3


def kind_mark(kind: str) -> Mark:
    """The mark of one kind; a kind that is not known here counts as unknown."""
    letter, word, css = _KINDS.get(kind, _KINDS["unknown"])
    return Mark(letter=letter, word=word, css=css, spoken=probe_payload.KINDS.get(kind, "unknown generator"))


def status_mark(status: str) -> Mark:
    """The mark of a status, of a cell or of a whole host."""
    letter, word, css = _STATUSES.get(status, ("?", status.replace("_", " "), "k-none"))
    spoken = probe_payload.STATUSES.get(status, status.replace("_", " "))
    return Mark(letter=letter, word=word, css=css, spoken=f"{word}: {spoken}")


def outcome_mark(status: str) -> Mark:
    """The mark of a row that has no cells: a host that failed is not ready, not a broken cell."""
    mark = status_mark(status)
    return mark.model_copy(update={"css": _OUTCOMES.get(status, mark.css), "spoken": mark.word})


def cell_mark(cell: CellRecord) -> Mark:
    """The kind where code was generated or called, else the status."""
    kinds = _ordered(cell.kinds)
    if cell.status not in ("generated", "mixed", "extern_only"):
        return status_mark(cell.status)
    if len(kinds) < 2:
        return kind_mark(kinds[0] if kinds else cell.kind or "unknown")
    marks = [kind_mark(kind) for kind in kinds]
    foot = next((_FEET[kind] for kind in kinds[1:] if kind in _FEET), "")
    return Mark(
        letter="".join(mark.letter for mark in marks[:_LETTERS_SHOWN]),
        word="mixed",
        css=marks[0].css,
        foot=foot,
        spoken="mixed: " + " + ".join(mark.spoken for mark in marks),
    )


def _ordered(kinds: dict[str, int]) -> list[str]:
    """Generated kinds first, the most frequent first."""
    return sorted(kinds, key=lambda kind: (kind in probe_payload.CALLED_KINDS, -kinds[kind], kind))


def legend(report: Report) -> tuple[Legend, ...]:
    """Each mark of the report with its number of cells: kinds first, then statuses, in a fixed order."""
    order = [word for _, word, _ in _KINDS.values()] + ["mixed"] + [word for _, word, _ in _STATUSES.values()]
    marks: dict[str, Mark] = {}
    counts: dict[str, int] = {}
    for mark in _shown(report):
        marks.setdefault(mark.word, mark)
        counts[mark.word] = counts.get(mark.word, 0) + 1
    if "mixed" in marks:
        spoken = "mixed: ground was generated, foot was called"
        marks["mixed"] = marks["mixed"].model_copy(update={"spoken": spoken})
    words = sorted(marks, key=lambda word: order.index(word) if word in order else len(order))
    return tuple(Legend(mark=marks[word], count=counts[word]) for word in words)


def _shown(report: Report) -> Iterable[Mark]:
    for cell in report.cells:
        yield cell_mark(cell.cell)
    for row in report.rows:
        if not any(row.cells):
            yield outcome_mark(row.status)
