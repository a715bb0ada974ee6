"""The report as one self-contained HTML file: no script, no network, nothing that a host can mark up.

Jinja2 escapes everything by default; `visible` runs before it.  Only highlighted code is passed as
markup, and Pygments escapes that.  The page's own policy forbids all loading and all styles but the
one inline sheet, which is named by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import CppLexer, PythonLexer, TextLexer

from harness.dialects.listing import Line, Part
from harness.dialects.page import page
from harness.dialects.visible import visible
from harness.records.view import Report

_TEMPLATES = Path(__file__).with_name("templates")
# Pygments has no lexer for Triton or Metal: one is Python, the other a C++.
_LEXERS: dict[str, type[Lexer]] = {"python": PythonLexer, "cpp": CppLexer, "text": TextLexer}
# A lexer of regular expressions is not made for one endless line.
_HIGHLIGHT_WIDTH = 1000


def render(report: Report, codes: Mapping[str, str]) -> str:
    """The whole page; `codes` maps sha256 to generated text, a missing one is named as missing."""
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    policy = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = _environment().get_template("report.html.j2")
    # The sheet is a file of ours; escaping it would change its hash.
    return template.render(page=page(report, codes), style=Markup(style), style_hash=policy)  # noqa: S704


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        # Not by file name: the usual choice of endings would miss *.html.j2.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(code_lines=code_lines, argv=shlex.join)
    return environment


def _finalize(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def code_lines(part: Part) -> list[tuple[Line, Markup]]:
    """The lines of a part, each with its highlighted, escaped text."""
    if any(len(line.text) > _HIGHLIGHT_WIDTH for line in part.lines):
        return [(line, Markup.escape(line.text)) for line in part.lines]
    lexer = _LEXERS.get(part.language, TextLexer)(stripnl=False, ensurenl=True)
    source = "\n".join(line.text for line in part.lines)
    marked = highlight(source, lexer, HtmlFormatter(nowrap=True, classprefix="p-")).split("\n")
    # The formatter closes its spans at the end of every line, so each stands alone.
    return [(line, Markup(text)) for line, text in zip(part.lines, marked, strict=False)]  # noqa: S704
