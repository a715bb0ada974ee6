"""Functions at their worst: each costs its own cell, and the cell says what it was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probe_payload import list_functions
from tests.payload.runs import HERE, LAB, Run, run_payload


def test_every_function_has_a_row_and_the_run_its_end(hazards: Run) -> None:
    result = hazards.result
    assert {cell.function for cell in result.cells} == set(list_functions(HERE / "hazards.py"))
    assert result.faults == [] and result.unknown_fields == {}
    assert result.end is not None and result.end.reason is None
    assert hazards.code == 1


def test_nothing_of_it_lives_on(hazards: Run) -> None:
    assert hazards.left() == []


def test_nothing_of_it_stays_on_disk(hazards: Run, folder: Path) -> None:
    assert [path.name for path in (folder / "hazards").iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize(
    ("function", "status", "reason", "word"),
    [
        ("segfault", "crashed", "signal", "SIGSEGV"),
        ("abort", "crashed", "signal", "SIGABRT"),
        ("hang", "timeout", "hang", "deadline"),
        ("escape", "timeout", "hang", "deadline"),
        ("leave_with_0", "crashed", "exited", "code 0"),
        ("leave_with_3", "crashed", "exited", "code 3"),
        ("system_exit", "crashed", "exited", "code 1"),
        ("chatter", "crashed", "output_size", "printed"),
        ("big_file", "crashed", "file_size", "file"),
        ("many_files", "crashed", "directory_size", "directory"),
        ("kill_guard", "failed", "isolation", "died"),
        ("memory", "failed", "host_memory", "allocate memory"),
        ("bad_inputs", "failed", "pack", "weights.bin"),
        ("raises", "failed", "eager_error", "no such luck"),
        ("bad_shapes", "failed", "eager_error", "3x3"),
        ("half_inverse", "unsupported", "dtype", ""),
        ("pipe_in_the_way", "crashed", "signal", "SIGKILL"),
        ("no_log", "failed", "eager_error", "without a log"),
        ("odd_words", "failed", "eager_error", "bad name ?"),
    ],
)
def test_what_went_wrong_is_said(hazards: Run, function: str, status: str, reason: str, word: str) -> None:
    cell = hazards.cell(function)
    assert (cell.status, cell.reason) == (status, reason)
    assert cell.message and word in cell.message
    if function == "pipe_in_the_way":
        return  # it took away what says so
    reached = {"pack": "inputs", "isolation": "compile", "signal": "compile", "exited": "compile", "hang": "compile"}
    assert cell.phase == reached.get(reason, cell.phase)


@pytest.mark.parametrize(
    ("function", "code", "signal"),
    [
        ("segfault", None, "SIGSEGV"),
        ("abort", None, "SIGABRT"),
        ("hang", None, "SIGKILL"),
        ("leave_with_0", 0, None),
        ("leave_with_3", 3, None),
        ("big_file", None, "SIGXFSZ"),
    ],
)
def test_how_the_process_ended_is_kept(hazards: Run, function: str, code: int | None, signal: str | None) -> None:
    ended = hazards.cell(function).exit
    assert ended is not None
    assert (ended.code, ended.signal) == (code, signal)
    assert ended.cpu_s is not None and ended.memory_bytes


def test_the_tail_of_what_it_printed_is_kept(hazards: Run) -> None:
    assert "last words" in str(hazards.cell("leave_with_3").stderr_tail)
    assert "enough" in str(hazards.cell("system_exit").stderr_tail)
    # faulthandler says where it was.
    assert "in segfault" in str(hazards.cell("segfault").stderr_tail)
    assert set(str(hazards.cell("chatter").stderr_tail)) == {"x"}
    assert len(str(hazards.cell("chatter").stderr_tail)) <= 4000


def test_a_cell_that_leaves_a_child_is_a_good_cell(hazards: Run) -> None:
    assert hazards.cell("leave_children").status == "generated"


@pytest.mark.parametrize(
    ("function", "status", "reason", "kinds", "breaks"),
    [
        ("identity", "no_graph", None, {}, 0),
        ("only_break", "no_graph", "graph_break", {}, 1),
        ("dead_code", "no_graph", "graph_break", {}, 1),
        ("view", "view_only", None, {}, 0),
        ("sort", "extern_only", None, {"aten_fallback": 1}, 0),
        ("mixed", "mixed", None, {"cpp": 1, "extern": 1}, 0),
        ("wrong", "wrong", "tolerance", {"extern": 1}, 0),
        ("suppressed", "eager_fallback", "suppressed_error", {"cpp": 1}, 0),
        ("recompile", "eager_fallback", "recompile_limit", {"aten_fallback": 8}, 1),
        ("compile_disabled", "eager_fallback", "compile_disabled", {}, 0),
        ("in_place", "generated", None, {"cpp": 1}, 0),
        ("breaks", "extern_only", None, {"aten_fallback": 1, "extern": 2}, 2),
        ("same_twice", "extern_only", None, {"extern": 2}, 1),
        ("complex_numbers", "extern_only", None, {"aten_fallback": 5}, 0),
        ("train", "generated", None, {"cpp": 3}, 3),
    ],
)
def test_how_a_call_ended(
    hazards: Run, function: str, status: str, reason: str | None, kinds: dict[str, int], breaks: int
) -> None:
    cell = hazards.cell(function)
    assert (cell.status, cell.reason, cell.kinds, cell.graph_breaks) == (status, reason, kinds, breaks)
    assert cell.phase == "done"
    assert bool(cell.break_reasons) == bool(breaks)


def test_the_result_is_compared_with_eager(hazards: Run) -> None:
    for function in ("sort", "mixed", "breaks", "complex_numbers", "train", "view", "identity"):
        correctness = hazards.cell(function).correctness
        assert correctness is not None and correctness.verdict in ("equal", "close"), function
    correctness = hazards.cell("wrong").correctness
    assert correctness is not None
    assert correctness.verdict == "wrong"
    assert correctness.max_abs == pytest.approx(1.0, abs=1e-3)


def test_an_input_that_is_changed_is_compared_too(hazards: Run) -> None:
    correctness = hazards.cell("in_place").correctness
    assert correctness is not None and correctness.verdict == "equal"


def test_random_numbers_are_no_mistake(hazards: Run) -> None:
    cell = hazards.cell("dropout")
    assert cell.status == "mixed" and cell.kinds["cpp"] == 1
    assert cell.correctness is not None and cell.correctness.verdict == "not_compared"
    assert "random" in str(cell.correctness.message)


def test_every_graph_of_a_function_with_breaks_is_kept_in_order(hazards: Run) -> None:
    cell = hazards.cell("breaks")
    assert [graph.index for graph in cell.graphs] == [0, 1, 2]
    first, second, third = hazards.codes("breaks")
    assert "extern_kernels.mm(" in first and "extern_kernels.mm(" in third
    assert "torch.ops.aten.sort" in second
    assert [(call.graph, call.kind) for call in cell.calls] == [(0, "extern"), (1, "aten_fallback"), (2, "extern")]
    assert cell.break_reasons and all(cell.break_reasons)


def test_roles(hazards: Run) -> None:
    assert [graph.role for graph in hazards.cell("train").graphs] == ["inference", "forward", "backward"]


def test_equal_graphs_are_both_kept(hazards: Run) -> None:
    one, other = hazards.codes("same_twice")
    strip = re.compile(r"^# AOT ID.*$", re.MULTILINE)
    assert strip.sub("", one) == strip.sub("", other)


def test_the_lab_s_own_settings_are_recorded_and_do_nothing(hazards: Run) -> None:
    environment = hazards.result.environment
    assert environment is not None
    assert {name: environment.env_cleared.get(name) for name in LAB} == LAB
    # With TORCHDYNAMO_DISABLE, or with errors suppressed, none of these would be what it is.
    assert hazards.cell("mixed").status == "mixed"
    assert all(not cell.cache_hits for cell in hazards.result.cells)


# ---------------------------------------------------------------- neighbours


@pytest.fixture(scope="session")
def neighbours(folder: Path) -> Run:
    mark = folder / "victim-failed-once"
    return run_payload(
        folder / "neighbours", "--functions", str(HERE / "neighbours.py"), "--jobs", "2", "--cell-megabytes", "24",
        environment={"HAZARD_MARK": str(mark)},
    )  # fmt: skip


def test_a_cell_that_failed_beside_one_that_exhausted_the_machine_is_rerun(neighbours: Run) -> None:
    assert neighbours.cell("filler").reason == "directory_size"
    victim = neighbours.cell("victim")
    assert (victim.attempts, victim.status) == (2, "extern_only")
    assert neighbours.result.replaced == 1
    assert b"not the first time" in neighbours.data


def test_the_one_that_exhausted_it_is_not_rerun(neighbours: Run) -> None:
    assert neighbours.cell("filler").attempts == 1
    assert neighbours.code == 1
