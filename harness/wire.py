"""What came back from a host -> Result, checked as a stranger's upload would be.

    bytes -> lines (bounded) -> JSON (bounded, finite) -> records (strict types) -> what belongs together

A line that is wrong costs that line: it becomes a fault with its number, and everything else counts.
Records that contradict each other are faults too.  `Result.incomplete` says whether any of it lost
or put in doubt what was reported, so that nobody takes the rest for the whole.
Only a whole that cannot be a result, or one that a newer major version wrote, is a WireError.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pydantic_core
from pydantic import ValidationError

import probe_payload
from harness.errors import WireError
from harness.records.base import UNKNOWN_FIELDS
from harness.records.payload import (
    WIRE_RECORDS,
    ArtifactRecord,
    CellRecord,
    DeviceRecord,
    EndRecord,
    Environment,
    Result,
    RunRecord,
    WireRecord,
)
from harness.records.work import OutcomeStatus

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})")
# The name under which unknown fields are counted once there are too many names.
_OTHERS = "(others)"
# What a device of torch's name can be: HIP's devices are called cuda.
_BACKENDS = {"cpu": ("cpu",), "cuda": ("cuda", "rocm"), "xpu": ("xpu",), "mps": ("mps",)}
# A cell with one of these says that its device computed something.
_COMPUTED = (*probe_payload.RAN_STATUSES, "eager_fallback", "cpu_fallback", "wrong", "flaky")
# A cell with one of these never came to its device: where torch does not answer, none is described.
_NO_TURN = ("not_run", "blocked", "skipped")


@dataclass(frozen=True)
class Limits:
    """What a host may send at most; sizes in bytes."""

    total: int = 64 * 2**20
    line: int = 8_000_000
    lines: int = 200_000
    depth: int = 32
    faults: int = 200
    unknown_fields: int = 200
    devices: int = 256  # names of them; a report has a row for each
    functions: int = 2000  # functions and variants; a report has a column for each


DEFAULT_LIMITS = Limits()


def parse(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Result:
    """Read a result file, also one that was cut short.

    Of two records for the same cell, device or artifact the later counts, in the earlier one's place;
    `replaced` says how many.  Raises WireError if the data is too large, holds no valid record, or
    was written by a newer major version of the payload.
    """
    if len(data) > limits.total:
        raise WireError(f"the result has {len(data)} bytes; at most {limits.total} are read")
    reader = _Reader(limits)
    # A payload that was killed may leave the space that it had reserved for its journal as NULs.
    data = data.rstrip(b"\0")
    for number, line, is_torn in _lines(data):
        if number > limits.lines:
            reader.fault(f"more than {limits.lines} lines; the rest was left out", loses=True)
            break
        if line.strip():
            reader.read(number, line, is_torn)
    result = reader.result()
    if not reader.accepted:
        first = result.faults[0] if result.faults else "it is empty"
        raise WireError(f"what came back is not a result: {first}")
    return result


def lack(result: Result) -> str | None:
    """Why a result is not, or not surely, all that its target reported; None if it is."""
    return f"a part of the result cannot be used: {result.incomplete}" if result.incomplete else None


def part(result: Result) -> OutcomeStatus:
    """What a target is called of which not everything came: without a single cell it gave nothing."""
    return "partial" if result.cells else "failed"


def _lines(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Number, text and whether its line feed is missing, one at a time: split() would hold them all."""
    start, number = 0, 0
    while start < len(data):
        number += 1
        end = data.find(b"\n", start)
        yield number, data[start : end if end >= 0 else len(data)], end < 0
        start = end + 1 if end >= 0 else len(data)


