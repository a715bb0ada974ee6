"""What a person sees on a CPU has the layout of the original probe's recorded output (tests/data/seed)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.payload.runs import Run

SEED = (Path(__file__).parents[1] / "data" / "seed" / "m3-pro.txt").read_text(encoding="utf-8")
SUMMARY = re.compile(r"^(\w+)\s*\| (.+?) -> (.+) \((\w+)\)$")


def squeezed(text: str) -> list[str]:
    """Lines that say something, white space collapsed."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def titles(text: str) -> list[str]:
    """Lines between two rules, but for the blocks of a device that is not a CPU."""
    lines = squeezed(text)
    found = [
        lines[n + 1]
        for n in range(len(lines) - 2)
        if re.fullmatch(r"={70}|-{70}", lines[n]) and lines[n] == lines[n + 2]
    ]
    return [title for title in found if not title.startswith("[mps]")]


def section(text: str, title: str) -> list[str]:
    """The lines below a title, to the next rule."""
    lines = squeezed(text)
    start = next(n for n, line in enumerate(lines) if line.startswith(title) and lines[n - 1][0] in "=-") + 2
    end = next((n for n in range(start, len(lines)) if re.fullmatch(r"={70}|-{70}", lines[n])), len(lines))
    return lines[start:end]


def labels(lines: list[str], pattern: str) -> list[str]:
    return [match[1] for line in lines if (match := re.match(pattern, line))]


def test_the_same_sections_in_the_same_order(printed: Run) -> None:
    assert printed.code == 0
    assert titles(printed.printed) == titles(SEED)


def test_environment_has_the_original_labels(printed: Run) -> None:
    pattern = r"(.+?) \.+ |(devices probed):"
    ours, original = section(printed.printed, "ENVIRONMENT"), section(SEED, "ENVIRONMENT")
    assert labels(ours, pattern)[: len(labels(original, pattern))] == labels(original, pattern)
    assert "default torch.compile backend . 'inductor'" in ours
    assert [line for line in ours if line.startswith(("cuda available", "xpu available"))] == [
        line for line in original if line.startswith(("cuda available", "xpu available"))
    ]
    assert any(line.startswith("- cpu ") for line in ours)


@pytest.mark.parametrize(
    "title", ["[cpu] matmul (a@b)", "[cpu] pointwise (a*b+c).relu()", "[cpu] reduction softmax(a,-1)"]
)
def test_blocks_have_the_original_labels_and_kinds(printed: Run, title: str) -> None:
    ours, original = section(printed.printed, title), section(SEED, title)
    assert ours[0] == original[0]  # codegen kind
    assert ours[1].startswith("captured via : ") and original[1].startswith("captured via : ")
    assert ours[2] == original[2] == "generated kernel (excerpt):"
    assert re.fullmatch(r"\(from line \d+\)", ours[3]) and re.fullmatch(r"\(from line \d+\)", original[3])
    assert ours[-1] == original[-1] == "... (more lines)"


@pytest.mark.parametrize(
    ("title", "start"),
    [
        ("[cpu] pointwise (a*b+c).relu()", "cpp_fused_add_mul_relu_0 = async_compile.cpp_pybinding(["),
        ("[cpu] reduction softmax(a,-1)", "cpp_fused__softmax_0 = async_compile.cpp_pybinding(["),
    ],
)
def test_the_excerpt_starts_where_the_kernel_starts(printed: Run, title: str, start: str) -> None:
    for text in (SEED, printed.printed):
        assert section(text, title)[4].startswith(start)


def test_summary_lines(printed: Run) -> None:
    ours = [SUMMARY.match(line) for line in section(printed.printed, "SUMMARY")]
    original = [SUMMARY.match(line) for line in section(SEED, "SUMMARY")]
    assert all(ours) and all(original)
    wanted = [match.group(1, 2, 3) for match in original if match and match[1] == "cpu"]
    assert [match.group(1, 2, 3) for match in ours if match] == wanted


def test_findings_have_the_original_labels(printed: Run) -> None:
    ours, original = section(printed.printed, "FINDINGS"), section(SEED, "FINDINGS")
    assert ours[0].startswith("[cpu] ")
    assert ours[1:] == original[1:4]


def test_reading_speaks_of_this_machine_only(printed: Run) -> None:
    text = " ".join(section(printed.printed, "READING"))
    assert "On cpu Inductor generated C++ / OpenMP for pointwise (a*b+c).relu(), reduction softmax(a,-1)." in text
    assert "matmul (a@b) was handed to a library" in text
    for absent in ("Triton", "Metal", "CUDA", "MPS", "XPU"):
        assert absent not in text


def test_the_recorded_output_is_the_original_s() -> None:
    rows = [SUMMARY.match(line) for line in section(SEED, "SUMMARY")]
    assert [match.group(1, 3) for match in rows if match] == [
        ("cpu", "extern kernel (no Inductor codegen)"),
        ("cpu", "C++ / OpenMP"),
        ("cpu", "C++ / OpenMP"),
        ("mps", "extern kernel (no Inductor codegen)"),
        ("mps", "Metal / MPS"),
        ("mps", "Metal / MPS"),
    ]
