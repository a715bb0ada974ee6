"""Result files are read as a stranger's upload: nothing but WireError leaves, and nothing good is lost."""

from __future__ import annotations

import hashlib
import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

import probe_payload
from harness.errors import WireError
from harness.records.base import BackendName, Status, Word
from harness.records.payload import WIRE_RECORDS, WireRecord
from harness.wire import DEFAULT_LIMITS, Limits, lack, parse, part

TEXT = "int main() {}\n// \u00e9 \U0001f600\n"
SHA = hashlib.sha256(TEXT.encode()).hexdigest()

RUN: dict[str, Any] = {
    "record": "run",
    "schema_version": probe_payload.SCHEMA_VERSION,
    "payload_version": "0.1.0",
    "payload_sha256": "0" * 64,
    "argv": ["probe_payload.py", "--out", "x"],
    "started": "2026-01-01T00:00:00Z",
}
ENVIRONMENT: dict[str, Any] = {"record": "environment", "torch_version": "2.13.0", "env_set": {"TORCH_LOGS": "x"}}
DEVICE: dict[str, Any] = {"record": "device", "device": "cpu", "backend": "cpu", "status": "ok"}
ARTIFACT: dict[str, Any] = {"record": "artifact", "sha256": SHA, "text": TEXT}
GRAPH: dict[str, Any] = {"index": 0, "role": "inference", "wrapper": "python", "artifact": SHA, "lines": 2}
CELL: dict[str, Any] = {
    "record": "cell",
    "device": "cpu",
    "function": "matmul",
    "variant": "default",
    "status": "generated",
    "kinds": {"cpp": 1},
    "graphs": [GRAPH],
}
END: dict[str, Any] = {"record": "end", "ended": "2026-01-01T00:01:00Z", "cells": 1}
EMPTY_END: dict[str, Any] = {**END, "cells": 0}
WHOLE = [RUN, ENVIRONMENT, DEVICE, ARTIFACT, CELL, END]


def lines(*records: dict[str, Any] | str | bytes) -> bytes:
    """Records as the payload writes them; text and bytes go in as they are."""
    parts = [json.dumps(record) if isinstance(record, dict) else record for record in records]
    return b"".join((part.encode() if isinstance(part, str) else part) + b"\n" for part in parts)


# ---------------------------------------------------------------- what is read


def test_a_whole_result_is_read_without_a_fault() -> None:
    result = parse(lines(*WHOLE))
    assert result.faults == []
    assert result.incomplete is None
    assert lack(result) is None
    assert result.unknown_fields == {}
    assert result.replaced == 0
    assert result.run is not None and result.run.argv[0] == "probe_payload.py"
    assert result.environment is not None and result.environment.torch_version == "2.13.0"
    assert [device.device for device in result.devices] == ["cpu"]
    assert result.artifacts == {SHA: TEXT}
    assert [cell.kinds for cell in result.cells] == [{"cpp": 1}]
    assert result.end is not None and result.end.cells == 1


def test_ascii_and_utf8_are_the_same() -> None:
    raw = json.dumps(ARTIFACT, ensure_ascii=False)
    assert parse(lines(RUN, raw, CELL)).artifacts == {SHA: TEXT}


def test_every_cut_of_a_result_keeps_what_came_before_it() -> None:
    whole = lines(*WHOLE)
    ends = [index + 1 for index, byte in enumerate(whole) if byte == 0x0A]
    for cut in range(ends[4], len(whole)):
        result = parse(whole[:cut])
        assert len(result.cells) == 1
        is_whole_line = cut == ends[4] or cut == len(whole) - 1
        assert result.faults == ([] if is_whole_line else ["line 6: cut short"])
        assert (result.end is None) is (cut < len(whole) - 1)


def test_a_broken_line_in_the_middle_is_not_called_cut_short() -> None:
    result = parse(lines(RUN, '{"record": "device", "dev', DEVICE, ARTIFACT, CELL))
    [fault] = result.faults
    assert fault.startswith("line 2: ")
    assert "cut short" not in fault
    assert len(result.cells) == 1


