"""The pictures: what is drawn, and what it is drawn from."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import altair as alt
import pytest

from mixerscope.artifacts import Boundary, Curve, Emergence, EmergencePoint, Evaluation
from mixerscope.artifacts.effects import SHARE
from mixerscope.report import save_chart, write_report
from mixerscope.report.charts import MOST_LINES, emergence_chart, learning_curve, width_chart, width_lines
from mixerscope.report.data import gather
from mixerscope.report.heat_maps import all_rows, boundary_rows, heat_map
from mixerscope.report.payload import overview
from mixerscope.results import load_run, load_runs

from .conftest import find_run, find_stage, give_verdict, rewrite
from .reading import Page, page_of


def models_of(root):
    [group] = gather(load_runs(root))
    return group.models


def test_heat_maps_show_the_shares_of_the_table(folder):
    root = folder("based")
    details = page_of(root).details()
    grid = details["models"][0]["grids"]["key"]
    frame = details["frames"][grid["frame"]]
    places = [(d, s, r) for d in ("restore", "break") for s in frame["sites"] for r in frame["roles"]]
    codes = {"m": "measured", "-": "no path", "=": "same", "x": "invalid"}
    shown = {
        place: (share, codes[code])
        for place, share, code in zip(places, grid["share"], grid["status"], strict=True)
        if code != "."
    }
    effects = load_run(find_run(root, "based").path).effects
    rows = [r for r in effects.rows() if r["metric"] == SHARE and r["head"] is None and r["slot"] in effects.slots]
    roles = ("key", "value", "next_key", "divider", "query")
    assert {row["role"] for row in rows} > set(roles), "judging looked at more places than the map has columns"
    assert shown == {
        (row["direction"], row["site"], row["role"]): (row["value"] and round(10_000 * row["value"]), row["status"])
        for row in rows
        if row["role"] in roles
    }


def test_a_place_that_carries_has_a_column_though_it_is_no_role(folder):
    root = folder("based")
    carriers = {"blocks.0.resid_pre": "key", "blocks.1.resid_pre": "key+3", "blocks.1.resid_post": "query"}
    boundaries = tuple(Boundary(site, carrier, None, None) for site, carrier in carriers.items())
    give_verdict(find_run(root, "based"), "other: offset +3", ["key", "key+3", "query"], boundaries=boundaries)
    [model] = models_of(root)
    rows = boundary_rows(model, "key")
    assert rows == dict(zip(carriers, ["input", "after block 0", "after block 1"], strict=True))
    shown = heat_map(model, "key", rows)["datasets"]["restore"]
    assert Counter(row["role"] for row in shown) == {
        **dict.fromkeys(["key", "value", "next_key", "divider", "query"], 3),
        "key+3": 1,
    }


def test_charts_are_valid_and_can_be_saved_without_a_browser(folder, tmp_path):
    [model] = models_of(folder("based"))
    drawn = heat_map(model, "key", all_rows(model, "key"))
    assert alt.Chart.from_dict(drawn).to_dict(validate=True) == drawn
    save_chart(drawn, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    curve = learning_curve([model], "accuracy", "Accuracy")
    curve.to_dict(validate=True)
    save_chart(curve, tmp_path / "curve.svg")
    assert f">guessing {model.guessing:.1%}<" in (tmp_path / "curve.svg").read_text()
    assert "guessing" not in str(learning_curve([model], "loss", "Loss").to_dict())


def test_seeds_have_an_interval_from_three_on(kernels):
    [group] = gather(load_runs(kernels))
    assert overview([group])["tasks"][0]["seeds"] == {}, "two seeds have none"
    same = replace(group, models=tuple(replace(m, setting="one") for m in group.models))
    [(members, (mean, low, high, n))] = overview([same])["tasks"][0]["seeds"].items()
    assert (members, n) == (",".join(map(str, range(16))), 16)
    assert mean == pytest.approx(sum(m.any_accuracy for m in group.models) / 16, abs=1e-4)
    assert low < mean < high


def test_models_of_several_widths_are_shown_together(folder):
    root = folder("wide based", "attention", "diverged")
    assert not page_of(root).figures("printed"), "no architecture has two"
    folder("based")
    chart = width_chart(models_of(root))
    assert chart is not None
    spec = chart.to_dict(validate=True)
    points = {(row["model"], row["width"]): row["documents"] for row in spec["datasets"]["models"]}
    assert points == {
        ("attention lr=0.001", 8): "fresh",
        ("attention lr=1e+30", 8): "dev set, last evaluation",
        ("based d=8", 8): "fresh",
        ("based d=16", 16): "fresh",
    }
    assert {(row["series"], row["width"]) for row in spec["datasets"]["lines"]} == {
        ("attention", 8),
        ("based", 8),
        ("based", 16),
    }
    assert "based at 16" in spec["description"]
    assert len(page_of(root).figures("printed")) == 1


def test_a_sweep_over_an_option_has_a_line_for_each_value_and_no_two_equal_names(kernels, tmp_path):
    models = models_of(kernels)
    assert len(models) == 16
    assert len({model.label for model in models}) == 16
    assert models[0].label == "mamba d=8 d_conv=2 lr=0.001 seed=0"
    spec = width_chart(models).to_dict(validate=True)
    lines = Counter(row["series"] for row in spec["datasets"]["lines"])
    assert lines == {"mamba d_conv=2": 2, "mamba d_conv=4": 2}
    assert {row["seeds"] for row in spec["datasets"]["lines"]} == {2}
    assert len(spec["datasets"]["models"]) == 16
    page = Page(write_report(kernels, tmp_path / "page.html").read_text())
    assert [model["label"] for model in page.overview()["models"]] == [model.label for model in models]


def ran(width, seed, lr, dev, fresh, outcome="finished", series="based"):
    curve = Curve((Evaluation(10, 0.5, dev, dev),))
    training = {"seed": seed, "train": {"lr": lr}}
    status = SimpleNamespace(outcome=outcome)
    return SimpleNamespace(
        series=series, width=width, training=training, curve=curve, any_accuracy=fresh, status=status
    )


def test_a_line_goes_through_the_best_rate_of_each_seed_and_the_median_over_seeds():
    models = [
        ran(8, 0, 0.1, dev=0.5, fresh=0.9),
        ran(8, 0, 0.2, dev=0.6, fresh=0.3),
        ran(8, 0, 0.3, dev=0.9, fresh=0.8, outcome="diverged"),
        ran(8, 1, 0.1, dev=0.7, fresh=0.7),
        ran(8, 2, 0.1, dev=0.5, fresh=0.4),
        ran(16, 0, 0.1, dev=0.2, fresh=0.2, outcome="diverged"),
        ran(8, 0, 0.1, dev=0.1, fresh=0.1, series="mamba"),
    ]
    assert width_lines(models) == [
        {"series": "based", "width": 8, "accuracy": 0.4, "seeds": 3},
        {"series": "based", "width": 16, "accuracy": 0.2, "seeds": 1},
        {"series": "mamba", "width": 8, "accuracy": 0.1, "seeds": 1},
    ]


@pytest.mark.parametrize("count", [MOST_LINES, MOST_LINES + 1])
def test_many_learning_curves_are_coloured_by_architecture(count):
    curve = Curve((Evaluation(0, None, 0.1, 0.1), Evaluation(5, 1.5, 0.5, 0.5)))
    status = SimpleNamespace(outcome="finished")
    models = [
        SimpleNamespace(label=f"based seed={i}", architecture="based", curve=curve, status=status) for i in range(count)
    ]
    spec = learning_curve(models, "loss", "Loss").to_dict(validate=True)
    domain = spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert len(domain) == (count if count == MOST_LINES else 1)
    rows = spec["datasets"]["curve"]
    assert len(rows) == count, "a loss is known from the second evaluation on"
    assert {row["ended"] for row in rows} == {"finished"}


def point(step, site, share, accuracy):
    return EmergencePoint(step, "key", site, "value", share, None, None, None, accuracy, "")


def test_emergence_is_drawn_from_where_the_model_reads_the_token():
    sites = ["blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post"]
    early = [point(0, site, None, 0.1) for site in sites]
    late = [point(8, site, share, 0.5) for site, share in zip(sites, (0.3, 0.9, 0.2), strict=True)]
    failed = EmergencePoint(4, None, None, None, None, None, None, None, None, "not finite")
    model = SimpleNamespace(emergence=Emergence((*early, failed, *late)), label="based")
    chart = emergence_chart(model, "key")
    assert chart.datasets["emergence"] == [
        {"step": 8, "what": "value", "value": 0.9},
        {"step": 0, "what": "accuracy", "value": 0.1},
        {"step": 8, "what": "accuracy", "value": 0.5},
    ]
    assert "value 0.90, accuracy 0.50" in chart.description
    assert emergence_chart(SimpleNamespace(emergence=Emergence(tuple(early)), label="based"), "key") is None


def test_emergence_between_several_blocks_is_several_lines():
    sites = [*(f"blocks.{i}.resid_pre" for i in range(3)), "blocks.2.resid_post"]
    points = tuple(point(step, site, 0.5, 0.5) for step in (0, 8) for site in sites)
    chart = emergence_chart(SimpleNamespace(emergence=Emergence(points), label="deep"), "key")
    lines = Counter(row["what"] for row in chart.datasets["emergence"])
    assert lines == {"value after block 0": 2, "value after block 1": 2, "accuracy": 2}


def test_a_run_that_was_watched_shows_how_its_mechanism_came_about(folder):
    root = folder("watched")
    assert page_of(root).overview()["emergence"] == [None], "this one never read the token"
    stage = find_stage(find_run(root, "based"), "emergence")
    points = stage.read(Emergence).points
    rewrite(stage, Emergence(tuple(replace(point, share=0.25) for point in points)))
    [lines] = page_of(root).overview()["emergence"]
    assert {line["name"] for line in lines} == {"key", "value", "next_key", "divider", "query"}
    assert {step for line in lines for step in line["step"]} == {point.step for point in points}
    assert {share for line in lines for share in line["share"]} == {0.25}
