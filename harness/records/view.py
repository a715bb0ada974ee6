"""What a report shows: Report and its parts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import probe_payload
from harness.records.base import BackendName, Count, Name, Record, Sha256, Short, Text, Word
from harness.records.payload import CellRecord, DeviceRecord, EndRecord, Environment, RunRecord
from harness.records.work import Outcome


class ReportCell(Record):
    """A cell in a report: its key, the host's record, and what the merge found out."""

    key: Text = Field(description="host/target/device@torch/function~variant")
    host: Name
    target: Name
    cell: CellRecord
    command: Text = Field("", description="what a person types to repeat it")
    normal: tuple[Sha256, ...] = Field((), description="hash of each graph's normal form; equal means equal code")
    group: Short | None = Field(None, description="id of the CodeGroup that it belongs to; null without code")


class Row(Record):
    """A device of a target; `cells` has one key or null for each column."""

    host: Name
    target: Name
    device: Short
    backend: BackendName | None
    fact: Short = Field(description="the one fact worth a column: ISA, capability, state")
    torch: Short
    status: Short = Field(description="ok, blocked, unreachable ...")
    cells: tuple[Text | None, ...]
    blank: Text | None = Field(None, description="why a row without cells has none")


class Column(Record):
    """A function and variant."""

    function: Word
    variant: Word
    title: Short


class TargetView(Record):
    """A target's outcome and everything that its numbers can be traced to."""

    host: Name
    target: Name
    transport: Short
    groups: tuple[Name, ...]
    outcome: Outcome
    run: RunRecord | None
    environment: Environment | None
    devices: tuple[DeviceRecord, ...]
    end: EndRecord | None
    unknown_fields: dict[str, int]
    faults: tuple[str, ...]


class CodeGroup(Record):
    """Cells whose code is equal in normal form, graph by graph (one list, so that it stays linear)."""

    id: Short
    normal: tuple[Sha256, ...]
    cells: tuple[Text, ...]


class Labelled(Record):
    """A label and its value: one line of a block."""

    label: Short
    value: Text


class Finding(Record):
    """One sentence, tied to its cells."""

    id: Short
    group: Literal["broken", "not_ready", "changed", "differs", "notable", "device"]
    subject: Text = Field("", description="the words at the start of `sentence` that it is about")
    sentence: Text
    detail: Text | None = None
    block: tuple[Labelled, ...] = ()
    command: Text | None = None
    command_on: Text = Field("", description="where to type `command`; here, if empty")
    cells: tuple[Text, ...] = ()
    hosts: tuple[Text, ...] = ()


class Code(Record):
    """A generated text in a report: where it is kept and what it is equal to."""

    sha256: Sha256
    normal: Sha256
    lines: Count
    language: Short


class Report(Record):
    """report.json, and what both dialects are rendered from."""

    schema_version: Short = probe_payload.SCHEMA_VERSION
    run: Short
    harness_version: Short
    command: tuple[Text, ...]
    started: Short
    ended: Short | None
    title: Text
    summary: Text
    targets: tuple[TargetView, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    cells: tuple[ReportCell, ...]
    codes: tuple[Code, ...]
    groups: tuple[CodeGroup, ...] = ()
    findings: tuple[Finding, ...]