def test_space_that_was_reserved_and_not_used_is_no_fault() -> None:
    assert parse(lines(*WHOLE) + b"\0" * 5000).faults == []
    assert parse(lines(*WHOLE[:5]) + b'{"record"' + b"\0" * 5000).faults == ["line 6: cut short"]


def test_blank_lines_and_carriage_returns_are_nothing() -> None:
    assert parse(lines(*WHOLE).replace(b"\n", b"\r\n\r\n")).faults == []


def test_the_last_record_of_a_cell_counts_in_the_first_ones_place() -> None:
    other = {**CELL, "function": "softmax"}
    again = {**CELL, "status": "failed", "attempts": 2}
    result = parse(lines(RUN, DEVICE, ARTIFACT, CELL, other, again, DEVICE))
    assert [(cell.function, cell.status) for cell in result.cells] == [("matmul", "failed"), ("softmax", "generated")]
    assert (result.replaced, result.faults) == (2, [])
    assert len(parse(lines(RUN, ARTIFACT, CELL, {**CELL, "variant": "bf16"})).cells) == 2


def test_a_second_run_environment_or_end_is_a_fault() -> None:
    result = parse(lines(RUN, {**RUN, "payload_version": "9"}, ENVIRONMENT, ENVIRONMENT, EMPTY_END, EMPTY_END))
    assert result.run is not None and result.run.payload_version == "9"
    assert result.faults == [
        "line 2: a second run record; the last one counts",
        "line 4: a second environment record; the last one counts",
        "line 6: a second end record; the last one counts",
    ]
    assert result.incomplete is None, "nothing was lost"


def test_unknown_fields_and_records_are_counted() -> None:
    new = {**CELL, "watts": 3, "graphs": [{**GRAPH, "colour": 1}, {**GRAPH, "colour": 2}]}
    result = parse(lines(RUN, DEVICE, ARTIFACT, new, {"record": "prediction", "x": 1}, {"record": "prediction"}))
    assert result.unknown_fields == {"CellRecord.watts": 1, "Graph.colour": 2, "record.prediction": 2}
    assert result.faults == []
    assert len(result.cells) == 1


# ---------------------------------------------------------------- what is refused


def test_a_text_that_does_not_have_its_hash_is_dropped() -> None:
    result = parse(lines(RUN, {**ARTIFACT, "text": TEXT + " "}, CELL, DEVICE))
    assert result.artifacts == {}
    assert result.faults == [
        f"line 2: the text of artifact {SHA[:12]} does not have that hash",
        f"cell cpu/matmul~default: the code of graph 0 ({SHA[:12]}) never came",
    ]
    assert len(result.cells) == 1


def test_a_cell_whose_code_never_came_is_kept() -> None:
    result = parse(lines(RUN, DEVICE, CELL))
    assert [cell.function for cell in result.cells] == ["matmul"]
    assert result.faults == [f"cell cpu/matmul~default: the code of graph 0 ({SHA[:12]}) never came"]
    assert parse(lines(RUN, CELL, ARTIFACT, DEVICE)).faults == [], "the order does not matter"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_become_null(number: str) -> None:
    raw = json.dumps({**CELL, "correctness": {"verdict": "wrong", "max_abs": 987654321}}).replace("987654321", number)
    result = parse(lines(RUN, ARTIFACT, raw, DEVICE))
    correctness = result.cells[0].correctness
    assert correctness is not None
    assert (correctness.verdict, correctness.max_abs) == ("wrong", None)
    assert result.faults == ["line 3: numbers that are not finite were read as null: 1"]
    assert result.incomplete is None


def test_a_number_that_must_be_there_and_is_not_finite_costs_the_line() -> None:
    raw = json.dumps({**CELL, "phases": [{"name": "compile", "cpu_s": 987654321}]}).replace("987654321", "NaN")
    result = parse(lines(RUN, ARTIFACT, raw, {**CELL, "function": "softmax"}))
    assert [cell.function for cell in result.cells] == ["softmax"]
    assert result.faults[0].startswith("line 3: CellRecord: phases.0.cpu_s: ")


