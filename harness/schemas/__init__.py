"""JSON Schemas (2020-12) of the files that people and other programs read, made from the records.

    hosts.v1    hosts.yaml; unknown fields are refused
    result.v1   one line of a result file; unknown fields are allowed, since minor versions add them
    report.v1   report.json; likewise

The files beside this one are committed: editors and other programs use them without Python.
`python -m harness.schemas` writes them anew after a record changed; a test fails until it is done.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

import probe_payload
from harness.records.hosts_file import HostsFile
from harness.records.payload import WIRE_RECORDS
from harness.records.view import Report

HOSTS_VERSION = "1.0"
FOLDER = Path(__file__).parent


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema as it should be now, by file name."""
    records: Any = reduce(or_, WIRE_RECORDS.values())
    line = Annotated[records, Field(discriminator="record")]
    parts = (
        ("hosts", HOSTS_VERSION, "hosts.yaml of inductor-atlas", HostsFile),
        ("result", probe_payload.SCHEMA_VERSION, "One line of a result file of inductor-atlas", line),
        ("report", probe_payload.SCHEMA_VERSION, "report.json of inductor-atlas", Report),
    )
    result: dict[str, dict[str, Any]] = {}
    for name, version, title, what in parts:
        stem = f"{name}.v{version.partition('.')[0]}"
        result[f"{stem}.schema.json"] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:inductor-atlas:schema:{stem}",
            "version": version,
            **TypeAdapter(what).json_schema(),
            "title": title,
        }
    _close(result[f"hosts.v{HOSTS_VERSION.partition('.')[0]}.schema.json"])
    return result


def _close(schema: Any) -> None:
    """Refuse names that match no pattern: pydantic writes the pattern of a mapping's keys and no more."""
    if isinstance(schema, list):
        for part in schema:
            _close(part)
    elif isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for part in schema.values():
            _close(part)


def render(schema: dict[str, Any]) -> str:
    """A schema as its file holds it: ASCII, so that no tool's encoding can change it."""
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"


def write(folder: Path = FOLDER) -> list[Path]:
    """Write every schema into `folder`; gives the files whose text changed."""
    changed = []
    for name, schema in schemas().items():
        path, text = folder / name, render(schema)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed
