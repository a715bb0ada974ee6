"""Sentences, each tied to its cells; and which fact separates groups of code."""

from __future__ import annotations

from typing import Any

import pytest

from harness.findings import add
from harness.findings.broken import is_command
from harness.findings.separate import separate
from harness.matrix import build
from harness.records import CellRecord, Environment, Finding, Result
from tests import sample_report as s


def findings(results: dict[str, Any], group: str) -> list[Finding]:
    report = add(build(s.manifest(results), results))
    known = {cell.key for cell in report.cells}
    assert all(key in known for finding in report.findings for key in finding.cells)
    assert all(finding.sentence.startswith(finding.subject) for finding in report.findings)
    assert len({finding.id for finding in report.findings}) == len(report.findings)
    return [finding for finding in report.findings if finding.group == group]


def one(cells: list[CellRecord], *codes: str, **fields: Any) -> dict[str, Any]:
    return {
        "a/native": (
            s.outcome("a", **fields),
            s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")], cells, *codes),
        )
    }


def fleet_of(code_by_host: dict[str, tuple[str, Environment]]) -> dict[str, Any]:
    return {
        f"{host}/native": (
            s.outcome(host),
            s.result(env, [s.device("cpu", "cpu")], [s.cell("cpu", "softmax", code)], code),
        )
        for host, (code, env) in code_by_host.items()
    }


def test_broken_of_the_sample() -> None:
    found = findings(s.fleet(), "broken")
    assert [finding.sentence for finding in found] == [
        "sort does not compile on gpu-t4 cuda:0: no kernel configuration fits the device's resources.",
        "sort gives a wrong result on mac-m3 mps: off by 3.1e-2 where 1.0e-2 is allowed.",
        "softmax crashed on cpu-old cpu: killed by SIGSEGV in phase compile.",
    ]
    assert found[0].detail is not None
    assert found[0].detail.startswith("OutOfResources")
    assert [finding.command for finding in found][1] == "atlas probe mac-m3 --device mps --function sort"


