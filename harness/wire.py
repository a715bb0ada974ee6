"""What came back from a host -> Result, checked as a stranger's upload would be.

    bytes -> lines (bounded) -> JSON (bounded, finite) -> records (strict types) -> what belongs together

A line that is wrong costs that line: it becomes a fault with its number, and everything else counts.
Only a whole that cannot be a result, or one that a newer major version wrote, is a WireError.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator
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

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})")
# The name under which unknown fields are counted once there are too many names.
_OTHERS = "(others)"


@dataclass(frozen=True)
class Limits:
    """What a host may send at most; sizes in bytes."""

    total: int = 64_000_000
    line: int = 8_000_000
    lines: int = 200_000
    depth: int = 32
    faults: int = 200
    unknown_fields: int = 200


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
            reader.fault(f"more than {limits.lines} lines; the rest was left out")
            break
        if line.strip():
            reader.read(number, line, is_torn)
    result = reader.result()
    if not reader.accepted:
        first = result.faults[0] if result.faults else "it is empty"
        raise WireError(f"what came back is not a result: {first}")
    return result


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
    replaced: int = 0

    def read(self, number: int, line: bytes, is_torn: bool) -> None:
        """Take one line; whatever is wrong with it becomes a fault."""
        if len(line) > self.limits.line:
            self.fault(f"line {number}: {len(line)} bytes; at most {self.limits.line} are read")
            return
        try:
            record = self.record(number, line)
        except (ValueError, TypeError) as error:
            what = "cut short" if is_torn else _words(error)
            self.fault(f"line {number}: {what}")
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
                self.fault(f"line {number}: the text of artifact {record.sha256[:12]} does not have that hash")
        elif isinstance(record, CellRecord):
            cell = (record.device, record.function, record.variant)
            self.replaced += cell in self.cells
            self.cells[cell] = record
        elif isinstance(record, DeviceRecord):
            self.replaced += record.device in self.devices
            self.devices[record.device] = record
        else:
            if getattr(self, record.record) is not None:
                self.fault(f"line {number}: a second {record.record} record; the last one counts")
            setattr(self, record.record, record)

    def fault(self, message: str) -> None:
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
            self.fault("no run record says which payload wrote this")
        for (device, function, variant), cell in self.cells.items():
            for graph in cell.graphs:
                if graph.artifact not in self.artifacts:
                    self.fault(
                        f"cell {device}/{function}~{variant}: the code of graph {graph.index} "
                        f"({graph.artifact[:12]}) never came"
                    )
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
            replaced=self.replaced,
        )


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
