"""Same function, same backend, different code: and which fact goes with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import probe_payload
from harness.findings.lookup import Lookup, finding, name, some
from harness.findings.separate import Separation, facts_of, separate
from harness.matrix import BACKEND_NAMES, listed
from harness.records.view import Finding, ReportCell

_SHOWN_VALUES = 4


class _Difference(NamedTuple):
    """One function on one backend whose cells fall into groups of equal code."""

    backend: str
    label: str
    groups: list[list[ReportCell]]
    why: str


def differs(lookup: Lookup) -> Iterator[Finding]:
    """One sentence for each way of differing; functions that differ alike share it."""
    alike: dict[tuple[str, int, str, str], list[_Difference]] = {}
    for found in _differences(lookup):
        key = (found.backend, len(found.groups), _kinds(found.groups), found.why)
        alike.setdefault(key, []).append(found)
    for (backend, number, kinds, why), members in alike.items():
        labels = list(dict.fromkeys(member.label for member in members))
        verb = "comes" if len(labels) == 1 else "come"
        subject = listed(labels)
        cells = [cell for member in members for group in member.groups for cell in group]
        yield finding(
            "differs",
            subject,
            f" {verb} in {_number(number)} texts on {BACKEND_NAMES.get(backend, backend)}{kinds}.",
            cells,
            detail=why,
        )


def _differences(lookup: Lookup) -> Iterator[_Difference]:
    same: dict[tuple[str, str, str], dict[str, list[ReportCell]]] = {}
    for cell in lookup.report.cells:
        backend = lookup.row(cell).backend
        if cell.group and backend:
            groups = same.setdefault((backend, cell.cell.function, cell.cell.variant), {})
            groups.setdefault(cell.group, []).append(cell)
    for (on, _, _), by_group in same.items():
        if len(by_group) > 1:
            # The largest group first; then by place, so that a report does not depend on timing.
            ordered = sorted(by_group.values(), key=lambda cells: (-len(cells), cells[0].key))
            yield _Difference(on, name(ordered[0][0]), ordered, _why(lookup, ordered))


def _why(lookup: Lookup, groups: list[list[ReportCell]]) -> str:
    found = separate([[facts_of(lookup, cell) for cell in group] for group in groups])
    if len(found.facts) == 1:
        follows = "Follows" if found.exact else "Goes with"
        return f"{follows} {_shown(found, 0)}."
    if found.facts:
        facts = "; ".join(_shown(found, number) for number in range(len(found.facts)))
        return f"Several facts separate the groups and cannot be told apart: {facts}."
    who = "; ".join(f"{lookup.places(group)}" for group in groups[:_SHOWN_VALUES])
    if found.pairs:
        pairs = some(f"{first} with {second}" for first, second in found.pairs)
        return f"No single recorded fact separates the groups; together these do: {pairs}. Groups: {who}."
    return f"No recorded fact separates the groups: {who}."


def _shown(found: Separation, number: int) -> str:
    """`torch: 2.12.1 | 2.13.0, 2.13.1`."""
    groups = [some(values) for values in found.values[number]]
    more = [f"{len(groups) - _SHOWN_VALUES} more"] if len(groups) > _SHOWN_VALUES else []
    return f"{found.facts[number]}: {' | '.join(groups[:_SHOWN_VALUES] + more)}"


def _kinds(groups: list[list[ReportCell]]) -> str:
    """The kinds of the groups, where they are not all of one."""
    kinds = list(dict.fromkeys(group[0].cell.kind or "none" for group in groups))
    if len(kinds) < 2:
        return ""
    return f", of different kinds: {' | '.join(probe_payload.KINDS.get(kind, kind) for kind in kinds)}"


def _number(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[number] if number < len(words) else str(number)
