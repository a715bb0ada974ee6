"""One report view, several languages to say it in.

A dialect is a module with `render(report, codes) -> str`: escape functions and a template, nothing
else.  Text from a host is data in every dialect.  What all dialects show, and in which words, is
made once in `page` and `marks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from harness.errors import UsageError
from harness.records.view import Report


class Dialect(Protocol):
    """What a dialect module offers."""

    def render(self, report: Report, codes: Mapping[str, str]) -> str:
        """The whole report; `codes` maps sha256 to generated text, a missing one is named as missing."""


DIALECTS = {
    "gfm": "harness.dialects.gfm",
    "html": "harness.dialects.html",
}


def load(name: str) -> Dialect:
    """The dialect of that name, imported when it is first asked for; raises UsageError for others."""
    if name not in DIALECTS:
        raise UsageError(f"there is no dialect {name!r}", hint=f"use one of: {', '.join(sorted(DIALECTS))}")
    return cast(Dialect, import_module(DIALECTS[name]))
