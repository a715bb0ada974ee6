"""HTML: one closed file whose shape no host can change."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.dialects import html
from harness.dialects.listing import Line, Part
from harness.dialects.visible import visible
from harness.records import Report
from tests import sample_report as s

POISON = (
    "</code></pre></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' &lt; "
    "\u202e\x00{{ 7*7 }}"
)
VOID = {"meta", "br", "img", "input", "link", "hr"}
TAGS = set(
    """
    html head meta title style body a div header span nav h1 h2 h3 p dl dt dd main section ul li b code details
    summary table caption thead tbody tr th td abbr small pre footer
    """.split()  # noqa: SIM905
)
ATTRIBUTES = set(
    """
    lang charset http-equiv content name class href id aria-label aria-labelledby aria-hidden tabindex role scope
    colspan title open
    """.split()  # noqa: SIM905
)


class Reader(HTMLParser):
    """The elements in order, checked for nesting, and the text of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(tag, tuple(attrs)) for tag, attrs in self.elements]


@pytest.fixture(scope="module")
def written() -> str:
    return html.render(*s.sample())


def test_only_known_elements_and_attributes(written: str) -> None:
    page = Reader(written)
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {name for _, attrs in page.elements for name in attrs} <= ATTRIBUTES


def test_every_link_stays_in_the_page_and_arrives(written: str) -> None:
    page = Reader(written)
    ids = Counter(attrs["id"] for _, attrs in page.elements if "id" in attrs)
    assert max(ids.values()) == 1
    links = {attrs["href"] for _, attrs in page.elements if "href" in attrs}
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert {link for link in links if re.fullmatch(r"#k\d+-\d+", link)}


def test_the_policy_names_the_one_style_and_nothing_else(written: str) -> None:
    style = re.search("<style>(.*?)</style>", written, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
    policies = [attrs["content"] for tag, attrs in Reader(written).elements if "http-equiv" in attrs]
    assert policies == [f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"]
    assert "url(" not in style.group(1)
    assert "@import" not in style.group(1)


def test_a_reader_who_sees_no_colour_is_told(written: str) -> None:
    page = Reader(written)
    tables = sum(tag == "table" for tag, _ in page.elements)
    assert tables > 1
    assert all(attrs.get("scope") in ("row", "col") for tag, attrs in page.elements if tag == "th")
    assert page.elements[0] == ("html", {"lang": "en"})
    for spoken in ("Triton", "C++ / OpenMP", "wrong: ran, but the result differs", "crashed: the process died"):
        assert spoken in page.text


def test_everything_that_is_asked_for_is_there(written: str) -> None:
    text = Reader(written).text
    for wanted in (
        "6 of 8 hosts answered (1 in part); 1 blocked, 1 unreachable.",
        "sort does not compile on gpu-t4 cuda:0",
        "Follows vector ISA: avx512 | avx2.",
        'sudo usermod -aG render "$USER"',
        "user lab may not open /dev/dri/renderD128",
        "gpu-t4/native/cuda:0@2.12.1+cu126/softmax~f32",
        "atlas probe gpu-t4 --device cuda:0 --function softmax",
        "prims.prepare_softmax_online, aten.sub, aten.exp",
        "persistent_reduction",
        "no record came",
        "OutOfResources: shared memory",
        "unknown: no DMI table",
        s.PAYLOAD,
        "Identical after normalisation on",
        "imports and aliases",
        "cleared: TORCHINDUCTOR_MAX_AUTOTUNE",
    ):
        assert wanted in text, wanted


def test_a_hostile_report_has_the_shape_of_a_good_one() -> None:
    report, codes = s.sample()
    bad = html.render(Report.model_validate(s.hostile(report.model_dump(), POISON)), codes)
    good = html.render(report, codes)
    assert Reader(bad).shape == Reader(good).shape
    assert "\u202e" not in bad
    assert "\x00" not in bad
    assert "{{ 7*7 }}" in Reader(bad).text


def test_hostile_evidence_is_text() -> None:
    report, codes = s.sample()
    dumped = report.model_dump()
    for item in (item for cell in dumped["cells"] for item in cell["cell"]["evidence"]):
        item["text"] = POISON
    page = Reader(html.render(Report.model_validate(dumped), codes))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {name for _, attrs in page.elements for name in attrs} <= ATTRIBUTES


def test_hostile_code_has_no_elements_but_spans() -> None:
    report, codes = s.sample()
    evil = {sha: f"{POISON}\n{text}\n'''{POISON}" for sha, text in codes.items()}
    page = Reader(html.render(report, evil))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {name for _, attrs in page.elements for name in attrs} <= ATTRIBUTES


@pytest.mark.parametrize("language", ["python", "cpp", "text"])
@given(lines=st.lists(st.text(st.one_of(st.sampled_from("<>&\"'\\#/* \t`r"), st.characters())), min_size=1, max_size=5))
@example(["", "", ""])
@example(["'''", "<b>", "/*"])
@example(["  ", "x" * 2000])
def test_highlighting_keeps_every_line(language: str, lines: list[str]) -> None:
    clean = [visible(line).replace("\n", " ") for line in lines]
    part = Part(language=language, lines=tuple(Line(number=n, text=text) for n, text in enumerate(clean, 1)))
    shown = html.code_lines(part)
    assert [line.number for line, _ in shown] == list(range(1, len(clean) + 1))
    for text, (_, markup) in zip(clean, shown, strict=True):
        page = Reader(f"<pre>{markup}</pre>")
        assert "".join(page.words) == text
        assert {tag for tag, _ in page.elements} <= {"pre", "span"}
        assert {name for _, attrs in page.elements for name in attrs} <= {"class"}


def test_an_empty_run_is_a_page_too() -> None:
    report = s.build(s.manifest({"a/native": None}), {})
    page = Reader(html.render(report, {}))
    assert "a did not answer: not run." in page.text
    assert "the run ended before its turn" in page.text


def test_missing_texts_and_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report, codes = s.sample()
    monkeypatch.setattr("harness.dialects.page.MAX_CELLS", 5)
    text = Reader(html.render(report, {})).text
    assert "the text is reports/objects/" in text
    assert "22 more cells are in the matrix above; their details lie in report.json." in text
    monkeypatch.setattr("harness.dialects.page.MAX_CODE_CHARACTERS", 10_000)
    assert Reader(html.render(report, codes)).text.count("Not shown here") > 10
