"""Which recorded facts separate groups of cells?

A fact separates the groups if no value of it occurs in two of them: knowing the value is then
knowing the group.  It is exact if, besides, each group has a single value.  When no fact does it
alone, pairs are tried.  A fact that is unknown for one cell explains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from pydantic import Field

from harness.findings.lookup import Lookup
from harness.records.base import Record
from harness.records.view import ReportCell

Facts = Mapping[str, str | None]


class Separation(Record):
    """`facts` each separate the groups by themselves; `pairs` do so together, where no single one does."""

    facts: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    exact: bool = Field(False, description="each group has one value of each fact")
    values: tuple[tuple[tuple[str, ...], ...], ...] = Field((), description="fact -> group -> values")


def facts_of(lookup: Lookup, cell: ReportCell) -> dict[str, str | None]:
    """What is recorded about the machine and torch that a cell ran on, by the name for people."""
    environment, device = lookup.target(cell).environment, lookup.device(cell)
    if environment is None:
        return {}
    threads = environment.torch_threads
    cxx = " ".join(filter(None, [environment.cxx, environment.cxx_version]))
    facts = {"torch": environment.torch_version}
    # Neither shapes the other's kernels: naming them would only add facts that cannot be told apart.
    if device is not None and device.backend != "cpu":
        facts |= {"Triton": environment.triton_version or "none", "capability": device.capability}
    else:
        facts |= {"vector ISA": environment.vector_isa, "threads": None if threads is None else str(threads)}
        facts |= {"C++ compiler": cxx or None}
    return facts | {"architecture": environment.arch}


def separate(groups: Sequence[Sequence[Facts]]) -> Separation:
    """The facts that separate the groups, exact ones first; each group is the facts of its cells."""
    names = [name for name in groups[0][0] if all(facts.get(name) is not None for group in groups for facts in group)]
    tables = {name: _values(groups, (name,)) for name in names}
    single = [name for name in names if _disjoint(tables[name])]
    exact = [name for name in single if all(len(values) == 1 for values in tables[name])]
    best = exact or single
    if best:
        shown = tuple(tuple(tuple(v[0] for v in values) for values in tables[name]) for name in best)
        return Separation(facts=tuple(best), exact=bool(exact), values=shown)
    pairs = [pair for pair in combinations(names, 2) if _disjoint(_values(groups, pair))]
    return Separation(pairs=tuple(pairs))


def _values(groups: Sequence[Sequence[Facts]], names: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    """For each group its distinct values of some facts, sorted."""
    return [sorted({tuple(str(facts[name]) for name in names) for facts in group}) for group in groups]


def _disjoint(table: list[list[tuple[str, ...]]]) -> bool:
    """No value in two groups; a group holds each of its values once."""
    every = [value for values in table for value in values]
    return len(every) == len(set(every))
