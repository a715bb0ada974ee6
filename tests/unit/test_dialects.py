"""What both dialects share: characters made visible, marks, listings, words, the registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import probe_payload
from harness.dialects import DIALECTS, load
from harness.dialects.listing import MAX_LINES, MAX_WIDTH, listing
from harness.dialects.marks import cell_mark, kind_mark, legend, outcome_mark, status_mark
from harness.dialects.page import page
from harness.dialects.visible import visible
from harness.dialects.words import _DEVICE, _ENVIRONMENT, environment_facts, size, when
from harness.errors import UsageError
from harness.records import DeviceRecord, Environment
from tests import sample_report as s


def test_every_dialect_loads_and_a_wrong_name_lists_them() -> None:
    for name in DIALECTS:
        assert callable(load(name).render)
    with pytest.raises(UsageError) as error:
        load("word")
    assert error.value.hint == "use one of: gfm, html"


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x00", "\u2400"), ("\x1b[31m", "\u241b[31m"), ("\x7f", "\u2421"), ("\x85", "\u27e8U+0085\u27e9"),
        ("\u202e", "\u27e8U+202E\u27e9"), ("\u2066", "\u27e8U+2066\u27e9"), ("\ud800", "\u27e8U+D800\u27e9"),
        ("\u200b", "\u27e8U+200B\u27e9"), ("a\r\nb", "a\nb"), ("a\rb", "a\u240db"), ("\t\n", "\t\n"),
        ("é漢🙂", "é漢🙂"),
    ],
)  # fmt: skip
def test_visible(hidden: str, shown: str) -> None:
    assert visible(hidden) == shown


@given(st.text(st.characters()))
def test_visible_text_can_be_written_and_stays(value: str) -> None:
    shown = visible(value)
    shown.encode()
    assert visible(shown) == shown
    assert all(character.isprintable() or character in "\t\n" or ord(character) > 0x9F for character in shown)


def test_every_kind_and_status_of_the_payload_has_a_mark() -> None:
    assert all(kind_mark(kind).word == "unknown" for kind in ("unknown", "never heard of"))
    letters = [kind_mark(kind).letter for kind in probe_payload.KINDS]
    assert len(set(letters)) == len(letters)
    ran = ("generated", "mixed", "extern_only")
    statuses = [status_mark(status) for status in (*probe_payload.STATUSES, "unreachable") if status not in ran]
    assert "?" not in [mark.letter for mark in statuses]
    assert not {mark.letter for mark in statuses} & set(letters)


def test_a_mixed_cell_shows_its_parts() -> None:
    mark = cell_mark(s.cell("cpu", "f", status="mixed", kind="mixed", kinds={"aten_fallback": 1, "cpp": 2}))
    assert (mark.letter, mark.word, mark.css, mark.foot) == ("CA", "mixed", "k-cpp", "foot-aten")
    assert mark.spoken == "mixed: C++ / OpenMP + fallback"


def test_a_host_that_failed_is_not_a_broken_cell() -> None:
    assert outcome_mark("timeout").css == "k-block"
    assert status_mark("timeout").css == "k-bad"


def test_legend_counts_cells_and_hosts() -> None:
    report, _ = s.sample()
    counts = {entry.mark.word: entry.count for entry in legend(report)}
    assert counts == {"triton": 5, "cpp": 7, "metal": 2, "extern": 7, "ATen": 3, "failed": 1, "wrong": 1, "crashed": 1,
                      "blocked": 1, "unreachable": 1}  # fmt: skip


@pytest.mark.parametrize("name", ["2.13-cpu/softmax.py", "2.13-cuda/softmax.py", "2.13-mps/softmax.py",
                                  "2.13-cpu/matmul.py", "2.6.0-modes/cppwrapper_softmax.txt"])  # fmt: skip
def test_a_listing_loses_no_line(name: str) -> None:
    raw = s.text(name)
    deciding = {item["line"] for item in probe_payload.classify(raw).evidence}
    shown = listing(raw, "python", deciding)
    lines = [line for part in shown.parts for line in part.lines]
    assert [line.text for line in lines] == raw.removesuffix("\n").split("\n")
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert {line.number for line in lines if line.deciding} == deciding
    assert not any(line.deciding for part in shown.parts if part.fold for line in part.lines)


@pytest.mark.parametrize(("folder", "language"), [("2.13-cpu", "cpp"), ("2.13-cuda", "python"), ("2.13-mps", "cpp")])
def test_kernels_are_in_their_language_and_boilerplate_is_folded(folder: str, language: str) -> None:
    parts = listing(s.text(f"{folder}/softmax.py"), "python").parts
    kernel = next(part for part in parts if any("tmp0" in line.text for line in part.lines))
    assert kernel.language == language
    assert [part.fold for part in parts if part.fold] == ["imports and aliases", "runner and benchmark"]


@given(st.text(st.sampled_from("a='\"r\n(_.")))
def test_any_text_can_be_listed(raw: str) -> None:
    raw = "k = async_compile.cpp(" + raw
    lines = [line.text for part in listing(raw, "python").parts for line in part.lines]
    assert lines == raw.removesuffix("\n").split("\n")


def test_a_listing_has_limits() -> None:
    shown = listing("x\n" * (MAX_LINES + 5) + "y", "python")
    assert shown.left_out == 6
    (part,) = listing("x" * (MAX_WIDTH + 1234), "python").parts
    assert part.lines[0].text.endswith("… 1,234 more characters")


def test_every_fact_of_the_records_has_a_label() -> None:
    apart = {"record", "env_set", "env_cleared", "backends", "fingerprint_covers", "startup", "unknown"}
    assert set(Environment.model_fields) == set(_ENVIRONMENT) | apart
    apart = {"record", "device", "backend", "index", "status", "reason", "message", "hint", "unknown"}
    assert set(DeviceRecord.model_fields) == set(_DEVICE) | apart


def test_an_unknown_fact_says_why() -> None:
    facts = dict(environment_facts(s.environment("2.13.0")))
    assert facts["machine"] == "unknown: no DMI table"
    assert facts["CPU"] == "unknown: not reported"
    assert facts["memory"] == "64 GiB"
    assert facts["cleared: TORCHINDUCTOR_MAX_AUTOTUNE"] == "1"


def test_sizes_and_times() -> None:
    assert [size(n) for n in (0, 1023, 48 * 1024, 3 * 2**29)] == ["0 bytes", "1,023 bytes", "48 KiB", "1.5 GiB"]
    assert when("2026-11-30T10:14:00+01:00") == "30 Nov 2026, 09:14 UTC"
    assert when("yesterday") == "yesterday"


def test_equal_code_is_listed_once_and_evidence_points_only_where_it_is_true() -> None:
    code = s.text("2.13-cpu/softmax.py")
    shifted = "# AOT ID: ['0_inference']\n" + code
    results = {
        f"{host}/native": (
            s.outcome(host),
            s.result(s.environment("2.13.0"), [s.device("cpu", "cpu")], [s.cell("cpu", "softmax", text)], text),
        )
        for host, text in (("a", code), ("b", shifted))
    }
    report = s.build(s.manifest(results), results)
    shown = page(report, s.code_texts(results))
    assert len(shown.codes) == 1
    assert shown.codes[0].texts == 2
    assert {item.listing for item in shown.cells[0].evidence} == {1}
    assert {item.listing for item in shown.cells[1].evidence} == {None}
    assert [link.label for link in shown.cells[0].equal] == ["b cpu softmax f32"]
