"""What the harness does with the inventory: Job, Outcome, RunManifest."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import probe_payload
from harness.records.base import Name, Record, Sha256, Short, StrictRecord, Text
from harness.records.containers import ContainerFacts
from harness.records.inventory import Host, Target


class Selection(StrictRecord):
    """What to probe on each target; empty means all."""

    devices: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    cell_timeout: float | None = None
    jobs: int | None = None


class Job(StrictRecord):
    """One target of one host, with what to do there."""

    host: Host
    target: Target
    selection: Selection = Selection()

    @property
    def id(self) -> str:
        """`host/target`: unique in a run."""
        return f"{self.host.name}/{self.target.name}"


class PlanEntry(StrictRecord):
    """A target with its job, or with the sentence that says why there is none."""

    host: Name
    target: Name
    job: Job | None = None
    skip: Text | None = None


OutcomeStatus = Literal[
    "answered", "partial", "blocked", "unreachable", "timeout", "failed", "cancelled", "skipped", "not_run"
]


class Outcome(Record):
    """How one job ended.  `partial`: cells came, the end record did not."""

    host: Name
    target: Name
    status: OutcomeStatus
    reason: Short | None = None
    message: Text | None = None
    hint: Text | None = None
    started: Short | None = None
    ended: Short | None = None
    result_sha256: Sha256 | None = None
    payload_sha256: Sha256 | None = Field(None, description="as sent by the harness")
    argv: tuple[Text, ...] = ()
    container: ContainerFacts | None = Field(None, description="what wrapped the payload, for a container")
    left_behind: Text | None = Field(None, description="what could not be removed from the host, and why")


class JobSummary(Record):
    """What a manifest keeps of a job: enough for a report, no secrets and no key paths."""

    host: Name
    target: Name
    transport: Short
    groups: tuple[Name, ...] = ()
    timeout: float


class RunManifest(Record):
    """`run.json`: written before the first host is touched."""

    schema_version: Short = probe_payload.SCHEMA_VERSION
    run: Short
    harness_version: Short
    command: tuple[Text, ...]
    started: Short
    jobs: tuple[JobSummary, ...]
