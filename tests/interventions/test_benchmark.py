"""The benchmark of interventions: tools take turns, and a worker measures what it is told to."""

import json
from dataclasses import replace

import torch
from benchmarks import grid_worker
from benchmarks.interventions import RESULT, SETTINGS, complaints, largest_difference
from benchmarks.interventions_tables import BEFORE, PAGE, tables
from benchmarks.paste import DOCS, pasted
from benchmarks.rounds import Spread, in_turns, ratios, share
from safetensors.torch import load_file, save_file

from mixerscope.interventions import PairSettings, interchange, make_pairs
from mixerscope.model import build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)


def test_tools_take_turns_and_every_other_round_goes_backwards():
    asked: list[tuple[str, int]] = []

    def run(name: str, number: int) -> float:
        asked.append((name, number))
        return float(len(asked))

    seconds = in_turns(("a", "b", "a", "c"), 2, run)
    assert asked == [("a", 0), ("b", 0), ("a", 0), ("c", 0), ("c", 1), ("a", 1), ("b", 1), ("a", 1)]
    assert seconds == {"a": [2.0, 7.0], "b": [2.0, 7.0], "c": [4.0, 5.0]}


def test_ratios_are_taken_round_by_round():
    assert ratios([2.0, 9.0, 8.0], [1.0, 3.0, 2.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([1.0, 4.0]).rounded(1) == {"median": 2.5, "range": [1.0, 4.0]}


def test_shares_of_all_rounds_are_the_whole_once():
    for count in (1, 3, 5):
        assert sorted(x for number in range(count) for x in share(range(8), number, count)) == list(range(8))
    assert share(range(8), 6, 5) == share(range(8), 1, 5)


def test_a_number_that_is_not_finite_is_no_agreement():
    one, bad = {"x": torch.ones(2)}, {"x": torch.tensor([1.0, float("nan")])}
    assert largest_difference(one, one) == 0
    assert largest_difference(bad, one) == float("inf")


def test_what_is_recorded_is_what_the_docs_say_and_what_we_promise():
    content = json.loads(RESULT.read_text())
    page = (DOCS / PAGE).read_text()
    for name, text in tables(content).items():
        assert pasted(page, name, text) == page, "run make bench-interventions"
    assert content["rounds"] >= 5
    found = {(row["architecture"], row["width"], row["tool"]): row for row in content["rows"]}
    assert set(found) == {(*setting, tool) for setting, tools in SETTINGS.items() for tool in tools}
    assert all(row.get("largest_relative_difference", 0) < 1e-5 for row in found.values())
    assert complaints(content) == []


def test_what_must_not_be_is_complained_about():
    row = {"architecture": "mamba", "width": 64, "tool": BEFORE, "ratio": {"median": 0.9}}
    slow = {"rows": [row], "memory": {"growth": 0.5}}
    assert complaints(slow) == ["mamba d=64: slower than 0.1", "memory grew by 50.0% between 5 and 50 grids"]
    fine = {"rows": [{**row, "ratio": {"median": 1.1}}], "memory": {"growth": 0.0}}
    assert complaints(fine) == []


def test_a_worker_measures_the_model_and_the_documents_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(grid_worker, "LAYERS", 1)
    spec = ModelSpec(architecture="attention", width=16, layers=1, init="small_model")
    model = build_model(spec, TASK.vocab_size, seed=3).eval()
    pairs = make_pairs(TASK, PairSettings(documents=6, slots=("key", "value")), data_seed=1)
    save_file(grid_worker.tensors_of(model, pairs), tmp_path / "tensors")
    cells = [("key", "restore", "blocks.0.resid_pre", "key"), ("value", "restore", "blocks.0.mixer_in", "value")]
    request = {"slots": ["key", "value"], "cells": cells}
    at = {"tensors": str(tmp_path / "tensors"), "architecture": "attention", "width": 16, "tool": "mixerscope"}
    bench = grid_worker.Bench({**at, **request})
    answer = bench.run({**request, "keep": str(tmp_path / "found")})
    assert answer["cells"] == 2
    assert answer["seconds"] > 0
    plan = [grid_worker.Cell(*cell) for cell in cells]
    alone = replace(pairs, corrupted={slot: pairs.corrupted[slot] for slot in ("key", "value")})
    expected = interchange(model, alone, plan)
    found = load_file(tmp_path / "found")["likelihoods"]
    assert torch.equal(found, torch.stack([expected.cells[cell].effects.likelihood for cell in plan]))
    counts = bench.statuses(request)
    assert counts["measured"] == 2
    assert bench.run({"slots": ["key", "value", "query"], "cells": "with judging"})["cells"] > 50