def test_one_way_of_breaking_is_one_finding_however_many_hosts() -> None:
    cell = s.cell("cpu", "matmul", status="timeout", reason="deadline", phase="compile")
    results = {f"h{n}/native": (s.outcome(f"h{n}"), s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")], [cell]))
               for n in range(9)}  # fmt: skip
    (found,) = findings(results, "broken")
    assert found.sentence == (
        "matmul did not finish on h0 cpu, h1 cpu, h2 cpu and 6 more: the deadline passed in phase compile."
    )
    assert len(found.cells) == len(found.hosts) == 9


def test_not_ready_names_what_mends_it_and_where() -> None:
    host, device = findings(s.fleet(), "not_ready")
    assert host.sentence == "amd-mi300 could not be reached: no answer on port 22 (3 tries, 15 s each)."
    assert (host.command, host.command_on) == ("ssh -v amd-mi300", "")
    assert device.sentence == (
        "xpu-arc xpu:0 is blocked: user lab may not open /dev/dri/renderD128, so torch sees no XPU."
    )
    assert (device.command, device.command_on) == ('sudo usermod -aG render "$USER"', "xpu-arc")


def test_cells_blocked_on_a_good_device() -> None:
    cells = [
        s.cell("cpu", name, status="blocked", reason="no_cxx", hint="sudo apt install g++") for name in s.FUNCTIONS[:2]
    ]
    (found,) = findings(one(cells), "not_ready")
    assert found.sentence == "a cannot compile matmul and pointwise: no working C++ compiler."
    assert found.command == "sudo apt install g++"
    assert len(found.cells) == 2


def test_a_host_without_a_hint_still_gets_a_command() -> None:
    results: dict[str, Any] = {"a/native": (s.outcome("a", "timeout", reason="deadline"), None)}
    (found,) = findings(results, "not_ready")
    assert found.sentence == "a did not end by the deadline: the deadline passed."
    assert found.command == "atlas probe a"


def test_differs_names_the_fact() -> None:
    cpu, cuda = findings(s.fleet(), "differs")
    assert cpu.sentence == "pointwise and softmax come in two texts on CPU."
    assert cpu.detail == "Follows vector ISA: avx512 | avx2."
    assert cuda.sentence == "matmul, pointwise, softmax and sort come in two texts on CUDA."
    assert cuda.detail == (
        "Several facts separate the groups and cannot be told apart: torch: 2.13.0+cu126 | 2.12.1+cu126; "
        "Triton: 3.7.1 | 3.7.0; capability: sm_90 | sm_75."
    )


def test_differs_says_when_no_fact_separates() -> None:
    wide = s.text("2.13-cpu/softmax.py")
    env = s.environment("2.13.0", vector_isa="avx512")
    (found,) = findings(fleet_of({"a": (wide, env), "b": (s.avx2(wide), env)}), "differs")
    assert found.detail == "No recorded fact separates the groups: a cpu; b cpu."


def test_differs_says_when_kinds_differ() -> None:
    kinds = {"a": (s.text("2.13-cpu/softmax.py"), s.environment("2.13.0")),
             "b": (s.text("2.13-cpu/matmul.py"), s.environment("2.12.1"))}  # fmt: skip
    (found,) = findings(fleet_of(kinds), "differs")
    assert found.sentence == (
        "softmax comes in two texts on CPU, of different kinds: C++ / OpenMP | extern kernel (no Inductor codegen)."
    )
    assert found.detail == "Follows torch: 2.13.0 | 2.12.1."


@pytest.mark.parametrize(
    ("groups", "facts", "pairs", "exact"),
    [
        ([[{"t": "1"}, {"t": "1"}], [{"t": "2"}]], ("t",), (), True),
        ([[{"t": "1"}, {"t": "3"}], [{"t": "2"}]], ("t",), (), False),
        # An exact fact is named alone, although the other, too, has no value in both groups.
        ([[{"t": "1", "n": "6"}, {"t": "1", "n": "8"}], [{"t": "2", "n": "9"}]], ("t",), (), True),
        ([[{"t": "1"}], [{"t": "1"}]], (), (), False),
        ([[{"t": None}], [{"t": "2"}]], (), (), False),
        (
            [[{"t": "1", "i": "a"}], [{"t": "1", "i": "b"}], [{"t": "2", "i": "a"}]],
            (), (("t", "i"),), False,
        ),
    ],
)  # fmt: skip
def test_separate(groups: Any, facts: tuple[str, ...], pairs: tuple[Any, ...], exact: bool) -> None:
    found = separate(groups)
    assert (found.facts, found.pairs, found.exact) == (facts, pairs, exact)


def test_agreement() -> None:
    sentences = [finding.sentence for finding in findings(s.fleet(), "notable")]
    assert "matmul has identical code on all 4 hosts that ran it (CPU)." in sentences


def test_notable_of_one_odd_cell() -> None:
    fallback = s.text("2.13-cpu/sort.py")
    cells = [
        s.cell("cpu", "sort", fallback, graph_breaks=2, break_reasons=["print"], attempts=2, routes=[
            {"name": "run_and_get_code", "codes": 1}, {"name": "output_code_log", "codes": 2, "agrees": False}]),
        s.cell("cpu", "matmul", status="eager_fallback", reason="suppressed_error"),
        s.cell("cpu", "softmax", s.text("2.13-cpu/softmax.py"), kinds={"warp": 1}, kind="warp"),
    ]  # fmt: skip
    results = one(cells, fallback, left_behind="/tmp/atlas-1", payload_sha256="00" * 32)
    answer, result = results["a/native"]
    odd: Result = result.model_copy(update={"unknown_fields": {"CellRecord.colour": 3}, "faults": ["line 7: not JSON"]})
    sentences = [finding.sentence for finding in findings({"a/native": (answer, odd)}, "notable")]
    assert sentences == [
        "matmul runs in eager mode instead of compiled on a cpu: Dynamo suppressed a compile error and ran eager.",
        "sort has 2 graph breaks and compiles to 1 graph on a cpu.",
        "aten.sort.stable is not generated: sort falls back to ATen on 1 device (CPU).",
        "softmax holds code of a generator that is not known here (warp) on a cpu.",
        "sort was captured differently by output_code_log on a cpu.",
        "sort took 2 attempts on a cpu.",
        "a ran another payload than the one sent: 5d5d5d5d5d5d instead of 000000000000.",
        "a sent fields that this version does not know and leaves out: CellRecord.colour.",
        "a sent 1 line that could not be read.",
        "a still holds files of this run: /tmp/atlas-1.",
    ]


def test_a_result_that_was_cut_short_says_so() -> None:
    sentences = [finding.sentence for finding in findings(s.fleet(), "notable")]
    assert "cpu-old was cut short: the deadline of 600 s passed. The cells that came are shown." in sentences


def test_device_blocks_keep_the_originals_form() -> None:
    blocks = findings(s.fleet(), "device")
    mps = next(block for block in blocks if block.subject == "mac-m3 mps")
    assert mps.sentence == "mac-m3 mps (Apple M3 Pro), torch 2.13.0"
    assert [(line.label, line.value) for line in mps.block] == [
        ("Inductor-generated kernels", "Metal / MPS"),
        ("Triton emitted here", "no"),
        ("handed to an extern library", "matmul (a@b)"),
        ("fell back to ATen", "sort"),
        ("ended otherwise", "sort (wrong)"),
    ]


@pytest.mark.parametrize(
    ("hint", "is_one"),
    [
        ("sudo apt-get install -y g++", True),
        ("/opt/venv/bin/python -m pip install torch", True),
        ("ssh-add ~/.ssh/id_lab", True),
        ("start sshd there, or correct `port` in hosts.yaml", False),
        ("only if you know why (a new installation), type: ssh-keygen -R lab1", False),
        ("install an XPU build of torch, see https://pytorch.org/get-started", False),
        ("reboot, or install the driver that fits this CUDA", False),
        ("", False),
    ],
)
def test_only_what_can_be_pasted_is_a_command(hint: str, is_one: bool) -> None:
    assert is_command(hint) is is_one
