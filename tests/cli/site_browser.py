"""The documentation site in a real browser, opened as a file: `make site-browser`. Needs Chromium on the PATH.

Pages are shown as a desktop and as a telephone have them, in light and in dark: nothing may be written to the console,
asked of another host, or be wider than the screen. A search has to find a page. The pictures are left to be looked at.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.report.browser import WIDTHS, find_chromium, listen

SITE = Path(__file__).parents[2] / "build/site"
PAGES = ("index.html", "tutorial.html", "reference/messages.html", "reference/plan.html", "reference/commands.html")
SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}
QUESTIONS = {
    "postgresql": "how-to/checks.html",
    "exit 4": "how-to/exit-4.html",
    "no API key": "reference/messages.html",
}


def look(page: Any, name: str, picture: Path) -> Iterator[str]:
    """Open a page; yield what is wrong."""
    said = listen(page)
    page.goto((SITE / name).as_uri())
    page.screenshot(path=picture)
    yield from (words for words in said if not words.startswith("request: file:"))
    wide, room = page.evaluate(WIDTHS)
    if wide > room:
        yield f"{wide} px wide on a screen of {room}"


def ask(page: Any, question: str, answer: str, picture: Path) -> Iterator[str]:
    """Type a question into the search of the first page; yield what is wrong."""
    said = listen(page)
    page.goto((SITE / "index.html").as_uri())
    page.locator("input[name=q]").first.fill(question)
    page.locator("input[name=q]").first.press("Enter")
    page.wait_for_selector("#search-results li", timeout=20_000)
    page.screenshot(path=picture)
    found = [link.get_attribute("href") for link in page.locator("#search-results li a").all()]
    yield from (words for words in said if not words.startswith("request: file:"))
    if not any(str(href).startswith(answer) for href in found):
        yield f"not among what {question!r} finds: {answer}"


def main() -> int:
    """Look at the pages and search; return how many things are wrong, at most 1."""
    program = find_chromium()
    if program is None:
        sys.stdout.write("There is no Chromium here: apt install chromium, or name one: CHROMIUM=/path\n")
        return 1
    pictures = Path(tempfile.mkdtemp(prefix="relay-site-"))
    wrong: list[str] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser: Any = playwright.chromium.launch(executable_path=program, args=arguments)
        for screen, (width, height) in SCREENS.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                context.set_offline(True)
                where = f"{screen}-{scheme}"
                for name in PAGES:
                    picture = pictures / f"{name.replace('/', '-')}-{where}.png"
                    wrong += [f"{name}, {where}: {words}" for words in look(context.new_page(), name, picture)]
                if screen == "desktop":
                    for number, (question, answer) in enumerate(QUESTIONS.items()):
                        picture = pictures / f"search-{number}-{where}.png"
                        wrong += [f"{where}: {words}" for words in ask(context.new_page(), question, answer, picture)]
                context.close()
        browser.close()
    sys.stdout.write("".join(f"{words}\n" for words in wrong))
    sys.stdout.write(f"{len(wrong)} wrong; pictures: {pictures}\n")
    return min(1, len(wrong))


if __name__ == "__main__":
    sys.exit(main())
