"""The typed, frozen records that everything passes on.

    base        the two base classes, bounded scalars
    payload     what a payload writes: run, environment, device, artifact, cell, end
    inventory   what hosts.yaml says: Inventory, Group, Host, Target
    hosts_file  the layout of hosts.yaml itself: HostsFile, HostEntry, GroupEntry
    keeper      what the keeper on a host answers
    work        what the harness does with it: Job, Outcome, RunManifest
    view        what a report shows: Report and its parts

The words (kinds, statuses, reasons) come from the payload, which is the ground: nothing is
written twice.  Wire records ignore unknown fields and count them (`UNKNOWN_FIELDS`), so that an
older harness reads a newer payload of the same major version; inventory records refuse them.
"""

from harness.records.base import UNKNOWN_FIELDS, BackendName, Name, Record, Status, StrictRecord
from harness.records.hosts_file import GroupEntry, HostEntry, HostsFile
from harness.records.inventory import Group, Host, HostSettings, Inventory, Target, TargetSettings
from harness.records.payload import (
    WIRE_RECORDS,
    ArtifactRecord,
    BackendFact,
    Call,
    CellRecord,
    Correctness,
    DeviceRecord,
    EndRecord,
    Environment,
    Evidence,
    Exit,
    Graph,
    Kernel,
    Phase,
    Result,
    Route,
    RunRecord,
    WireRecord,
)
from harness.records.view import Code, CodeGroup, Column, Finding, Labelled, Report, ReportCell, Row, TargetView
from harness.records.work import Job, JobSummary, Outcome, OutcomeStatus, PlanEntry, RunManifest, Selection

__all__ = [
    "UNKNOWN_FIELDS",
    "WIRE_RECORDS",
    "ArtifactRecord",
    "BackendFact",
    "BackendName",
    "Call",
    "CellRecord",
    "Code",
    "CodeGroup",
    "Column",
    "Correctness",
    "DeviceRecord",
    "EndRecord",
    "Environment",
    "Evidence",
    "Exit",
    "Finding",
    "Graph",
    "Group",
    "GroupEntry",
    "Host",
    "HostEntry",
    "HostSettings",
    "HostsFile",
    "Inventory",
    "Job",
    "JobSummary",
    "Kernel",
    "Labelled",
    "Name",
    "Outcome",
    "OutcomeStatus",
    "Phase",
    "PlanEntry",
    "Record",
    "Report",
    "ReportCell",
    "Result",
    "Route",
    "Row",
    "RunManifest",
    "RunRecord",
    "Selection",
    "Status",
    "StrictRecord",
    "Target",
    "TargetSettings",
    "TargetView",
    "WireRecord",
]
