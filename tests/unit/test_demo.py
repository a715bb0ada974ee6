"""What the demonstration expects of its machines."""

from __future__ import annotations

from harness import demo
from harness.findings import add
from harness.matrix import build
from harness.outputs import exit_code
from harness.records import Outcome, Report, Result
from tests import sample_report


def report(**others: tuple[str, str | None]) -> Report:
    """A report of the demonstration in which the others end as they must; their names have _ for -."""
    results: dict[str, tuple[Outcome, Result | None]] = {}
    for name, machine in demo.MACHINES.items():
        status, reason = others.get(name.replace("-", "_"), (machine.ends, machine.reason))
        cells = [sample_report.cell("cpu", "matmul", sample_report.text("2.13-cpu/matmul.py"))]
        made = sample_report.result(sample_report.environment("2.13.0"), [sample_report.device("cpu", "cpu")], cells)
        outcome = sample_report.outcome(name, status).model_copy(update={"reason": reason})
        results[f"{name}/native"] = outcome, made if status == "answered" else None
    return add(build(sample_report.manifest(results), results))


def test_it_ends_as_it_must() -> None:
    assert demo.surprises(report()) == []
    assert exit_code(report()) == 4


def test_what_ends_otherwise_is_named() -> None:
    made = report(good_2=("failed", "no_result"), down=("answered", None), wrong_key=("unreachable", "host_key"))
    assert demo.surprises(made) == [
        "good-2 ended as failed no_result, not as answered",
        "wrong-key ended as unreachable host_key, not as unreachable host_key_changed",
        "down ended as answered, not as unreachable unreachable",
    ]


def test_a_machine_without_a_row_is_named() -> None:
    made = report()
    less = made.model_copy(update={"targets": made.targets[1:]})
    assert demo.surprises(less) == ["good-1 ended as absent, not as answered"]
