"""A real browser, cut off from the network, in which whatever the page complains of is a failure."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all tests; skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra e2e)")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser):
    """Opens the page of a folder, a page, or the address of one; what goes wrong in it fails the test."""
    from mixerscope.report import write_report

    complaints: list[str] = []
    contexts = []

    def open_page(of: Path | str, width: int = 1280, dark: bool = False) -> Any:
        address = of if isinstance(of, str) else (of if of.is_file() else write_report(of)).as_uri()
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        own = ("file:", "blob:", "data:", address)
        context.route(lambda url: not url.startswith(own), lambda route: route.abort())
        tab = context.new_page()
        tab.set_default_timeout(15_000)
        tab.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: (complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        tab.on("requestfailed", lambda request: complaints.append(f"asked for {request.url}"))
        tab.goto(address)
        tab.wait_for_selector("html[data-ready]", state="attached")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
