"""Markdown: any text from a host stays text, wherever it stands.

Read back with a CommonMark parser.  What a wiki brings to life after parsing (mentions, issue
numbers, bare addresses) a parser does not know: those are looked for in the text that is left
between the comments that break them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from harness.dialects import gfm
from harness.dialects.visible import visible
from harness.records import Report
from tests import sample_report as s

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LIVE = re.compile(r"@\w|#\d|!\d|GH-\d|https?://|www\.\w|mailto:|:[a-z]+:|\$\w", re.IGNORECASE)
POISON = (
    " | <script>alert(1)</script> **b** [x](javascript:y) ![i](http://e/i.png) `c` ~~d~~ <!-- @me #1 www.e.org "
    "&lt; &#124; \\| ```` $x$ :smile: http://e.org a@e.org \u202e\x00"
)
MARKUP = st.text(st.sampled_from("|`*_[]()<>&!#@:~\\-+=.$\"' \n\t1aw/{}^%\x00\u202e"), max_size=40)


def inline(tokens: list[Token]) -> list[Token]:
    return [child for token in tokens if token.children for child in token.children]


def plain(value: str) -> str:
    return " ".join(visible(value).split())


PLACES = {
    "sentence": "- **a** {} z",
    "start of item": "- {}",
    "start of line": "{}",
    "heading": "# {}",
    "cell": "| {} | z |\n| --- | --- |\n| {} | y |",
}


@pytest.mark.parametrize("place", PLACES)
@given(value=st.one_of(st.text(), MARKUP))
@example("1. a")
@example("- a")
@example("---")
@example("===")
@example("a\\|b")
@example("<!-- ")
@example("&amp;")
@example("http://e.org/@a#1")
@example("    code")
def test_text_is_only_text(place: str, value: str) -> None:
    frame = PLACES[place]
    tokens = PARSER.parse(frame.replace("{}", gfm.text(value)))
    reference = PARSER.parse(frame.replace("{}", "x"))
    if plain(value):
        assert [token.type for token in tokens] == [token.type for token in reference]
    children = inline(tokens)
    assert {child.content for child in children if child.type == "html_inline"} <= {"<!-- -->"}
    assert {child.type for child in children} <= {
        "text", "text_special", "html_inline", *(child.type for child in inline(reference))
    }  # fmt: skip
    for token in tokens:
        shown = "".join(child.content for child in token.children or [] if child.type != "html_inline")
        if plain(value) and place == "cell" and token.type == "inline" and shown not in "zy":
            assert shown.strip() == plain(value)
    written = "".join(child.content for child in children if child.type != "html_inline")
    assert plain(value) in written


SIGNS = ["@me", "#1", "http://e.org", "www.e.org", ":smile:", "GH-12", "!3", "$x$", " ", "mailto:a@b.c", "WWW.e"]


@given(st.one_of(st.text(), MARKUP, st.lists(st.sampled_from(SIGNS)).map("".join)))
def test_nothing_comes_alive(value: str) -> None:
    pieces = re.split("<!-- -->", gfm.text(value))
    unescaped = [unescape(re.sub(r"\\(.)", r"\1", piece)) for piece in pieces]
    assert not any(LIVE.search(piece) for piece in unescaped), unescaped


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", [
    ":" + "a" * 10**6, ":a" * 500_000, ":\u00e9" * 500_000, ":" + "\u00e9" * 10**6, "@" * 10**6, "www." * 250_000,
    "1" * 10**6, "`" * 10**6,
])  # fmt: skip
def test_a_megabyte_of_a_hosts_text_takes_its_own_length(piece: str) -> None:
    """Time that grew with the square would not end here."""
    assert len(gfm.text(piece)) >= len(piece)


@pytest.mark.parametrize("name", [":smile:", ":+1:", ":100:", ":1234:", ":a1:", ":1a:", ":\u00e91-x:", "://e.org"])
def test_a_colon_that_could_begin_something_is_cut_off(name: str) -> None:
    assert gfm.text(f"x{name}").startswith("x:<!-- -->")


@pytest.mark.parametrize("name", [":12:", "::", ": a:", ":\u00e9:"])
def test_other_colons_stay(name: str) -> None:
    assert "<!--" not in gfm.text(f"x{name}")


@pytest.mark.parametrize("frame", ["{}", "- a {} b", "| {} | z |\n| --- | --- |\n| {} | y |"])
@given(value=st.one_of(st.text(), MARKUP))
@example("a\\")
@example("a|b`c")
@example("`` ` ``")
def test_code_is_only_code(frame: str, value: str) -> None:
    tokens = PARSER.parse(frame.replace("{}", gfm.code(value)))
    reference = PARSER.parse(frame.replace("{}", "`x`"))
    assert [token.type for token in tokens] == [token.type for token in reference]
    children = inline(tokens)
    assert {child.content for child in children if child.type == "html_inline"} <= {"<!-- -->", "<code>", "</code>"}
    assert {child.type for child in children} <= {"text", "text_special", "html_inline", "code_inline"}
    written = "".join(child.content for child in children if child.type != "html_inline")
    assert plain(value) in written


@given(st.one_of(st.text(), MARKUP, st.text(st.sampled_from("`~\n a"))))
def test_a_fence_holds_anything(value: str) -> None:
    (token,) = PARSER.parse(gfm.fence(value, "python"))
    assert token.type == "fence"
    body = visible(value).rstrip("\n")
    assert token.content.removesuffix("\n") == body


def test_the_sample_is_the_golden_report(golden: Callable[[str, str], None]) -> None:
    results = {name: value for name, value in s.fleet().items() if name.split("/")[0] in (
        "localhost", "gpu-t4", "xpu-arc", "amd-mi300")}  # fmt: skip
    report = s.add(s.build(s.manifest(results), results, ended=s.ENDED))
    golden("sample.md", gfm.render(report, s.code_texts(results)))


def test_the_whole_report_parses_as_meant() -> None:
    report, codes = s.sample()
    written = gfm.render(report, codes)
    tokens = PARSER.parse(written)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open" and token.tag == "h2"]
    assert titles == ["Findings", "What was generated where", "Device by device", "Cells", "Generated code", "Hosts"]
    tables = [token for token in tokens if token.type == "table_open"]
    assert len(tables) > 3 * len(report.cells)
    names = set(re.findall(r'<a name="(\w+)"', written))
    assert set(re.findall(r"\]\(#(\w+)\)", written)) <= names
    assert re.search(r"^ +\d+ > cpp_fused_0 = async_compile", written, re.MULTILINE)


def test_a_hostile_report_has_the_shape_of_a_good_one() -> None:
    report, codes = s.sample()
    bad = Report.model_validate(s.hostile(report.model_dump(), POISON))
    good, evil = PARSER.parse(gfm.render(report, codes)), PARSER.parse(gfm.render(bad, codes))
    assert [token.type for token in evil] == [token.type for token in good]
    ours = {"<!-- -->", "<code>", "</code>", "</a>"} | {
        child.content for child in inline(good) if child.type == "html_inline"
    }
    assert {child.content for child in inline(evil) if child.type == "html_inline"} <= ours
    assert [token.content for token in evil if token.type == "html_block"] == [
        token.content for token in good if token.type == "html_block"
    ]
    links = {str(child.attrs["href"]) for child in inline(evil) if child.type == "link_open"}
    assert all(link.startswith("#") for link in links)
    assert not [child for child in inline(evil) if child.type in ("image", "strong_open") and child.attrs]


def test_missing_texts_and_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report, codes = s.sample()
    monkeypatch.setattr("harness.dialects.page.MAX_CELLS", 5)
    written = gfm.render(report, {})
    assert "Not shown here, to keep the page small; the text is `reports/objects/" in written
    assert "22 more cells are in the matrix above; their details lie in report.json." in written
    monkeypatch.setattr("harness.dialects.page.MAX_CODE_CHARACTERS", 10_000)
    assert gfm.render(report, codes).count("Not shown here") > 10