@dataclass
class _Reader:
    """What was read so far."""

    limits: Limits
    accepted: int = 0
    run: RunRecord | None = None
    environment: Environment | None = None
    end: EndRecord | None = None
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    cells: dict[tuple[str, str, str], CellRecord] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    faults_left_out: int = 0
    incomplete: str | None = None
    replaced: int = 0
    device_names: set[Hashable] = field(default_factory=set)
    function_names: set[Hashable] = field(default_factory=set)

    def read(self, number: int, line: bytes, is_torn: bool) -> None:
        """Take one line; whatever is wrong with it becomes a fault."""
        if len(line) > self.limits.line:
            self.fault(f"line {number}: {len(line)} bytes; at most {self.limits.line} are read", loses=True)
            return
        try:
            record = self.record(number, line)
        except (ValueError, TypeError) as error:
            what = "cut short" if is_torn else _words(error)
            self.fault(f"line {number}: {what}", loses=True)
            return
        if record is not None:
            self.take(number, record)

    def record(self, number: int, line: bytes) -> WireRecord | None:
        """The line's record; None if this version knows no such record.  Raises ValueError."""
        # The parser ends by itself at a depth of 200; ours is checked while non-finite numbers are sought.
        fields = pydantic_core.from_json(line)
        if not isinstance(fields, dict):
            raise TypeError("not a JSON object")
        cleaned, dropped = _finite(fields, self.limits.depth)
        name = fields.get("record")
        if name == "run":
            _check_version(fields.get("schema_version"))
        if not isinstance(name, str):
            raise TypeError("no field `record` that names its kind")
        if name not in WIRE_RECORDS:
            self.count({f"record.{name[:60]}": 1})
            return None
        context: dict[str, Counter[str]] = {UNKNOWN_FIELDS: Counter()}
        # From JSON again, not from the dict: only there do strict types take lists, and no text for a number.
        checked = pydantic_core.to_json(cleaned) if dropped else line
        record: Any = WIRE_RECORDS[name].model_validate_json(checked, strict=True, context=context)
        self.count(context[UNKNOWN_FIELDS])
        if dropped:
            self.fault(f"line {number}: numbers that are not finite were read as null: {dropped}")
        known: WireRecord = record
        return known

    def take(self, number: int, record: WireRecord) -> None:
        """Put a valid record where it belongs."""
        self.accepted += 1
        if isinstance(record, ArtifactRecord):
            # The name under which the text is stored and found is never a host's word.
            if hashlib.sha256(record.text.encode()).hexdigest() == record.sha256:
                self.artifacts[record.sha256] = record.text
            else:
                what = f"the text of artifact {record.sha256[:12]} does not have that hash"
                self.fault(f"line {number}: {what}", loses=True)
        elif isinstance(record, CellRecord):
            self.take_cell(number, record)
        elif isinstance(record, DeviceRecord):
            self.take_device(number, record)
        else:
            if getattr(self, record.record) is not None:
                self.fault(f"line {number}: a second {record.record} record; the last one counts")
            setattr(self, record.record, record)

    def take_cell(self, number: int, record: CellRecord) -> None:
        """Put a cell where it belongs, if there is room for its row and its column."""
        column, limits = (record.function, record.variant), self.limits
        has_row = self.has_room(number, self.device_names, record.device, limits.devices, "devices")
        if has_row and self.has_room(number, self.function_names, column, limits.functions, "functions"):
            cell = (record.device, *column)
            self.replaced += cell in self.cells
            self.cells[cell] = record

    def take_device(self, number: int, record: DeviceRecord) -> None:
        """Put a device where it belongs, if its name and its backend agree: what it ran is counted by backend."""
        if record.backend not in _BACKENDS.get(record.device.partition(":")[0], ()):
            self.fault(f"line {number}: device {record.device} cannot be of backend {record.backend}", loses=True)
        elif self.has_room(number, self.device_names, record.device, self.limits.devices, "devices"):
            self.replaced += record.device in self.devices
            self.devices[record.device] = record

    def has_room(self, number: int, names: set[Hashable], name: Hashable, limit: int, what: str) -> bool:
        """True if a name is known or one more may be; else a fault.  Rows times columns is what a report costs."""
        if name not in names and len(names) >= limit:
            self.fault(f"line {number}: more than {limit} {what}; this one was left out", loses=True)
            return False
        names.add(name)
        return True

    def fault(self, message: str, *, loses: bool = False) -> None:
        """Keep what is wrong; `loses` if something that was reported is not in the result, or is in doubt."""
        if loses and self.incomplete is None:
            self.incomplete = message
        if len(self.faults) < self.limits.faults:
            self.faults.append(message)
        else:
            self.faults_left_out += 1

    def count(self, names: dict[str, int]) -> None:
        """Add unknown fields; a host that makes up names without end fills one counter."""
        for name, times in names.items():
            is_room = name in self.unknown or len(self.unknown) < self.limits.unknown_fields
            self.unknown[name if is_room else _OTHERS] += times

    def result(self) -> Result:
        """Everything, with what does not belong together among the faults."""
        if self.accepted and self.run is None:
            self.fault("no run record says which payload wrote this", loses=True)
        for (device, function, variant), cell in self.cells.items():
            for graph in cell.graphs:
                if graph.artifact not in self.artifacts:
                    self.fault(
                        f"cell {device}/{function}~{variant}: the code of graph {graph.index} "
                        f"({graph.artifact[:12]}) never came",
                        loses=True,
                    )
        self.compare()
        if self.faults_left_out:
            self.faults.append(f"and {self.faults_left_out} more faults")
        return Result(
            run=self.run,
            environment=self.environment,
            devices=list(self.devices.values()),
            artifacts=self.artifacts,
            cells=list(self.cells.values()),
            end=self.end,
            unknown_fields=dict(self.unknown),
            faults=self.faults,
            incomplete=self.incomplete,
            replaced=self.replaced,
        )

    def compare(self) -> None:
        """Hold cells against their devices and against the number that the end record gives."""
        statuses: dict[str, set[str]] = {}
        for cell in self.cells.values():
            statuses.setdefault(cell.device, set()).add(cell.status)
        for name, found in statuses.items():
            device = self.devices.get(name)
            if device is None and not found <= set(_NO_TURN):
                self.fault(f"cells of {name} came, and no device record of that name", loses=True)
            elif device is not None and device.status != "ok" and found & set(_COMPUTED):
                self.fault(f"device {name} is {device.status}, and cells computed on it", loses=True)
        if self.end is not None and len(self.cells) < self.end.cells:
            self.fault(f"the end record counts {self.end.cells} cells; {len(self.cells)} came", loses=True)


