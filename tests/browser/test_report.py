"""The HTML report in a real Chromium: does it fit, does it open, does it print, is it quiet?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.dialects import html
from tests import sample_report as s
from tests.browser.chromium import PROGRAM, Browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed: make system-deps"),
]
FITS = "document.documentElement.scrollWidth <= innerWidth"
# Boxes that stick out of the window without standing in a box that scrolls.
STRAYS = """[...document.querySelectorAll('main *, header *, footer *')]
  .filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest('.mxw, .scroll, .code, .vh, pre, .ev code'))
  .map(e => e.outerHTML.slice(0, 120))"""
# WCAG contrast of every piece of text on the ground that is painted behind it; the least one, and whose it is.
CONTRAST = r"""(() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = s => s.match(/[\d.]+/g).map(Number);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [15, 18, 21] : [255, 255, 255]; };
  let least = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    const ink = parse(getComputedStyle(e).color);
    if (ink.length > 3 && ink[3] === 0) continue;
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, e.outerHTML.slice(0, 120)];
  }
  return least;
})()"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html.render(*s.sample()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def unfold(browser: Browser) -> None:
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(browser: Browser, url: str, tmp_path: Path, width: int, scheme: str) -> None:
    browser.screen(width, scheme=scheme)
    browser.open(url)
    assert browser.evaluate(FITS)
    unfold(browser)
    assert browser.evaluate(FITS)
    assert browser.evaluate(STRAYS) == []
    ratio, whose = browser.evaluate(CONTRAST)
    assert ratio >= 4.5, whose
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(15, 18, 21)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert len(browser.screenshot()) > 20_000


def test_a_wide_matrix_scrolls_in_its_own_box_and_its_rows_keep_their_names(browser: Browser, url: str) -> None:
    browser.screen(390)
    browser.open(url)
    box = "document.querySelector('.mxw')"
    assert browser.evaluate(f"{box}.scrollWidth > {box}.clientWidth")
    browser.evaluate(f"{box}.scrollLeft = 1000")
    assert browser.evaluate(f"{box}.scrollLeft > 0")
    name = "document.querySelector('.mx tbody th').getBoundingClientRect()"
    assert browser.evaluate(f"{name}.left") == 0
    assert browser.evaluate("[...document.querySelectorAll('.mx tbody .first .h')].every(e => e.offsetWidth > 40)")


def test_a_cell_leads_to_its_details_and_they_to_the_deciding_line(browser: Browser, url: str) -> None:
    browser.screen(1280)
    browser.open(url)
    browser.evaluate("document.querySelector('.mx .k-triton a').click()")
    target = "document.querySelector(location.hash)"
    assert browser.evaluate(f"{target}.closest('details').open")
    assert browser.evaluate(f"{target}.checkVisibility()")
    browser.evaluate(f"{target}.querySelector('.ev a').click()")
    assert browser.evaluate(f"{target}.checkVisibility()")
    assert "async_compile.triton(" in browser.evaluate(f"{target}.textContent")
    seen = f"(r => r.top >= 0 && r.bottom <= innerHeight)({target}.getBoundingClientRect())"
    assert browser.evaluate(seen)


def test_it_prints_light_with_its_details_and_without_controls(browser: Browser, url: str) -> None:
    browser.screen(1280, scheme="dark", media="print")
    browser.open(url)
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("document.querySelector('nav').offsetHeight") == 0
    assert browser.evaluate("document.querySelector('#c1').getBoundingClientRect().height") > 100
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000


def test_nothing_is_loaded_run_or_refused(browser: Browser, url: str) -> None:
    browser.complaints.clear()
    browser.screen(1280)
    browser.open(url)
    assert browser.evaluate("performance.getEntriesByType('resource').length") == 0
    assert browser.complaints == []


def test_the_policy_holds(browser: Browser, url: str) -> None:
    """Even a script or style that did get into the page would not run."""
    browser.screen(1280)
    browser.open(url)
    browser.evaluate("""(() => {
      for (const [tag, text] of [['script', 'window.ran = 1'], ['style', 'body{color:red}']]) {
      const e = document.createElement(tag); e.textContent = text; document.body.append(e); } })()""")
    assert browser.evaluate("window.ran === undefined")
    assert browser.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    assert any("Content Security Policy" in line for line in browser.complaints)
    browser.complaints.clear()
