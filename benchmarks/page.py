"""What a page over many runs costs: seconds to build, megabytes, seconds until it answers in a browser.

Runs are those of the packs in `reproduction/fig3`, which were measured at the published setting, and copies of them
under other seeds; nothing is trained. Seconds are of one process. Interactive is when every figure in sight has been
drawn and every control answers (the page's own mark); a click on a filter is timed after that. Writes
benchmarks/results/page.json.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from mixerscope.artifacts import Record
from mixerscope.packs import unpack
from mixerscope.report import write_report
from mixerscope.results import load_runs
from mixerscope.spec import id_of
from mixerscope.store import RunFolder

PACKS = Path(__file__).parents[1] / "reproduction" / "fig3"
RESULTS = Path(__file__).parent / "results" / "page.json"
BARS = {"seconds": 60.0, "megabytes": 10.0, "interactive_seconds": 2.0}
LOADS = 3
"""Times that the page is loaded; the median counts."""


def make_runs(root: Path, wanted: int) -> int:
    """Fills a folder with stored runs, each with an id of its own, and gives how many there are."""
    for pack in sorted(PACKS.glob("*.pack")):
        unpack(pack, root)
    measured = [run.folder for run in load_runs(root)]
    for folder in measured[wanted:]:
        shutil.rmtree(folder.path)
    copies = _copies(measured, root)
    for _ in range(wanted - len(measured)):
        next(copies)
    return len(list(root.iterdir()))


def _copies(measured: list[RunFolder], root: Path) -> Iterator[None]:
    """One run after the other, as if it had had another seed."""
    for later in count(100, 100):
        for folder in measured:
            record = folder.read(Record)
            seed = later + record.spec["seed"]
            moved = replace(record, identity={**record.identity, "seed": seed}, spec={**record.spec, "seed": seed})
            name = f"{folder.path.name.rpartition('-')[0]}-{id_of(moved.identity)}"
            again = RunFolder(Path(shutil.copytree(folder.path, root / name)))
            files = json.loads((again.path / "seal.json").read_text())["files"]
            again.write(moved)
            again.close(moved.identity, files)
            for path in [stage.path for stage in again.stages()]:
                stage = again.stage(path.name.rpartition("-")[0], path.name.rpartition("-")[2])
                sealed = json.loads((path / "seal.json").read_text())["files"]
                stage.close(stage.record.from_bytes((path / "stage.json").read_bytes()).identity, sealed)
            yield


def in_browser(page: Path) -> dict[str, Any]:
    """Seconds until the page answers, and until a filter has changed its figures."""
    sync_playwright = import_module("playwright.sync_api").sync_playwright
    found: list[dict[str, float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for _ in range(LOADS):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
            interactive = tab.evaluate("performance.getEntriesByName('interactive')[0].startTime / 1000")
            clicked = tab.evaluate(
                """() => new Promise((resolve) => {
                  const begun = performance.now();
                  document.querySelector('#filters input').click();
                  requestAnimationFrame(() => setTimeout(() => resolve((performance.now() - begun) / 1000)));
                })"""
            )
            found.append({"interactive_seconds": interactive, "filter_seconds": clicked})
            tab.close()
        version = browser.version
        browser.close()
    numbers = {name: round(median(one[name] for one in found), 3) for name in found[0]}
    return {**numbers, "chromium": version}


def measure(root: Path, out: Path) -> dict[str, Any]:
    before = time.perf_counter(), time.process_time()
    page = write_report(root, out)
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    size = page.stat().st_size / 1e6
    return {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1), "megabytes": round(size, 2), **in_browser(page)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="make the runs and the page in this folder, and leave them there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        root = folder / f"runs-{asked.runs}"
        runs = len(list(root.iterdir())) if root.is_dir() else make_runs(root, asked.runs)
        found = {"runs": runs, **measure(root, folder / "page.html"), "bars": BARS}
    found |= {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps(found, indent=2))
    missed = [name for name, bar in BARS.items() if found[name] > bar]
    if runs >= 1000:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