def _check_version(version: object) -> None:
    """Raises WireError for a newer major version, ValueError for what is no version."""
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise ValueError("schema_version is not of the form 1.0")
    if int(match[1]) > int(probe_payload.SCHEMA_VERSION.partition(".")[0]):
        raise WireError(
            f"this result was written by a newer payload (schema {match[0]}); update the harness",
            hint=f"this harness reads schema {probe_payload.SCHEMA_VERSION} and older",
        )


def _finite(value: Any, depth: int) -> tuple[Any, int]:
    """The value with NaN and infinities as None, and how many there were.  Raises ValueError if too deep."""
    if isinstance(value, float):
        return (value, 0) if math.isfinite(value) else (None, 1)
    if not isinstance(value, dict | list):
        return value, 0
    if depth == 0:
        raise ValueError("nested too deep")
    dropped = 0
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        cleaned, count = _finite(item, depth - 1)
        if count:
            # Replacing the value of a key that is there does not disturb the iteration.
            value[key] = cleaned
            dropped += count
    return value, dropped


def _words(error: ValueError | TypeError) -> str:
    """What is wrong with a line: short, one line of ASCII, whatever the host put into it."""
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_input=False, include_context=False)
        parts = [
            f"{'.'.join(str(part)[:40] for part in detail['loc'])}: {detail['msg'][:100]}" for detail in details[:3]
        ]
        text = "; ".join(parts) + (f"; and {len(details) - 3} more" if len(details) > 3 else "")
        text = f"{error.title}: {text}"
    else:
        text = str(error)
    return ascii(text)[1:-1].replace("\\'", "'")[:400]