@pytest.mark.parametrize(
    "bad",
    [
        "welcome to lab1!",
        b"\xff\xfe\x00",
        "[1, 2]",
        "3",
        "null",
        "{}",
        '{"record": 3}',
        '{"record": ["cell"]}',
        '{"record": "cell"}',
        json.dumps(CELL) + json.dumps(CELL),
        '{"record": "artifact", "sha256": "' + SHA + '", "text": "\\ud800"}',
        "9" * 5000,
        '{"record": "cell", "x": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"record": "cell", "x": ' + "[" * 100_000,
        '{"record": "cell", "x": ' + "[" * 50 + "]" * 50 + "}",
        '{"record": "cell", "x": ' + '{"a": ' * 150 + "1" + "}" * 151,
        json.dumps({**CELL, "status": "splendid"}),
        json.dumps({**CELL, "attempts": "1"}),
        json.dumps({**CELL, "attempts": True}),
        json.dumps({**CELL, "device": "../../etc"}),
        json.dumps({**CELL, "device": "cpu\n"}),
        json.dumps({**CELL, "kinds": {"<script>": 1}}),
        json.dumps({**CELL, "message": "x" * 20_001}),
        json.dumps({**CELL, "graphs": [GRAPH] * 501}),
        json.dumps({**ARTIFACT, "sha256": "../" + SHA[3:]}),
        json.dumps({**RUN, "schema_version": "banana"}),
        json.dumps({**RUN, "schema_version": 1.0}),
    ],
)
def test_a_bad_line_is_one_fault_and_loses_nothing_else(bad: str | bytes) -> None:
    result = parse(lines(RUN, DEVICE, bad, ARTIFACT, CELL, END))
    [fault] = result.faults
    assert fault.startswith("line 3: ")
    assert len(fault) < 450
    assert fault.isascii() and fault.isprintable()
    assert len(result.cells) == len(result.devices) == len(result.artifacts) == 1
    assert result.end is not None


def test_a_fault_does_not_carry_a_hosts_text_along() -> None:
    result = parse(lines(RUN, {**CELL, "kinds": {"\x1b[31m" + "x" * 5000: 1}}))
    [fault] = result.faults
    assert len(fault) < 400
    assert fault.isprintable()


def test_depth_up_to_the_limit_is_read() -> None:
    deep: Any = 1
    for _ in range(Limits().depth - 1):
        deep = [deep]
    assert parse(lines(*WHOLE[:4], {**CELL, "new": deep})).faults == []
    assert len(parse(lines(*WHOLE[:4], {**CELL, "new": [deep]})).faults) == 1


def test_a_missing_run_record_is_a_fault() -> None:
    result = parse(lines(DEVICE, ARTIFACT, CELL))
    assert result.faults == ["no run record says which payload wrote this"] == [result.incomplete]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\0" * 100, b"Last login: today\n", b'{"record": "new"}\n'])
def test_what_holds_no_record_is_not_a_result(data: bytes) -> None:
    with pytest.raises(WireError, match=r"^what came back is not a result: "):
        parse(data)


@pytest.mark.parametrize("version", ["2.0", "2.17", "999999.0"])
def test_a_newer_major_version_is_refused_in_a_sentence(version: str) -> None:
    with pytest.raises(WireError) as caught:
        parse(lines({"record": "run", "schema_version": version, "all": "else is new"}, CELL))
    assert caught.value.message == (
        f"this result was written by a newer payload (schema {version}); update the harness"
    )


@pytest.mark.parametrize("version", ["1.0", "1.9999", "0.9"])
def test_other_versions_of_this_major_and_older_are_read(version: str) -> None:
    result = parse(lines({**RUN, "schema_version": version}, *WHOLE[1:]))
    assert result.faults == []
    assert result.run is not None and result.run.schema_version == version


