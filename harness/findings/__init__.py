"""The merged view -> sentences, each tied to its cells.

Neutral: a block for each device in the original probe's form, then what is broken, what is not
ready, what differs (and which recorded fact separates the groups) and what is worth a note.
Everything here is pure.
"""

from __future__ import annotations

from harness.findings.broken import broken, not_ready
from harness.findings.devices import device_blocks
from harness.findings.differs import differs
from harness.findings.lookup import Lookup
from harness.findings.notable import notable
from harness.records.view import Finding, Report

__all__ = ["add", "find"]


def find(report: Report) -> tuple[Finding, ...]:
    """All findings of a report, in the order in which a person wants them."""
    lookup = Lookup(report)
    found = [*broken(lookup), *not_ready(lookup), *differs(lookup), *notable(lookup), *device_blocks(lookup)]
    counts: dict[str, int] = {}
    numbered = []
    for finding in found:
        counts[finding.group] = counts.get(finding.group, 0) + 1
        numbered.append(finding.model_copy(update={"id": f"{finding.group}-{counts[finding.group]}"}))
    return tuple(numbered)


def add(report: Report) -> Report:
    """The same report with its findings."""
    return report.model_copy(update={"findings": find(report)})
