"""The page in a real browser: `make report-browser`. Needs Chromium on the PATH, Playwright and axe from the registry.

Each page is opened as a desktop, a telephone and a printer have it, in light and in dark, without JavaScript as well:
nothing may be written to the console, nothing loaded, nothing be wider than the screen, plots can be zoomed into, and
axe may find nothing (contrast as it is drawn, names, headings, tables). The pictures are left to be looked at.
"""

import hashlib
import os
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from relay.cli.screen import clean_line
from relay.insight.report.contents import make_page
from relay.insight.report.page import render_page
from relay.session.events import LeftFile
from tests.pictures import make_png
from tests.report.reading import fold
from tests.report.runs import play
from tests.report.test_page import HOSTILE, make_beliefs

SCREENS = {"desktop": (1280, 900), "phone": (360, 740)}
SMALLEST_TEXT_PX = 9
VAST = frozenset({"long"})
"""Pages that take a browser minutes to draw and to judge as a whole: what is on the screen is looked at."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
UNFOLD = "document.querySelectorAll('details').forEach(d => d.open = true)"
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
BLANK = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
TEXTS = "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"


def find_chromium() -> str | None:
    """Return the browser that is named, or there; None when there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def make_pages() -> dict[str, str]:
    """Make one page of each kind."""
    kept: dict[str, bytes | str] = {
        "desk.png": draw(1280, 800), "phone.png": draw(390, 2400), "icon.png": draw(16, 16),
        "coverage.txt": "\n".join(f"src/module_{n}.py    {n:>5}    {n % 100:>3}%" for n in range(400)),
    }  # fmt: skip
    digests = {hashlib.sha256(name.encode()).hexdigest(): name for name in kept}
    left = [LeftFile(name=name, size_bytes=len(kept[name]), sha256=sha256, why="") for sha256, name in digests.items()]
    left.append(LeftFile(name="film.webm", size_bytes=3_000_000, sha256="", why="larger than 1.0 MB"))
    run = fold(play(phases=10, sessions=3, turns=12, left=tuple(left)))
    pages = {
        "run": make_page(run, make_beliefs("keys are random"), lambda name, _sha256: kept[name]),
        "long": make_page(fold(play(phases=40, sessions=8, turns=6)), None),
        "hostile": make_page(fold(play(phases=2, text=" ".join(HOSTILE[:-1]))), make_beliefs(HOSTILE[0])),
        "empty": make_page(fold([]), None),
    }
    return {name: render_page(page, clean=clean_line) for name, page in pages.items()}


def draw(width: int, height: int) -> bytes:
    """Return a picture with a pattern, as a screenshot has."""
    rows = (bytes([0, *(255 - (x * y // 97) % 256 for x in range(width) for _ in range(3))]) for y in range(height))
    body = zlib.compress(b"".join(rows))
    data = b"IDAT" + body
    return make_png(width, height, body=struct.pack(">I", len(body)) + data + struct.pack(">I", zlib.crc32(data)))


def look(browser: Any, path: Path, name: str, pictures: Path) -> Iterator[str]:
    """Open a page on every screen; yield what is wrong."""
    for screen, (width, height) in SCREENS.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            said = listen(page)
            page.goto(path.as_uri())
            page.screenshot(path=pictures / f"{name}-{screen}-{scheme}.png", full_page=name not in VAST)
            wrong = [words for words in said if words != f"request: {path.as_uri()}"]
            yield from (f"{name}, {screen}, {scheme}: {words}" for words in (*wrong, *measure(page, name)))
            context.close()
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(path.as_uri())
    if not plain.locator("h2").count():
        yield f"{name}: nothing is shown without JavaScript"
    if plain.locator(".zoom").count():
        before = plain.locator("svg").first.bounding_box()["width"]
        plain.locator(".zoom input").first.check()
        if plain.locator("svg").first.bounding_box()["width"] < 2 * before:
            yield f"{name}: no plot is larger when it is zoomed into"
    plain.emulate_media(media="print")
    plain.screenshot(path=pictures / f"{name}-print.png", full_page=name not in VAST)


def listen(page: Any) -> list[str]:
    """Return what a page says and asks for, as it does."""
    said: list[str] = []
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: said.append(f"request: {request.url}"))
    return said


def measure(page: Any, name: str) -> Iterator[str]:
    """Yield what is wrong with an open page, once everything on it is unfolded."""
    page.evaluate(UNFOLD)
    wide, room = page.evaluate(WIDTHS)
    if wide > room:
        yield f"{wide} px wide on a screen of {room}"
    if blank := page.evaluate(BLANK):
        yield f"{blank} pictures are not drawn"
    small = [height for height in page.evaluate(TEXTS) if height < SMALLEST_TEXT_PX]
    if small:
        yield f"{len(small)} texts of plots are smaller than {SMALLEST_TEXT_PX} px"
    if name in VAST:
        return
    for found in Axe().run(page).response["violations"]:
        yield f"axe {found['id']}: {found['help']}: {found['nodes'][0]['html'][:200]}"


def main() -> int:
    """Look at every page; return how many things are wrong, at most 1."""
    program = find_chromium()
    if program is None:
        sys.stdout.write("There is no Chromium here: apt install chromium, or name one: CHROMIUM=/path\n")
        return 1
    pictures = Path(tempfile.mkdtemp(prefix="relay-report-"))
    wrong: list[str] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        for name, html in make_pages().items():
            path = pictures / f"{name}.html"
            path.write_text(html)
            wrong += look(browser, path, name, pictures)
        browser.close()
    sys.stdout.write("".join(f"{words}\n" for words in wrong))
    sys.stdout.write(f"{len(wrong)} wrong; pages and pictures: {pictures}\n")
    return min(1, len(wrong))


if __name__ == "__main__":
    sys.exit(main())