# ---------------------------------------------------------------- bounds


def test_the_whole_is_bounded() -> None:
    data = lines(*WHOLE)
    assert parse(data, Limits(total=len(data))).faults == []
    with pytest.raises(WireError, match=f"the result has {len(data)} bytes; at most {len(data) - 1} are read"):
        parse(data, Limits(total=len(data) - 1))


def test_a_line_is_bounded() -> None:
    long = json.dumps({**CELL, "function": "softmax", "message": "x" * 2000})
    result = parse(lines(*WHOLE, long), Limits(line=2000))
    assert result.faults == [f"line 7: {len(long)} bytes; at most 2000 are read"]
    assert len(result.cells) == 1


@pytest.mark.parametrize("filler", [b"\n", b"x\n", b'{"record": "new"}\n'])
def test_the_number_of_lines_is_bounded(filler: bytes) -> None:
    result = parse(lines(*WHOLE) + filler * 1000 + lines({**CELL, "function": "late"}), Limits(lines=10))
    assert result.faults[-1] == "more than 10 lines; the rest was left out"
    assert [cell.function for cell in result.cells] == ["matmul"]


def test_faults_are_bounded_and_counted() -> None:
    result = parse(lines(*WHOLE, *["x"] * 50), Limits(faults=5))
    assert len(result.faults) == 6
    assert result.faults[-1] == "and 45 more faults"


def test_names_of_unknown_fields_are_bounded_and_counted() -> None:
    many = {f"field{index}": 1 for index in range(50)}
    long = {"y" * 5000: 1}
    result = parse(lines(RUN, ARTIFACT, {**CELL, **many, **long}), Limits(unknown_fields=5))
    assert len(result.unknown_fields) == 6
    assert sum(result.unknown_fields.values()) == 51
    assert all(len(name) < 100 for name in result.unknown_fields)


# ---------------------------------------------------------------- not the whole


def test_a_refused_record_is_a_loss() -> None:
    result = parse(lines(*WHOLE[:5], {**CELL, "function": "softmax", "status": "splendid"}, {**END, "cells": 2}))
    assert len(result.cells) == 1
    assert result.incomplete == result.faults[0]
    assert (lack(result) or "").startswith("a part of the result cannot be used: line 6: CellRecord: status: ")
    assert part(result) == "partial"


def test_fewer_cells_than_the_end_record_counts_is_a_loss() -> None:
    """Each cell counts once, however often it was run."""
    end = {**END, "cells": 2}
    result = parse(lines(*WHOLE[:5], {**CELL, "attempts": 2}, end))
    assert result.incomplete == "the end record counts 2 cells; 1 came"
    assert parse(lines(*WHOLE[:5], {**CELL, "function": "softmax"}, end)).incomplete is None


def test_without_a_cell_there_is_no_part() -> None:
    assert part(parse(lines(RUN))) == "failed"


@pytest.mark.parametrize("fault", ["no device record", "other backend"])
def test_a_cell_is_never_counted_for_a_device_that_nobody_described(fault: str) -> None:
    device = {**DEVICE, "device": "cuda:0", "backend": "cpu"} if fault == "other backend" else DEVICE
    result = parse(lines(RUN, device, ARTIFACT, {**CELL, "device": "cuda:0"}, END))
    assert "cuda:0" not in [record.device for record in result.devices]
    assert "cells of cuda:0 came, and no device record of that name" in result.faults
    if fault == "other backend":
        assert result.incomplete == "line 2: device cuda:0 cannot be of backend cpu"


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "cpu"), ("cuda:1", "cuda"), ("cuda:0", "rocm"), ("xpu:0", "xpu"), ("mps", "mps")]
)
def test_names_that_torch_gives_fit_their_backends(device: str, backend: str) -> None:
    record = {**DEVICE, "device": device, "backend": backend}
    assert parse(lines(RUN, record, ARTIFACT, {**CELL, "device": device}, END)).faults == []


