"""Generated code -> its normal form and the substitutions that made it.

Two machines that were given the same kernel rarely hold the same bytes: the text carries cache
paths, hashes, thread counts and the properties of one GPU.  The normal form masks exactly those,
so that equal normal forms mean equal code.  What the compiler decided stays visible: vector
width, block sizes, fused operations, the signature.

The masking is reversible (`restore`), so a report may keep each normal form once and, for each
cell, only what was masked.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple


class Substitution(NamedTuple):
    """One masked place: `mask` stands at offset `at` of the normal text, in place of `raw`."""

    at: int
    mask: str
    raw: str
    what: str


class Normal(NamedTuple):
    """A normal form and, in order of place, what was masked in it."""

    text: str
    substitutions: tuple[Substitution, ...]


# what -> (mask, pattern).  The group named like the rule is the part that is masked; the rest of
# the pattern only says where.  The text comes from a host: each pattern is anchored or bounded, and
# no two unbounded repetitions in one can take the same characters.
_RULES: dict[str, tuple[str, str]] = {
    "graph_id": ("", r"^(?P<graph_id># AOT ID:[^\n]*\n?)"),
    "kernel_path": ("<path>", r"^# kernel path: (?P<kernel_path>[^\n]+)$"),
    # Up to 2.7 the C++ prefix is included by its place in the cache; later by its name in torch.
    "header_path": ("<path>", r'^[ \t]*#include "(?P<header_path>(?=[^"/\n]*/)[^"\n]*)"'),
    "address": ("<address>", r"^\w{1,100} = None  # device\([^\n]* (?P<address>[0-9a-f]{6,16})$"),
    "threads": ("N", r"\bnum_threads(?:\(| = )(?P<threads>\d{1,6})(?=[);])"),
    "device": ("...", r"\bDeviceProperties\((?P<device>[^()\n]*)\)"),
    "backend_hash": ("<hash>", r"'backend_hash': '(?P<backend_hash>[^'()\n]*)'"),
    "module_hash": ("<hash>", r"\bcompiled_module_main\('(?P<module_hash>[^'\n]*)'"),
    # Any other file of Inductor's cache: <folder>/<two characters>/c<50 of base 32>.<suffix>
    "cache_path": (
        "<path>",
        r"(?<![^\s'\"(=])(?P<cache_path>[^\s'\"(=]*/[a-z0-9]{2}/c[a-z2-7]{50,51}(?:\.\w{1,16})*)",
    ),
}
_ANY = re.compile("|".join(pattern for _, pattern in _RULES.values()), re.MULTILINE)


def normalise(text: str) -> Normal:
    """The normal form of a generated text; two texts are the same code if their forms are equal.

    Takes time linear in the text.
    """
    parts: list[str] = []
    found: list[Substitution] = []
    end = length = 0
    for match in _ANY.finditer(text):
        what = str(match.lastgroup)
        start, stop = match.span(what)
        mask = _RULES[what][0]
        if text[start:stop] == mask:
            continue
        parts += (text[end:start], mask)
        length += start - end
        found.append(Substitution(length, mask, text[start:stop], what))
        length += len(mask)
        end = stop
    parts.append(text[end:])
    return Normal("".join(parts), tuple(found))


def restore(normal: Normal) -> str:
    """The text that `normalise` was given."""
    parts: list[str] = []
    end = 0
    for at, mask, raw, _ in normal.substitutions:
        parts += (normal.text[end:at], raw)
        end = at + len(mask)
    parts.append(normal.text[end:])
    return "".join(parts)


def normal_hash(text: str) -> str:
    """sha256 (hex) of the normal form of a generated text."""
    # A lone surrogate cannot be encoded, and a host may send one.
    return hashlib.sha256(normalise(text).text.encode("utf-8", "backslashreplace")).hexdigest()
