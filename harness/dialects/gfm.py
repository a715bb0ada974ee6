"""The report as GitHub-flavoured Markdown, as GitHub, GitLab and Gitea read it.

Everything that a template prints goes through `text`, unless a filter has already made it safe:
`code` for inline code, `fence` for blocks.  There are more ways than brackets for text to come
alive in a wiki: mentions, issue numbers, bare addresses, emoji names, mathematics; a comment that
shows nothing (`<!-- -->`) breaks those, and the reader sees the text unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.dialects.listing import Part
from harness.dialects.page import page
from harness.dialects.visible import visible
from harness.records.view import Report

_TEMPLATES = Path(__file__).with_name("templates")
_BREAK = "<!-- -->"

_MARKUP = re.compile(r"[\\`*_\[\]~]")
# Entities, not backslashes: a table splits at `|` before it looks for backslashes.
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "$": "&#36;"})
# After these an empty comment goes, lest the two sides join to a reference, an address or an emoji.
_LIVE = re.compile(
    r"@(?=\S)"
    r"|[#!%^](?=[\w\"{\\])"
    r"|\$(?=\S)"
    r"|&(?=[\w#])"
    # Each repetition ends where the next begins: two that share characters would try every split of a long word.
    r"|:(?=//|[^\WA-Za-z_]*[A-Za-z_+\-][\w+\-]*:|100:|1234:)"
    r"|(?:www|mailto|xmpp|GH-|CVE-)(?=[.:\d])",
    re.IGNORECASE,
)
_LEADING = re.compile(r"^(?:\d{1,9}(?=[.)](?:\s|$))|(?=[-+=#:]))")


class Markdown(str):
    """Text that is Markdown already; everything else is escaped when it is printed."""

    __slots__ = ()


def text(value: object) -> Markdown:
    """Any value as one line of plain text: nothing in it is markup, in a sentence or a table cell."""
    if isinstance(value, Markdown):
        return value
    line = " ".join(visible(str(value)).split())
    pieces: list[str] = []
    end = 0
    for live in _LIVE.finditer(line):
        pieces += (_plain(line[end : live.end()]), _BREAK)
        end = live.end()
    pieces.append(_plain(line[end:]))
    escaped = "".join(pieces)
    leading = _LEADING.match(escaped)
    if not leading:
        return Markdown(escaped)
    return Markdown(f"{escaped[: leading.end()]}\\{escaped[leading.end() :]}")


def _plain(piece: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", piece).translate(_ENTITIES)


def code(value: object) -> Markdown:
    """Inline code, also in a table cell."""
    line = " ".join(visible(str(value)).split())
    if not line:
        return Markdown("–")  # noqa: RUF001
    if "`" in line or "|" in line:
        # A table cell splits at every `|`, and backslashes do not nest in code: tags carry it instead.
        return Markdown(f"<code>{text(line)}</code>")
    return Markdown(f"`{line}`")


def fence(value: str, language: str = "") -> Markdown:
    """A code block whose fence is longer than any run of backticks inside."""
    body = visible(value).rstrip("\n")
    longest = max(map(len, re.findall(r"`+", body)), default=0)
    mark = "`" * max(3, longest + 1)
    return Markdown(f"{mark}{language}\n{body}\n{mark}")


def numbered(part: Part) -> str:
    """The lines of a part with their numbers; `>` stands before a line that decided."""
    return "\n".join(f"{line.number:>5} {'>' if line.deciding else ' '} {line.text}".rstrip() for line in part.lines)


def render(report: Report, codes: Mapping[str, str]) -> str:
    """The whole page; `codes` maps sha256 to generated text, a missing one is named as missing."""
    written = _environment().get_template("report.md.j2").render(page=page(report, codes))
    return written.rstrip("\n") + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        # HTML escapes would be wrong here; `finalize` escapes every printed value for Markdown instead.
        autoescape=False,  # noqa: S701
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=text,
    )
    environment.filters.update(code=code, fence=fence, numbered=numbered, argv=shlex.join, anchor=_anchor)
    return environment


def _anchor(number: int, kind: str) -> Markdown:
    """A place to link to, written by us."""
    name = f"{kind}{int(number)}"
    return Markdown(f'<a name="{name}" id="{name}"></a>')
