"""Report -> Page: everything that a template shows, in its order, already in words.

Templates only place and escape.  Whatever two dialects must agree on is decided here: numbering
of cells and listings, which text stands for a group of equal ones, which words name a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import probe_payload
from harness.dialects.listing import Listing, listing
from harness.dialects.marks import Legend, Mark, cell_mark, kind_mark, legend, outcome_mark
from harness.dialects.words import Pair, device_facts, environment_facts, numbers, plural, sentence, source_facts, when
from harness.records.base import Record
from harness.records.payload import DeviceRecord, Evidence
from harness.records.view import Code, Finding, Report, ReportCell, Row, TargetView

# Above these the page says where the rest lies instead of growing without end.
MAX_CELLS = 1200
MAX_CODE_CHARACTERS = 3_000_000
EQUAL_SHOWN = 12

_GROUPS = (
    ("broken", "Broken"),
    ("not_ready", "Not ready"),
    ("changed", "Changed"),
    ("differs", "Differs"),
    ("notable", "Notable"),
)


class CellLink(Record):
    """A cell as others point to it; `number` is null where its details were left out."""

    key: str
    label: str
    number: int | None


class FindingView(Record):
    finding: Finding
    cells: tuple[CellLink, ...]


class FindingGroup(Record):
    title: str
    count: str
    findings: tuple[FindingView, ...]


class MatrixCell(Record):
    """A place in the matrix; without `mark` it is blank, and the row says why."""

    mark: Mark | None = None
    link: CellLink | None = None


class MatrixRow(Record):
    row: Row
    first: bool
    place: str
    cells: tuple[MatrixCell, ...]
    whole: Mark | None = None


class EvidenceView(Record):
    """A deciding line; `listing` is the code part where it can be pointed to."""

    evidence: Evidence
    kind: str
    listing: int | None


class GraphView(Record):
    """One graph of a cell and the listing that shows its code, if its text is at hand."""

    index: int
    role: str
    lines: int
    sha256: str
    listing: int | None


class CellView(Record):
    number: int
    entry: ReportCell
    place: str
    title: str
    mark: Mark
    kind: str
    sentence: str
    reason: str
    equal: tuple[CellLink, ...]
    equal_more: int
    graphs: tuple[GraphView, ...]
    evidence: tuple[EvidenceView, ...]
    correctness: tuple[Pair, ...]
    run: tuple[Pair, ...]


class CodeView(Record):
    """A distinct code: one text for all that are equal in normal form."""

    number: int
    sha256: str
    language: str
    lines: int
    texts: int
    deciding: int
    cells: tuple[CellLink, ...]
    cells_more: int
    listing: Listing | None


class DeviceView(Record):
    device: DeviceRecord
    facts: tuple[Pair, ...]


class HostView(Record):
    target: TargetView
    place: str
    mark: Mark
    source: tuple[Pair, ...]
    environment: tuple[Pair, ...]
    devices: tuple[DeviceView, ...]


class Page(Record):
    report: Report
    facts: tuple[Pair, ...]
    groups: tuple[FindingGroup, ...]
    devices: tuple[FindingView, ...]
    legend: tuple[Legend, ...]
    matrix: tuple[MatrixRow, ...]
    cells: tuple[CellView, ...]
    cells_left_out: int
    codes: tuple[CodeView, ...]
    hosts: tuple[HostView, ...]


class _Codes:
    """Which listing shows which text: one for each normal form, in the order of the report."""

    def __init__(self, report: Report, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.by_sha = {code.sha256: code for code in report.codes}
        self.members: dict[str, list[Code]] = {}
        for code in report.codes:
            self.members.setdefault(code.normal, []).append(code)
        self.numbers = {normal: number for number, normal in enumerate(self.members, 1)}
        self.shown = {normal: self._representative(codes) for normal, codes in self.members.items()}
        self.lines: dict[str, list[str]] = {}

    def _representative(self, codes: list[Code]) -> Code:
        return next((code for code in codes if code.sha256 in self.texts), codes[0])

    def number(self, sha256: str) -> int | None:
        code = self.by_sha.get(sha256)
        return self.numbers[code.normal] if code else None

    def points_to(self, sha256: str, evidence: Evidence) -> int | None:
        """The listing whose line of that number is the deciding one: equal texts may count lines differently."""
        code = self.by_sha.get(sha256)
        shown = self.shown[code.normal].sha256 if code else ""
        if code is None or shown not in self.texts:
            return None
        lines = self.lines.setdefault(shown, self.texts[shown].split("\n"))
        at = evidence.line - 1
        return self.numbers[code.normal] if at < len(lines) and lines[at].strip()[:200] == evidence.text else None


def page(report: Report, texts: Mapping[str, str]) -> Page:
    """Everything that a dialect shows of a report; `texts` maps sha256 to generated text."""
    codes = _Codes(report, texts)
    several = {target.host for target in report.targets if target.target != "native"}
    links = {
        cell.key: _link(cell, number if number <= MAX_CELLS else None, several)
        for number, cell in enumerate(report.cells, 1)
    }
    shown = report.cells[:MAX_CELLS]
    titles = {(column.function, column.variant): column.title for column in report.columns}
    equal = {group.id: group.cells for group in report.groups}
    cells = tuple(_cell(entry, number, titles, several, equal, links, codes) for number, entry in enumerate(shown, 1))
    return Page(
        report=report,
        facts=_facts(report),
        groups=tuple(_finding_groups(report, links)),
        devices=tuple(_finding(finding, links) for finding in report.findings if finding.group == "device"),
        legend=legend(report),
        matrix=tuple(_matrix(report, links, several)),
        cells=cells,
        cells_left_out=len(report.cells) - len(shown),
        codes=tuple(_code_views(report, codes, links)),
        hosts=tuple(_host(target, several) for target in report.targets),
    )


def _place(host: str, target: str, several: set[str]) -> str:
    return f"{host}/{target}" if host in several else host


def _link(entry: ReportCell, number: int | None, several: set[str]) -> CellLink:
    place, cell = _place(entry.host, entry.target, several), entry.cell
    return CellLink(key=entry.key, label=f"{place} {cell.device} {cell.function} {cell.variant}", number=number)


def _facts(report: Report) -> tuple[Pair, ...]:
    # Without the build: 2.13.0+cpu and 2.13.0+cu126 are one torch to a reader; hosts show it in full.
    torches = sorted({row.torch.split("+")[0] for row in report.rows if row.torch and row.torch != "unknown"})
    devices = sum(bool(row.device) for row in report.rows)
    distinct = len({code.normal for code in report.codes})
    texts = plural(len(report.codes), "text")
    return (
        Pair(label="Run", value=report.run),
        Pair(label="Started", value=when(report.started)),
        Pair(label="Ended", value=when(report.ended) if report.ended else "the run was cut short"),
        Pair(label="torch", value=", ".join(torches) or "none reported"),
        Pair(
            label="Matrix",
            value=f"{plural(devices, 'device')}, {plural(len(report.columns), 'function')}, "
            f"{plural(len(report.cells), 'cell')}",
        ),
        Pair(label="Code", value=f"{texts}, {distinct} distinct"),
    )


def _finding_groups(report: Report, links: Mapping[str, CellLink]) -> Iterable[FindingGroup]:
    for name, title in _GROUPS:
        found = [finding for finding in report.findings if finding.group == name]
        if not found:
            continue
        cells = {key for finding in found for key in finding.cells}
        hosts = {host for finding in found for host in finding.hosts}
        count = plural(len(hosts), "host") if name == "not_ready" else plural(len(cells), "cell")
        views = tuple(_finding(finding, links) for finding in found)
        yield FindingGroup(title=title, count=count if cells or name == "not_ready" else "", findings=views)


def _finding(finding: Finding, links: Mapping[str, CellLink]) -> FindingView:
    return FindingView(finding=finding, cells=tuple(links[key] for key in finding.cells if key in links))


def _matrix(report: Report, links: Mapping[str, CellLink], several: set[str]) -> Iterable[MatrixRow]:
    entries = {cell.key: cell for cell in report.cells}
    previous = ""
    for row in report.rows:
        place = _place(row.host, row.target, several)
        cells = tuple(
            MatrixCell(mark=cell_mark(entries[key].cell), link=links[key]) if key in entries else MatrixCell()
            for key in map(str, row.cells)
        )
        whole = None if any(row.cells) else outcome_mark(row.status)
        yield MatrixRow(row=row, first=place != previous, place=place, cells=cells, whole=whole)
        previous = place


def _cell(
    entry: ReportCell,
    number: int,
    titles: Mapping[tuple[str, str], str],
    several: set[str],
    equal: Mapping[str, tuple[str, ...]],
    links: Mapping[str, CellLink],
    codes: _Codes,
) -> CellView:
    cell = entry.cell
    others = equal.get(entry.group or "", ())
    # One more than shown is enough to leave this cell out: a large group must not cost its square.
    near = [links[key] for key in others[: EQUAL_SHOWN + 1] if key != entry.key][:EQUAL_SHOWN]
    artifacts = {graph.index: graph.artifact for graph in cell.graphs}
    return CellView(
        number=number,
        entry=entry,
        place=f"{_place(entry.host, entry.target, several)} {cell.device}",
        title=cell.title or titles.get((cell.function, cell.variant)) or cell.function,
        mark=cell_mark(cell),
        kind=_kind(cell.kind, cell.kinds),
        sentence=sentence(cell),
        reason=probe_payload.REASONS.get(cell.reason or "", ""),
        equal=tuple(near),
        equal_more=max(0, len(others) - 1 - len(near)),
        graphs=tuple(
            GraphView(
                index=graph.index,
                role=graph.role,
                lines=graph.lines,
                sha256=graph.artifact,
                listing=codes.number(graph.artifact),
            )
            for graph in cell.graphs
        ),
        evidence=tuple(
            EvidenceView(
                evidence=item,
                kind=kind_mark(item.kind).spoken,
                listing=codes.points_to(artifacts.get(item.graph, ""), item),
            )
            for item in cell.evidence
        ),
        correctness=numbers(cell.correctness) if cell.correctness else (),
        run=_run_facts(entry),
    )


def _kind(kind: str | None, kinds: Mapping[str, int]) -> str:
    """`C++ / OpenMP`, or `mixed: 1 C++ / OpenMP, 1 fallback`."""
    if kind is None:
        return "none"
    parts = ", ".join(f"{count} {probe_payload.KINDS.get(name, name)}" for name, count in kinds.items())
    return f"mixed: {parts}" if kind == "mixed" else probe_payload.KINDS.get(kind, kind)


def _run_facts(entry: ReportCell) -> tuple[Pair, ...]:
    """How the attempt went, beside its phases."""
    cell = entry.cell
    exit_ = cell.exit
    pairs = (
        ("last phase", cell.phase),
        ("exit code", None if exit_ is None or exit_.code is None else str(exit_.code)),
        ("signal", exit_.signal if exit_ else None),
        ("peak memory", None if exit_ is None or not exit_.memory_bytes else f"{exit_.memory_bytes / 2**20:,.0f} MiB"),
        ("attempts", str(cell.attempts) if cell.attempts > 1 else None),
        ("cells side by side", None if cell.workers is None else str(cell.workers)),
        ("graph breaks", None if cell.graph_breaks is None else str(cell.graph_breaks)),
        ("cache hits", None if cell.cache_hits is None else str(cell.cache_hits)),
        ("started", cell.started),
        ("ended", cell.ended),
    )
    return tuple(Pair(label=label, value=value) for label, value in pairs if value is not None)


def _code_views(report: Report, codes: _Codes, links: Mapping[str, CellLink]) -> Iterable[CodeView]:
    users: dict[str, list[str]] = {}
    deciding: dict[str, set[int]] = {}
    for entry in report.cells:
        for graph in entry.cell.graphs:
            code = codes.by_sha.get(graph.artifact)
            if code is None:
                continue
            users.setdefault(code.normal, []).append(entry.key)
            if codes.shown[code.normal].sha256 == graph.artifact and graph.artifact not in deciding:
                lines = {item.line for item in entry.cell.evidence if item.graph == graph.index}
                deciding[graph.artifact] = lines
    budget = MAX_CODE_CHARACTERS
    for normal, number in codes.numbers.items():
        shown = codes.shown[normal]
        text = codes.texts.get(shown.sha256)
        cells = list(dict.fromkeys(users.get(normal, [])))
        marked = deciding.get(shown.sha256, set())
        fits = text is not None and len(text) <= budget
        if fits and text is not None:
            budget -= len(text)
        yield CodeView(
            number=number,
            sha256=shown.sha256,
            language=shown.language,
            lines=shown.lines,
            texts=len(codes.members[normal]),
            deciding=len(marked),
            cells=tuple(links[key] for key in cells[:EQUAL_SHOWN]),
            cells_more=max(0, len(cells) - EQUAL_SHOWN),
            listing=listing(text, shown.language, marked) if fits and text is not None else None,
        )


def _host(target: TargetView, several: set[str]) -> HostView:
    return HostView(
        target=target,
        place=_place(target.host, target.target, several),
        mark=outcome_mark(target.outcome.status),
        source=source_facts(target),
        environment=environment_facts(target.environment) if target.environment else (),
        devices=tuple(DeviceView(device=device, facts=device_facts(device)) for device in target.devices),
    )
