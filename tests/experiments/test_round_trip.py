"""A part of a figure written to a file, run by the light worker, packed, and taken in at home."""

import json
import shutil
import subprocess
import sys

import polars as pl
import pytest

from mixerscope.cli import main
from mixerscope.experiments.paper.render import load_results, read_about

HEAVY = ("polars", "altair", "vl_convert", "jinja2", "rich", "cyclopts")
WORKER = """
import sys
for name in {heavy!r}: sys.modules[name] = None
from mixerscope.sweep.worker import main
sys.exit(main({words!r}))
"""


@pytest.mark.slow
def test_what_a_worker_made_is_taken_in_and_drawn(tmp_path):
    file, pack, kept = tmp_path / "part.json", tmp_path / "part.pack", tmp_path / "kept"
    toy = ["--toy", "--widths", "8", "--only", "attention"]
    assert main(["reproduce", "fig10", *toy, "--write-sweep", str(file)]) == 0
    words = [str(file), "--out", str(tmp_path / "runs"), "--pack", str(pack)]
    subprocess.run([sys.executable, "-c", WORKER.format(heavy=HEAVY, words=words)], check=True, capture_output=True)
    assert main(["reproduce", "fig10", "--toy", "--collect", str(pack), "--results", str(kept)]) == 0
    results = load_results(kept)
    assert len(results.runs) == 2  # two rates
    assert set(results.cells["documents"].unique()) == {"dev", "test"}
    best = results.best(results.part("fig10", "split"))
    assert len(best) == 1
    assert best["dev_accuracy"].null_count() == 0
    rows = results.restored(best, "blocks.1.resid_pre", "value", "dev")
    assert rows["restored"].null_count() == 0
    about = read_about(kept / "fig10")
    assert (about["runs"], about["with_proof"], about["toy"]) == (2, 2, True)
    assert list(about["sources"]) == ["part.pack"]
    assert results.tests.filter(pl.col("run_id") == best["run_id"][0]).height > 0
    # A run that two folders hold counts once.
    shutil.copytree(kept / "fig10", kept / "questions")
    again = load_results(kept)
    assert (len(again.runs), len(again.cells)) == (len(results.runs), len(results.cells))
    shutil.rmtree(kept / "questions")
    # Taken in once more, nothing changes.
    before = json.dumps({**about, "commands": None})
    assert main(["reproduce", "fig10", "--toy", "--collect", str(pack), "--results", str(kept)]) == 0
    assert json.dumps({**read_about(kept / "fig10"), "commands": None}) == before
    # Asked for what is missing, nothing is left of these runs, and of more widths the others.
    again = ["--missing", "--results", str(kept), "--write-sweep", str(file)]
    assert main(["reproduce", "fig10", *toy, *again]) == 2
    assert main(["reproduce", "fig10", "--toy", "--only", "attention", *again]) == 0
    [left] = json.loads(file.read_text())
    assert left["vary"]["model.width"] == [16]


def test_the_best_run_is_chosen_as_the_preset_says(tmp_path):
    from mixerscope.experiments.paper.data import Results
    from mixerscope.experiments.paper.schemas import CELLS, RUNS, TESTS
    from mixerscope.experiments.paper.sweeps import Choice

    def run(lr: float, dev: float, test: float, **more: object) -> dict[str, object]:
        same = {"run_id": f"{lr}", "kind": "k", "width": 16, "seed": 0, "outcome": "finished", "curve_likelihood": 0.5}
        return {**dict.fromkeys(RUNS), **same, "lr": lr, "curve_accuracy": dev, "accuracy": test, **more}

    runs = [run(1e-3, 0.9, 0.7), run(3e-3, 0.8, 0.95), run(1e-2, 0.9, 0.95, curve_likelihood=0.6)]
    runs.append(run(3e-2, 1.0, 1.0, outcome="diverged"))
    frames = (pl.DataFrame(runs, schema=RUNS), pl.DataFrame(schema=CELLS), pl.DataFrame(schema=TESTS))
    for preset, expected in (("clean", 1e-2), ("paper", 3e-3)):
        results = Results(*frames, Choice(preset))
        assert results.best(results.runs)["lr"].to_list() == [expected]