def test_nothing_computes_on_a_device_that_is_blocked() -> None:
    blocked = {**DEVICE, "status": "blocked", "reason": "device_lost"}
    result = parse(lines(RUN, blocked, ARTIFACT, CELL, END))
    assert result.faults == ["device cpu is blocked, and cells computed on it"] == [result.incomplete]
    idle = {**CELL, "status": "blocked", "graphs": [], "kinds": {}}
    assert parse(lines(RUN, blocked, idle, END)).faults == []


def test_cells_that_had_no_turn_need_no_device() -> None:
    """Where torch never answers, the payload cannot describe one."""
    idle = {**CELL, "status": "not_run", "graphs": [], "kinds": {}}
    assert parse(lines(RUN, idle, END)).faults == []


@pytest.mark.parametrize(("field", "what", "limits"), [
    ("device", "devices", Limits(devices=3)),
    ("function", "functions", Limits(functions=3)),
    ("variant", "functions", Limits(functions=3)),
])  # fmt: skip
def test_names_that_cost_a_row_or_a_column_are_bounded(field: str, what: str, limits: Limits) -> None:
    cells = [{**CELL, "graphs": [], field: f"cuda:{n}" if field == "device" else f"name{n}"} for n in range(50)]
    result = parse(lines(RUN, *cells), limits)
    assert len(result.cells) == 3
    assert result.incomplete == f"line 5: more than 3 {what}; this one was left out"


def test_devices_without_cells_are_bounded_too() -> None:
    devices = [{**DEVICE, "device": f"cuda:{n}", "backend": "cuda"} for n in range(DEFAULT_LIMITS.devices + 9)]
    assert len(parse(lines(RUN, *devices)).devices) == DEFAULT_LIMITS.devices


# ---------------------------------------------------------------- any bytes


def read_or_refused(data: bytes) -> None:
    try:
        result = parse(data, Limits(lines=50, faults=10))
    except WireError as error:
        assert error.message
    else:
        assert all(hashlib.sha256(text.encode()).hexdigest() == sha for sha, text in result.artifacts.items())


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_or_refused(data)


@given(st.data())
def test_a_result_with_any_damage_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(lines(*WHOLE))
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(whole)))
        stop = data.draw(st.integers(start, min(len(whole), start + 40)))
        whole[start:stop] = data.draw(st.binary(max_size=20) | st.sampled_from([b'"', b"{", b"[", b"NaN", b"\n"]))
    read_or_refused(bytes(whole))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=200)
@given(st.sampled_from(WHOLE), st.data())
def test_a_record_with_any_value_is_read_or_refused(record: dict[str, Any], data: st.DataObject) -> None:
    known = sorted(WIRE_RECORDS[record["record"]].model_fields)
    field = data.draw(st.sampled_from(known))
    changed = {**record, field: data.draw(_json)}
    read_or_refused(lines(*[changed if one is record else one for one in WHOLE]))


# ---------------------------------------------------------------- one vocabulary


def test_the_statuses_are_the_payloads() -> None:
    assert typing.get_args(Status) == tuple(probe_payload.STATUSES)
    assert set(probe_payload.RAN_STATUSES) <= set(probe_payload.STATUSES)


def test_the_payloads_words_fit_the_records() -> None:
    word = TypeAdapter(Word)
    for name in (*probe_payload.KINDS, *probe_payload.PHASES, *probe_payload.ROUTES, *probe_payload.REASONS):
        assert word.validate_python(name) == name
    assert set(probe_payload.CALLED_KINDS) < set(probe_payload.KINDS)


def test_each_record_is_found_by_the_word_that_it_carries() -> None:
    assert set(typing.get_args(WireRecord)) == set(WIRE_RECORDS.values())
    for name, record in WIRE_RECORDS.items():
        assert typing.get_args(record.model_fields["record"].annotation) == (name,)


def test_the_backends_are_those_of_the_documentation() -> None:
    assert set(typing.get_args(BackendName)) == {"cpu", "cuda", "rocm", "xpu", "mps"}
