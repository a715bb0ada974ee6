"""The committed JSON Schemas: fresh, valid, and of one mind with the readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import probe_payload
from harness import inventory, schemas, strict_yaml
from harness.errors import InventoryError

NAMES = ["hosts.v1.schema.json", "result.v1.schema.json", "report.v1.schema.json"]
SHIPPED = Path(__file__).parents[2] / "hosts.yaml"

RUN: dict[str, Any] = {
    "record": "run",
    "schema_version": "1.0",
    "payload_version": "0.1.0",
    "payload_sha256": None,
    "argv": [],
    "started": "2026-01-01T00:00:00Z",
}
CELL: dict[str, Any] = {
    "record": "cell",
    "device": "cpu",
    "function": "matmul",
    "variant": "default",
    "status": "generated",
}
REPORT: dict[str, Any] = {
    "run": "r",
    "harness_version": "0.1.0",
    "command": [],
    "started": "2026-01-01T00:00:00Z",
    "ended": None,
    "title": "t",
    "summary": "s",
    **{name: [] for name in ("targets", "columns", "rows", "cells", "codes", "findings")},
}


def committed(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((schemas.FOLDER / name).read_text(encoding="ascii"))
    return schema


def accepts(name: str, instance: object) -> bool:
    return jsonschema.Draft202012Validator(committed(name)).is_valid(instance)


def test_the_committed_files_are_fresh() -> None:
    current = {name: schemas.render(schema) for name, schema in schemas.schemas().items()}
    stored = {path.name: path.read_text(encoding="ascii") for path in schemas.FOLDER.glob("*.json")}
    assert stored == current, "a record changed: run `python -m harness.schemas` and commit what it writes"


def test_write_names_what_changed(tmp_path: Path) -> None:
    assert [path.name for path in schemas.write(tmp_path)] == NAMES
    assert schemas.write(tmp_path) == []
    (tmp_path / NAMES[1]).write_text("{}")
    assert [path.name for path in schemas.write(tmp_path)] == NAMES[1:2]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_with_a_name_and_a_version(name: str) -> None:
    schema = committed(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    stem = name.removesuffix(".schema.json")
    assert schema["$id"].endswith(f":{stem}")
    assert schema["title"]
    version = schemas.HOSTS_VERSION if stem.startswith("hosts") else probe_payload.SCHEMA_VERSION
    assert schema["version"] == version
    assert stem.endswith(f".v{version.partition('.')[0]}")


def test_the_modeline_of_hosts_yaml_names_the_schema() -> None:
    line = SHIPPED.read_text(encoding="utf-8").splitlines()[0]
    assert (SHIPPED.parent / line.partition("$schema=")[2]) == SHIPPED.parent / "harness/schemas/hosts.v1.schema.json"
    assert accepts("hosts.v1.schema.json", strict_yaml.load(SHIPPED.read_text(encoding="utf-8")).data)


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("hosts: {a: }", True),
        ("hosts: {a: {port: 22, jump: b, targets: {x: , y: {backends: [cpu]}}}}", True),
        ("hosts: {a: {jump: [b, 'me@c:22']}}", True),
        ("defaults: {user: x}\ngroups: {g: {description: d}, h: }\nhosts: {a: {groups: [g]}}", True),
        ("hosts: {}", False),
        ("hosts: {A: }", False),
        ("hosts: {a: {usr: x}}", False),
        ("hosts: {a: {port: 70000}}", False),
        ("hosts: {a: {port: '22'}}", False),
        ("hosts: {a: {user: -x}}", False),
        ("hosts: {a: {address: -x}}", False),
        ("hosts: {a: {jump: [-x]}}", False),
        ("hosts: {a: {password: x}}", False),
        ("hosts: {a: {python: 3.10}}", False),
        ("hosts: {a: {targets: {A: }}}", False),
        ("hosts: {a: {targets: {x: {torch: '2.10'}}}}", False),
        ("groups: {g: {groups: [h]}}\nhosts: {a: }", False),
        ("extra: 1\nhosts: {a: }", False),
    ],
)
def test_editor_and_loader_agree_on_hosts_yaml(text: str, is_good: bool) -> None:
    assert accepts("hosts.v1.schema.json", strict_yaml.load(text).data) is is_good
    if is_good:
        inventory.parse(text.encode())
    else:
        with pytest.raises(InventoryError):
            inventory.parse(text.encode())


def test_a_result_line_may_have_fields_that_are_not_known() -> None:
    for line in (RUN, CELL):
        assert accepts("result.v1.schema.json", line)
        assert accepts("result.v1.schema.json", {**line, "new_in_1_7": {"deep": [1]}})
    assert not accepts("result.v1.schema.json", {**CELL, "status": "splendid"})
    assert not accepts("result.v1.schema.json", {"record": "cell"})
    assert not accepts("result.v1.schema.json", {**CELL, "graphs": [{"index": -1}]})


def test_a_report_may_have_fields_that_are_not_known() -> None:
    assert accepts("report.v1.schema.json", REPORT)
    assert accepts("report.v1.schema.json", {**REPORT, "new_in_1_7": 1})
    assert not accepts("report.v1.schema.json", {**REPORT, "cells": 1})
