"""Results -> rows, columns, keys, groups and sentences."""

from __future__ import annotations

import pytest

from harness import matrix
from harness.matrix import build, cell_key, code_texts
from harness.records import DeviceRecord, Environment, Outcome, Report, Result
from tests import sample_report as s


def test_rows_follow_the_inventory_and_every_blank_says_why() -> None:
    report, _ = s.sample()
    assert [(row.host, row.device) for row in report.rows] == [
        ("localhost", "cpu"), ("cpu-epyc-01", "cpu"), ("mac-m3", "mps"), ("gpu-h200", "cpu"), ("gpu-h200", "cuda:0"),
        ("gpu-t4", "cuda:0"), ("xpu-arc", "xpu:0"), ("amd-mi300", ""), ("cpu-old", "cpu"),
    ]  # fmt: skip
    for row in report.rows:
        assert len(row.cells) == len(report.columns)
        assert bool(row.blank) == (None in row.cells)
    facts = {(row.host, row.device): row.fact for row in report.rows}
    assert facts["localhost", "cpu"] == "avx2"
    assert facts["gpu-t4", "cuda:0"] == "sm_75"
    assert facts["xpu-arc", "xpu:0"] == "blocked"


def test_columns_come_in_the_payloads_order() -> None:
    cells = [s.cell("cpu", name) for name in ("zeta", "softmax", "matmul")]
    results = {"a/native": (s.outcome("a"), s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")], cells))}
    report = build(s.manifest(results), results)
    assert [column.function for column in report.columns] == ["matmul", "softmax", "zeta"]


def test_keys_and_commands() -> None:
    report, _ = s.sample()
    cell = next(cell for cell in report.cells if cell.host == "gpu-t4" and cell.cell.function == "sort")
    assert cell.key == "gpu-t4/native/cuda:0@2.12.1+cu126/sort~f32"
    assert cell.command == "atlas probe gpu-t4 --device cuda:0 --function sort"
    assert len({cell.key for cell in report.cells}) == len(report.cells)


def test_a_hosts_torch_version_cannot_break_a_key() -> None:
    assert cell_key("a", "native", "1/../~@<b>", s.cell("cpu", "matmul")) == "a/native/cpu@1_..____b_/matmul~f32"
    assert cell_key("a", "native", None, s.cell("cpu", "matmul")).startswith("a/native/cpu@unknown/")


def test_equal_code_is_one_group_whatever_the_threads() -> None:
    wide = s.text("2.13-cpu/softmax.py")
    other = "# AOT ID: ['3_inference']\n" + wide.replace("omp parallel", "omp parallel num_threads(4)")
    third = wide.replace("omp parallel", "omp parallel num_threads(9)")
    results = {
        f"{host}/native": (
            s.outcome(host),
            s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")], [s.cell("cpu", "softmax", code)], code),
        )
        for host, code in (("a", other), ("b", third), ("c", wide))
    }
    report = build(s.manifest(results), results)
    assert [group.cells for group in report.groups] == [
        tuple(cell.key for cell in report.cells[:2]), (report.cells[2].key,)
    ]  # fmt: skip
    assert len(report.codes) == 3
    assert len({code.normal for code in report.codes}) == 2


def test_without_its_text_a_cell_belongs_to_no_group() -> None:
    code = s.text("2.13-cpu/softmax.py")
    results = {"a/native": (s.outcome("a"), s.result(
        s.environment("2.13.0"), [s.device("cpu", "cpu")], [s.cell("cpu", "softmax", code)]))}  # fmt: skip
    report = build(s.manifest(results), results)
    assert report.cells[0].group is None
    assert report.codes == ()
    assert code_texts(results) == {}


def test_the_last_attempt_counts() -> None:
    cells = [
        s.cell("cpu", "matmul", status="failed"),
        s.cell("cpu", "matmul", s.text("2.13-cpu/matmul.py"), attempts=2),
    ]
    results = {"a/native": (s.outcome("a"), s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")], cells))}
    report = build(s.manifest(results), results)
    assert [cell.cell.status for cell in report.cells] == ["extern_only"]


@pytest.mark.parametrize(
    ("statuses", "title"),
    [
        (["answered"], "h0 answered."),
        (["partial"], "h0 answered in part."),
        (["unreachable"], "h0 did not answer: unreachable."),
        (["not_run"], "h0 did not answer: not run."),
        (["answered", "answered"], "2 of 2 hosts answered."),
        (["answered", "blocked", "unreachable", "blocked"], "1 of 4 hosts answered; 2 blocked, 1 unreachable."),
        (["partial", "timeout"], "1 of 2 hosts answered (1 in part); 1 timeout."),
    ],
)
def test_titles(statuses: list[str], title: str) -> None:
    results: dict[str, tuple[Outcome, Result | None]] = {
        f"h{number}/native": (s.outcome(f"h{number}", status), None) for number, status in enumerate(statuses)
    }
    assert build(s.manifest(results), results).title == title


def test_summary_names_what_is_broken_and_what_is_generated() -> None:
    report, _ = s.sample()
    assert report.title == "6 of 8 hosts answered (1 in part); 1 blocked, 1 unreachable."
    assert report.summary == (
        "3 cells are broken. Where Inductor generates code it is C++ on CPU, Metal on MPS and Triton on CUDA."
    )


def test_a_killed_run_has_a_report() -> None:
    jobs = ["a/native", "b/native"]
    report = build(s.manifest(dict.fromkeys(jobs)), {})
    assert report.ended is None
    assert [row.blank for row in report.rows] == ["the run ended before its turn"] * 2
    assert report.summary == "No cell has a result."


def test_a_report_survives_its_json() -> None:
    report, _ = s.sample()
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_size_is_linear_in_cells() -> None:
    """Four times the hosts with one kernel: about four times the report, never sixteen."""

    def size(hosts: int) -> int:
        code = s.text("2.13-cpu/softmax.py")
        one = s.result(
            Environment(record="environment"), [s.device("cpu", "cpu")], [s.cell("cpu", "softmax", code)], code
        )
        results = {f"h{number}/native": (s.outcome(f"h{number}"), one) for number in range(hosts)}
        return len(build(s.manifest(results), results).model_dump_json())

    assert size(200) < 4.5 * size(50)


def distinct(host: str, devices: int, functions: int) -> Result:
    """A result in which no name of a device or function is any other host's."""
    cells = [s.cell(f"cuda:{d}", f"{host}_{f}") for d in range(devices) for f in range(functions)]
    return s.result(s.environment("2.13.0"), [s.device(f"cuda:{d}", "cuda") for d in range(devices)], cells)


@pytest.mark.parametrize("shape", [(1, 40), (8, 5)], ids=["functions", "devices and functions"])
def test_the_report_grows_with_the_cells_also_where_each_name_is_new(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "PLACES", 2000)

    def size(hosts: int) -> int:
        results = {f"h{n}/native": (s.outcome(f"h{n}"), distinct(f"h{n}", *shape)) for n in range(hosts)}
        report = build(s.manifest(results), results)
        assert len(report.rows) * len(report.columns) <= max(2000, 3 * len(report.rows))
        assert len(report.cells) == hosts * 40, "what has no column is kept all the same"
        return len(report.model_dump_json())

    assert size(120) < 4.5 * size(30)


def test_what_most_hosts_have_keeps_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "PLACES", 20)
    honest = s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")],
                      [s.cell("cpu", name) for name in ("matmul", "sort")])  # fmt: skip
    results = {"liar/native": (s.outcome("liar"), distinct("liar", 2, 30))}
    results |= {f"h{n}/native": (s.outcome(f"h{n}"), honest) for n in range(3)}
    report = build(s.manifest(results), results)
    assert [column.function for column in report.columns] == ["matmul", "liar_0", "liar_1", "sort"]
    assert report.summary.endswith("28 functions more than the table holds have no column.")


def test_a_row_whose_functions_have_no_column_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "PLACES", 3)
    results = {f"h{n}/native": (s.outcome(f"h{n}"), distinct(f"h{n}", 1, 3)) for n in range(2)}
    first, second = build(s.manifest(results), results).rows
    assert any(first.cells)
    assert second.blank == "its cells are below: the table has no column for their functions"


def test_a_blank_names_the_fault_that_may_have_made_it() -> None:
    made = s.result(s.environment("2.13.0"), [s.device("cpu", "cpu"), s.device("mps", "mps")],
                    [s.cell("cpu", "matmul")]).model_copy(update={"incomplete": "line 7: cut short"})  # fmt: skip
    results = {"a/native": (s.outcome("a", "partial"), made)}
    _, row = build(s.manifest(results), results).rows
    assert row.blank == "a part of the result cannot be used: line 7: cut short"


@pytest.mark.parametrize("devices", [[], [s.device("cpu", "cpu", status="blocked")]], ids=["undescribed", "blocked"])
def test_kinds_are_not_counted_for_a_device_that_is_none(devices: list[DeviceRecord]) -> None:
    code = s.text("2.13-cpu/softmax.py")
    made = s.result(s.environment("2.13.0"), devices, [s.cell("cpu", "softmax", code)], code)
    results = {"a/native": (s.outcome("a", "partial"), made)}
    report = build(s.manifest(results), results)
    assert report.summary == "No cell is broken. Inductor generated no kernel."
    assert report.rows[0].status != "ok"
    assert len(report.cells) == 1
