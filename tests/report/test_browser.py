"""The page in a real browser, cut off from the network."""

import re
import shutil
import subprocess

import pytest

from mixerscope.report import write_report

from .conftest import find_run, give_verdict

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom"),
]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_charts_are_drawn_and_the_tables_unpack(folder, tmp_path):
    root = folder("based", "two slots", "other task", "diverged", "unpatchable", "mine")
    give_verdict(find_run(root, "based"), "induction", ["key", "value", "query"])
    folder("wide based")
    path = write_report(root)
    # What a click on a download button does, minus the click.
    ask = "<script>unpack('summary.csv').then((b) => b.text()).then((t) => { document.body.dataset.csv = t; })</script>"
    before, _, after = path.read_text().rpartition("</body>")
    path.write_text(f"{before}{ask}</body>{after}")
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    dom = done.stdout
    folded = len(re.findall(r'id="map-[^"]*-sites"', dom))
    holders = len(re.findall(r'class="chart[ "]', dom))
    assert folded >= 3
    assert len(re.findall(r'data-drawn="yes"', dom)) == holders - folded
    assert len(re.findall(r'<svg[^>]*class="marks"', dom)) == holders - folded
    assert 'data-csv="model,architecture,task' in dom
    assert "could not be drawn" not in dom.partition('<script type="application/gzip')[0]
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
