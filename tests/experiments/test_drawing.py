"""What a drawing shows of numbers that are there in part."""

import json
from dataclasses import replace

import polars as pl

from mixerscope.experiments.fig10.figure import points
from mixerscope.experiments.paper.data import Results, kinds_of
from mixerscope.experiments.paper.drawing import heat_maps, lines
from mixerscope.experiments.paper.schemas import CELLS, RUNS, TESTS
from mixerscope.experiments.paper.sweeps import Choice
from tests.experiments.test_tables import rows


def test_heat_maps_have_no_empty_row_where_the_paper_prints_numbers_of_another_panel():
    """Of treecall it prints accuracies, which the figure does not show."""
    own = rows([50.0, 60.0, 70.0])
    for published, rows_of_maps in (({("Accuracy", "Mamba", 64): 92.2}, 1), ({("Original", "Mamba", 64): 92.2}, 2)):
        drawn = heat_maps(own, published, ["Original"], ["Mamba"], "title").to_dict()
        assert len(drawn["vconcat"]) == rows_of_maps
        assert ("published" in json.dumps(drawn)) == (rows_of_maps == 2)


def test_published_numbers_are_dashed_as_the_lines_they_belong_to():
    own = [{**row, "layers": "2"} for row in rows([50.0, 60.0, 70.0], row="Mamba, 2")]
    drawn = lines(own, {("Original", "Mamba, 1", 64): 90.0}, ["Original"], "title", dash="layers").to_dict()
    dashes = [layer["encoding"].get("strokeDash", {}).get("field") for layer in drawn["hconcat"][0]["layer"]]
    assert dashes == [None, "layers", None, None, "layers"]


def test_a_model_that_was_scored_on_one_set_alone_is_no_point():
    choice = Choice()
    [(kind, _)] = [item for item in kinds_of("fig10", choice).items() if item[1][1]["architecture"] == "mamba"]
    run = {**dict.fromkeys(RUNS), "kind": kind, "architecture": "mamba", "width": 16, "lr": 1e-3, "outcome": "finished"}
    more = [{"run_id": f"{seed}", "seed": seed, "curve_accuracy": 0.5} for seed in range(3)]
    found = [{**run, **more[0], "dev_accuracy": 0.5, "accuracy": 0.25}, {**run, **more[1], "dev_accuracy": 0.5}]
    frame = pl.DataFrame([*found, {**run, **more[2]}], schema=RUNS)
    results = Results(frame, pl.DataFrame(schema=CELLS), pl.DataFrame(schema=TESTS), choice)
    assert [(point["x"], point["y"]) for point in points(results)] == [(50.0, 25.0)]
    assert points(replace(results, runs=frame.clear())) == []


def test_cells_that_were_not_run_are_dashes_and_others_are_not():
    rows = [
        {"panel": "Original", "row": "Mamba", "width": 16, "seed": 0, "value": 3.0},
        {"panel": "Original", "row": "Based", "width": 32, "seed": 0, "value": 4.0},
    ]
    published = {("Original", "Mamba", 16): 3.5}
    drawn = heat_maps(rows, published, ["Original"], ["Mamba", "Based"], "title").to_dict()
    ours, theirs = (line["hconcat"][0]["layer"] for line in drawn["vconcat"])
    assert [(cell["row"], cell["width"]) for cell in ours[-1]["data"]["values"]] == [("Mamba", 32), ("Based", 16)]
    assert theirs[-1]["data"]["values"] == [], "what the paper does not print is not ours to mark"


def test_one_width_has_a_median_and_each_depth_a_mark_of_its_own():
    rows = [
        {"panel": "AR", "row": f"Mamba, {depth}", "layers": depth, "width": 16, "seed": seed, "value": 3.0 * seed}
        for depth in "12"
        for seed in range(3)
    ]
    drawn = lines(rows, {}, ["AR"], "title", dash="layers").to_dict()
    marks = [layer for layer in drawn["hconcat"][0]["layer"] if layer["mark"]["type"] == "point"]
    assert {layer["encoding"]["shape"]["field"] for layer in marks} == {"layers"}
    assert [layer["encoding"]["y"].get("aggregate") for layer in marks] == ["median", None]
