"""`python -m docsite.screenshot runs/demo/report.html docs/report.png`: the top of a page, as a picture.

Needs chromium and playwright (extra `e2e`).
"""

import shutil
import sys
from importlib import import_module
from pathlib import Path

WIDTH, HEIGHT = 1240, 1190
"""Down to where the facts of the cards begin."""


def picture(page: Path, out: Path) -> None:
    """Saves what a window of this size shows first."""
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        tab.screenshot(path=str(out))
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
