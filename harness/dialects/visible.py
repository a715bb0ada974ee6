"""Characters that a reader cannot see, or that turn text around, made visible.

A host's text may hold escape sequences, NUL, bidirectional overrides that show code in another
order than it runs, and lone surrogates that no encoder takes.  Every dialect passes host text
through here before its own escaping.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # invisible, line ends, bidi
    "\ud800-\udfff"  # lone surrogates: a pair has become one character long before
    "\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e0fff"  # tags and variation selectors
    "]"
)


def visible(text: str) -> str:
    """The text with hidden characters replaced by pictures (`␀`) or names (`⟨U+202E⟩`).

    Tab and newline stay; CR LF becomes a newline.
    """
    return _HIDDEN.sub(_name, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """`visible`, and line feeds and tabs as pictures too: the text can neither end its line nor fake a column."""
    return visible(text).replace("\n", "\u240a").replace("\t", "\u2409")


def _name(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"
