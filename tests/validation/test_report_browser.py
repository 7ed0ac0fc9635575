"""The report as a person sees it: opened in a real browser, at a desk's and at a phone's size, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.validation.chromium import DESK, INSTALL, PHONE, Browser, Page, find
from tests.validation.sample_run import SAMPLES, write

pytestmark = pytest.mark.skipif(find() is None, reason=f"no Chromium on this machine: {INSTALL}")
BLAMED = ("slow", "cut", "hang", "hostile", "large")
UNTRAINED = ("cut", "hang")
"""Runs that ended before a figure could be drawn; their matrix is a table."""
SIZES = {"desk": DESK, "phone": PHONE}

PICTURES = """[...document.querySelectorAll('svg')].map(svg => {
  const shown = svg.getBoundingClientRect(), marks = [...svg.querySelectorAll('rect,circle,path,line,polyline')];
  return {width: shown.width, height: shown.height, right: shown.right,
          drawn: marks.filter(mark => { const b = mark.getBBox(); return b.width + b.height > 0; }).length};
})"""
BOTTOM = "(() => {{ const e = document.querySelector('{0}'); return e ? e.getBoundingClientRect().bottom : null; }})()"
CONTRAST = """(() => {
  const light = c => c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const sum = c => { const [r, g, b] = light(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c.slice(0, 3); }
    return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || !e.checkVisibility()) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [sum(parse(getComputedStyle(e).color).slice(0, 3)), sum(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(ratio.toFixed(1) + ' ' + e.className + ' ' + e.textContent.trim().slice(0, 40));
  }
  return low;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sample's report as a file."""
    folder = tmp_path_factory.mktemp("reports")
    write(folder)
    return folder


@pytest.fixture(params=SIZES, scope="module")
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return SIZES[request.param]


@pytest.fixture(params=SAMPLES, scope="module")
def page(request: pytest.FixtureRequest, browser: Browser, samples: Path, size: tuple[int, int]) -> Iterator[Page]:
    """One sample's report, opened at one size; `name` is the sample's."""
    opened = browser.open(samples / f"{request.param}.html", size)
    opened.name = request.param  # type: ignore[attr-defined]
    yield opened
    browser.close(opened)


def bottom(page: Page, selector: str) -> float | None:
    found: float | None = page.ask(BOTTOM.format(selector))
    return found


def test_it_is_silent_and_asks_nobody(page: Page) -> None:
    """No script error, nothing the browser complains about, and no request but the one for the file itself."""
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("file://")] == []
    assert len(page.requests) == 1


def test_every_picture_is_drawn_within_the_page(page: Page, size: tuple[int, int]) -> None:
    """Each SVG has an extent and marks in it, and nothing makes the page wider than the screen."""
    pictures: list[dict[str, Any]] = page.ask(PICTURES)
    assert pictures or page.name in UNTRAINED  # type: ignore[attr-defined]
    for picture in pictures:
        assert picture["width"] > 100
        assert picture["height"] > 40
        assert picture["drawn"] > 1
        assert picture["right"] <= size[0]
    assert page.ask("document.documentElement.scrollWidth") <= size[0]


def test_verdict_and_culprit_are_read_without_scrolling(page: Page, size: tuple[int, int]) -> None:
    """The verdict, the first culprit and what to do about it end above the lower edge of the screen."""
    verdict = bottom(page, "h1")
    assert verdict is not None
    assert verdict < size[1] / 2
    now = bottom(page, ".hero .now")
    assert now is not None
    assert now <= size[1]
    if page.name in BLAMED:  # type: ignore[attr-defined]
        culprit = bottom(page, ".culprit h2")
        assert culprit is not None
        assert culprit <= now


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["healthy", "slow", "undecided", "cut"])
def test_every_word_stands_out(browser: Browser, samples: Path, name: str, dark: bool) -> None:
    """Text and what is behind it differ by 4.5 : 1 (WCAG AA), in both colour schemes."""
    page = browser.open(samples / f"{name}.html", DESK, dark=dark)
    assert page.ask(CONTRAST) == []
    browser.close(page)


def test_the_browser_would_tell(browser: Browser, tmp_path: Path) -> None:
    """A page with a broken script, a picture from elsewhere and an empty drawing is found out: the test can fail."""
    path = tmp_path / "bad.html"
    path.write_text("<img src='http://192.0.2.1/x.png'><svg></svg><script>nothing()</script>")
    page = browser.open(path, DESK)
    assert any("nothing" in complaint for complaint in page.complaints)
    assert any("192.0.2.1" in url for url in page.requests)
    assert page.ask(PICTURES)[0]["drawn"] == 0
    browser.close(page)
