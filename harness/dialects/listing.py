"""A generated text as a person reads it: boilerplate folded, kernels in their own language.

Inductor's module is a Python program with kernels in its strings.  `listing` cuts it into parts:
imports and aliases, wrapper, each kernel, the runner's tail; a dialect highlights each part in its
language and folds those with a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.dialects.visible import visible
from harness.records.base import Record

# What is shown of one text; the whole of it lies in the store.
MAX_LINES = 2000
MAX_WIDTH = 2000
_BODY_LANGUAGES = {"cpp": "cpp", "cpp_pybinding": "cpp", "metal": "cpp", "cuda": "cpp", "rocm": "cpp", "xpu": "cpp",
                   "halide": "cpp"}  # fmt: skip

_OPENING = re.compile(r"^\w+ = (?:async_compile\.)?(\w+)\(.*?[rR]?('''|\"\"\")([^\n]*)$")
_BODY_START = re.compile(r"^(?:\w+ = (?:async_compile\.(?!wait)|compile_mps_shader)|# (?:kernel path|Topologically)|"
                         r"async_compile\.wait|class Runner|def call\(|def partition_|cpp_wrapper_src)")  # fmt: skip
_TAIL_START = re.compile(r"^(?:runner = |call = |def get_args|def benchmark_compiled_module|if __name__)")


class Line(Record):
    """One line with its number in the raw text."""

    number: int
    text: str
    deciding: bool = False


class Part(Record):
    """Lines of one language; a `fold` names the bar that they are folded to."""

    language: str
    lines: tuple[Line, ...]
    fold: str = ""


class Listing(Record):
    """The parts of a text, and how many lines were left out at its end."""

    parts: tuple[Part, ...]
    left_out: int = 0


def listing(text: str, language: str, deciding: Iterable[int] = ()) -> Listing:
    """Cut a generated text; `language` is the wrapper's, `deciding` the line numbers that decided."""
    marked = frozenset(deciding)
    every = visible(text).split("\n")
    if every and not every[-1]:
        every.pop()
    shown = every[:MAX_LINES]
    lines = [Line(number=n, text=_clip(line), deciding=n in marked) for n, line in enumerate(shown, 1)]
    start, tail = _body(shown)
    parts = [
        *_part("python", lines[:start], "imports and aliases"),
        *_cut(lines[start:tail], language),
        *_part("python", lines[tail:], "runner and benchmark"),
    ]
    return Listing(parts=tuple(parts), left_out=len(every) - len(shown))


def _clip(line: str) -> str:
    return line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}… {len(line) - MAX_WIDTH:,} more characters"


def _body(lines: list[str]) -> tuple[int, int]:
    """Where what matters starts and ends, as indexes; a text of another shape is all body."""
    start = next((n for n, line in enumerate(lines) if _BODY_START.match(line)), 0)
    tail = next((n for n, line in enumerate(lines[start:], start) if _TAIL_START.match(line)), len(lines))
    return start, tail


def _part(language: str, lines: list[Line], fold: str = "") -> Iterable[Part]:
    """A fold never hides a line that decided, and a short one is not worth folding."""
    if lines:
        hides = len(lines) > 3 and not any(line.deciding for line in lines)
        yield Part(language=language, lines=tuple(lines), fold=fold if hides else "")


def _cut(lines: list[Line], language: str) -> Iterable[Part]:
    """Wrapper, kernel, wrapper ... : a kernel's lines stand strictly between its quotes."""
    first = number = 0
    while number < len(lines):
        opening = _OPENING.match(lines[number].text)
        if not opening or opening.group(2) in opening.group(3):
            number += 1
            continue
        end = number + 1
        while end < len(lines) and opening.group(2) not in lines[end].text:
            end += 1
        yield from _part(language, lines[first : number + 1])
        yield from _part(_BODY_LANGUAGES.get(opening.group(1), "python"), lines[number + 1 : end])
        # The closing quotes would open a string for a highlighter that has not seen the opening ones.
        yield from _part("text", lines[end : end + 1])
        first = number = end + 1
    yield from _part(language, lines[first:])
