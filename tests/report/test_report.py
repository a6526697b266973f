"""The page as a file: what it says and what it holds."""

import re
from dataclasses import astuple, replace
from types import SimpleNamespace

import pytest

from mixerscope.analysis import Rules
from mixerscope.artifacts import Estimate, SelfTest, StageRecord
from mixerscope.artifacts.effects import Cell, EffectTable
from mixerscope.artifacts.verdicts import Test as Asked
from mixerscope.report import write_report
from mixerscope.report.data import gather
from mixerscope.report.findings import UNNAMED, _names
from mixerscope.report.grids import MARKS, UNDEFINED
from mixerscope.results import load_run, load_runs
from mixerscope.runs import run
from mixerscope.store import read_json
from mixerscope.tasks import AR
from mixerscope.tasks.mechanisms import RETRIEVAL

from .conftest import HOSTILE, find_run, find_stage, give_verdict, make_hostile, rewrite, tiny_spec
from .reading import Page, page_of

ROUTES = {mechanism.name: list(mechanism.route) for mechanism in RETRIEVAL}
LOADS = {"src", "href", "action", "data", "poster", "srcset", "formaction", "xlink:href"}


def test_a_page_of_one_run(folder):
    page = page_of(folder("attention"))
    assert page.headline() == "Not learned"
    assert "single seed" in page.visible()
    assert "identity error exactly 0 at" in page.visible()


def test_several_runs_tasks_and_outcomes_share_a_page(folder):
    root = folder("based", "attention", "attention seed 1", "two slots", "other task", "diverged", "unpatchable")
    page = page_of(root)
    text = page.visible()
    assert page.headline() == "7 models on 2 tasks"
    for expected in (
        "Task 1",
        "Task 2",
        "1 of 2 seeds",
        "single seed",
        "value corrupted",
        "diverged",
        "not above guessing",
    ):
        assert expected in text
    labels = [row["model"] for row in read_json(root / "summary.json")["models"]]
    assert len(set(labels)) == 7, "every run of a task needs a name of its own"
    assert [task["models"] for task in page.overview()["tasks"]] == [[0, 1, 2, 3, 4, 5], [6]]


def test_runs_go_by_the_settings_in_which_they_differ(folder):
    root = folder("attention", "attention seed 1", "two slots", "based", "wide based")
    page = page_of(root)
    names = list(dict.fromkeys(row["model"] for row in read_json(root / "summary.json")["models"]))
    attention = ["attention lr=0.001 seed=0", "attention lr=0.001 seed=1", "attention lr=0.002 seed=0"]
    assert names == [*attention, "based d=8", "based d=16"]
    assert all(name in page.visible() for name in names)
    assert [model["label"] for model in page.overview()["models"]] == names
    assert {row["train.lr"] for row in page.table("summary.csv")} == {"0.001", "0.002", ""}


def test_the_same_settings_in_other_code_are_told_apart(folder, tmp_path):
    root = folder("attention")
    given = load_run(find_run(root, "attention").path)
    other = SimpleNamespace(
        **{name: getattr(given, name) for name in ("training", "status", "curve", "provenance", "spec")}
    )
    other.stages, other.find, other.reason, other.run_id = {}, lambda _: None, "", "0" * 12
    identity = given.record.identity
    edited = {**identity["model"], "mixers": {"attention": {"revision": 1, "code": {"source": "abc"}}}}
    other.record = SimpleNamespace(identity={**identity, "model": edited})
    [group] = gather([given, other])
    assert {model.label for model in group.models} == {f"attention {given.run_id}", f"attention {'0' * 12}"}
    assert len({model.series for model in group.models}) == 2
    assert [model.seeds for model in group.models] == [1, 1]


def test_summary_json_holds_what_the_run_measured(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "induction", ROUTES["induction"], accuracy=0.75)
    write_report(root)
    [row] = read_json(root / "summary.json")["models"]
    run = load_run(find_run(root, "based").path)
    assert row["architecture"] == "based"
    assert row["task"] == run.training["task"]
    assert (row["accuracy"], row["accuracy_interval"]) == (0.75, [0.75, 0.75])
    assert row["dev_accuracy"] == run.curve.points[-1].accuracy
    assert row["likelihood"] == run.scores.estimates["original.likelihood"].value
    assert (row["mechanism"], row["route"]) == ("induction", ["key", "value", "query"])
    assert (row["takes_the_route"], row["takes_the_route_interval"]) == (0.912345, [0.812345, 0.987654])
    assert (row["parameters"], row["state_size"]) == (run.status.parameters, run.status.state_size)
    assert (row["seed"], row["run_id"]) == (0, run.run_id)


def test_every_number_of_the_summary_table_is_in_the_downloads(folder):
    root = folder("based", "attention", "two slots", "diverged", "unpatchable")
    give_verdict(find_run(root, "based"), "induction", ROUTES["induction"])
    page = page_of(root)
    shown = {attrs["value"] for tag, attrs in page.tags if tag == "data"}
    assert len(shown) > 10

    def numbers(value) -> set[float]:
        if isinstance(value, dict | list):
            return set().union(*(numbers(v) for v in (value.values() if isinstance(value, dict) else value)))
        return {float(value)} if isinstance(value, int | float) else set()

    in_json = numbers(read_json(root / "summary.json"))
    in_csv = {cell for row in page.table("summary.csv") for cell in row.values()}
    assert {float(v) for v in shown if v} <= in_json
    assert {float(v) for v in shown if v} <= {float(v) for v in in_csv if re.fullmatch(r"-?[\d.]+(e-?\d+)?", v)}


def test_what_is_drawn_is_what_the_runs_measured(folder):
    root = folder("based", "watched")
    page = page_of(root)
    runs = [model.run for [task] in [gather(load_runs(root))] for model in task.models]
    for i, measured in enumerate(runs):
        curve = page.overview()["curves"][i]
        assert curve["step"] == [point.step for point in measured.curve.points]
        assert curve["accuracy"] == pytest.approx([point.accuracy for point in measured.curve.points], abs=1e-4)
        assert page.overview()["models"][i]["accuracy"] == pytest.approx([*astuple(measured.scores.accuracy)], abs=1e-4)
        table = measured.effects
        cell = Cell("key", "restore", "blocks.1.resid_pre", "value")
        likelihood = table.estimate(cell, "likelihood").value
        shown = page.overview()["printed"][i]["key"]
        assert shown["restored"]["after block 0"]["value"] == pytest.approx(likelihood, abs=1e-4)
        assert shown["corrupted"] == pytest.approx(table.likelihood("corrupted key").mean().item(), abs=1e-4)
    buttons = [attrs.get("data-file") for tag, attrs in page.tags if tag == "button"]
    assert buttons == ["summary.csv", "cells.csv", "curves.csv", "emergence.csv"]


@pytest.mark.parametrize(
    ("based", "attention", "headline"),
    [
        (("induction", 1.0), ("direct retrieval", 0.96), "Same accuracy, different mechanism"),
        (("induction", 1.0), ("direct retrieval", 0.94), "Different mechanisms, different accuracy"),
        (("induction", 1.0), ("induction", 0.5), "Same mechanism in both models: induction"),
        (("induction", 1.0), None, "based learned induction"),
        (None, None, "No model learned the task"),
    ],
)
def test_the_headline_is_what_was_measured(folder, based, attention, headline):
    root = folder("based", "attention")
    for architecture, found in (("based", based), ("attention", attention)):
        if found:
            give_verdict(find_run(root, architecture), found[0], ROUTES[found[0]], found[1])
    assert page_of(root).headline() == headline


def test_a_headline_over_some_of_the_models_says_how_many(folder):
    root = folder("based", "holds", "attention")
    for architecture in ("based", "gru"):
        give_verdict(find_run(root, architecture), "induction", ROUTES["induction"])
    assert page_of(root).headline() == "Induction in 2 of 3 models"


def test_a_route_is_drawn_with_the_part_that_made_each_move(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "induction", ROUTES["induction"])
    text = page_of(root).visible()
    assert "key block 0: part 0 → value block 1: part 1 → query" in text


@pytest.mark.parametrize(
    ("name", "headline", "mechanism", "reason"),
    [
        ("diverged", "Training diverged", "diverged", "training diverged by step"),
        ("unpatchable", "The model cannot be patched", "cannot be patched", "noise changes earlier logits"),
        ("not judged", "Trained and not judged", "not judged", ""),
    ],
)
def test_a_run_without_a_verdict_is_shown_with_its_accuracy_and_the_reason(folder, name, headline, mechanism, reason):
    root = folder(name)
    page = page_of(root)
    assert page.headline() == headline
    [row] = read_json(root / "summary.json")["models"]
    assert (row["mechanism"], row["takes_the_route"], row["route"]) == (mechanism, None, [])
    assert reason in row["reason"]
    assert row["reason"] in page.visible()
    run = load_run(find_run(root, "attention").path)
    assert row["dev_accuracy"] == run.curve.points[-1].accuracy
    assert row["accuracy"] == (None if name == "diverged" else run.scores.accuracy.value)
    shown = row["dev_accuracy"] if name == "diverged" else row["accuracy"]
    assert f"accuracy {100 * shown:.1f}%" in page.visible()
    assert ("No patching grid was asked for or reached" in page.visible()) == (name != "not judged")


def test_a_verdict_without_a_gap_has_a_page(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "undetermined", [], gap=None, share=None, reason="not finite")
    assert "not finite" in page_of(root).visible()


def test_sites_that_the_model_ignores_are_said_to_be_dead(folder):
    root = folder("based")
    assert "this model ignores" not in page_of(root).visible()
    patch = find_stage(find_run(root, "based"), "patch")
    tested = patch.read(SelfTest)
    rewrite(patch, replace(tested, sites=(replace(tested.sites[0], dead=True), *tested.sites[1:])))
    assert "1 site this model ignores" in page_of(root).visible()


def test_thresholds_are_those_by_which_the_runs_were_judged(folder):
    root = folder("attention", "based")
    text = page_of(root).visible()
    usual = Rules()
    assert f"goes further than {usual.carries} of the way" in text
    assert f"fewer than {usual.names} of the documents take one route" in text
    assert f"if the gap exceeds {usual.min_gap}" in text
    assert "95% interval over documents" in text
    judge = find_stage(find_run(root, "based"), "judge")
    record = judge.read(StageRecord)
    rewrite(judge, replace(record, settings={"rules": record.settings["rules"] | {"carries": 0.8}}))
    text = page_of(root).visible()
    assert "goes further than 0.5 or 0.8 of the way" in text
    assert text.count("carries = 0.8") == 1


def test_mechanisms_and_what_they_mean_come_from_the_runs(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "induction", ROUTES["induction"])
    patch = find_stage(find_run(root, "based"), "patch")
    effects = patch.read(EffectTable)
    own = [replace(m, meaning=f"{m.name} as this task has it") for m in effects.facts.mechanisms]
    rewrite(patch, replace(effects, facts=replace(effects.facts, mechanisms=tuple(own))))
    text = page_of(root).visible()
    assert text.count("induction as this task has it") == 3, "headline, card and definition"
    for name, route in ROUTES.items():
        assert f"the route {' → '.join(route)}: {name} as this task has it" in text


def test_cells_that_are_not_numbers_are_marked_and_explained(folder):
    root = folder("attention")
    run_folder = find_run(root, "attention")
    patch = find_stage(run_folder, "patch")
    effects = patch.read(EffectTable)
    bad = [cell.role == "divider" and cell.site == "blocks.1.resid_pre" for cell in effects.cells]
    statuses = tuple("invalid" if b else status for b, status in zip(bad, effects.statuses, strict=True))
    reasons = tuple("nan" if b else reason for b, reason in zip(bad, effects.reasons, strict=True))
    rewrite(patch, replace(effects, statuses=statuses, reasons=reasons))
    give_verdict(run_folder, "induction", ROUTES["induction"])
    page = page_of(root)
    details = page.details()
    grid = details["models"][0]["grids"]["key"]
    assert {*grid["status"]} == {"m", "-", "=", "x"}
    assert page.overview()["marks"] == {
        "-": MARKS["no path"],
        "=": MARKS["same"],
        "x": MARKS["invalid"],
        "m": UNDEFINED,
    }
    frame = details["frames"][grid["frame"]]
    invalid = {(frame["sites"][s], frame["roles"][r]) for _, s, r, reason in grid["why"] if reason == "nan"}
    assert invalid == {("blocks.1.resid_pre", "divider")}
    for status in MARKS:
        assert f"{status}:" in page.visible()


def test_a_run_that_did_not_keep_what_guessing_gets_has_it_from_its_task(folder):
    root = folder("based")
    [kept] = gather(load_runs(root))
    patch = find_stage(find_run(root, "based"), "patch")
    effects = patch.read(EffectTable)
    rewrite(patch, replace(effects, facts=replace(effects.facts, guessing=None)))
    [group] = gather(load_runs(root))
    assert group.models[0].facts.guessing is None
    assert group.models[0].guessing == kept.models[0].guessing > 0
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(AR, "guessing", lambda self: 1 / 0)
        assert gather(load_runs(root))[0].models[0].guessing is None


def test_a_run_whose_code_is_not_at_hand_is_drawn_like_any_other(folder):
    root = folder("mine")
    page = page_of(root)
    [row] = read_json(root / "summary.json")["models"]
    assert (row["model"], row["mechanism"]) == ("local/Mine", "not above guessing")
    assert [len(page.figures(kind)) for kind in ("map", "curves", "accuracy")] == [1, 1, 0]
    assert "One of the measured pairs" not in page.visible()
    folder("attention")
    [group] = gather(load_runs(root))
    assert group.example is not None
    assert {label for label, *_ in group.example.likelihoods} == {"local/Mine", "attention"}


def test_the_runs_that_are_given_are_shown_and_no_others(folder, tmp_path):
    root = folder("based", "attention")
    asked = run(tiny_spec("based", patch={"documents": 5}, judge={}), root, progress=False)
    write_report(root, runs=[asked])
    [row] = read_json(root / "summary.json")["models"]
    assert (row["model"], row["documents"]) == ("based", 5)


def test_no_request_leaves_the_page(folder):
    page = page_of(folder("based", "attention"))
    for tag, attrs in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base"), tag
        for name, value in attrs.items():
            assert name not in LOADS or (value or "").startswith("#"), (tag, name, value)
    policies = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert "default-src 'none'" in (policies[0] or "")


def test_hostile_names_stay_text(folder, monkeypatch):
    root = folder("based")
    name = make_hostile(root, monkeypatch)
    html = write_report(root).read_text()
    page = Page(html)
    assert HOSTILE in "".join(page.text)
    assert name in "".join(page.text)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 4
    assert "<script>alert" not in html


def test_an_unforeseen_route_is_glossed_and_not_taken_for_a_name(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "other: offset +3", ["key", "key+3", "query"])
    page = page_of(root)
    assert page.headline() == "based learned an unnamed route"
    assert f"other: offset +3: {UNNAMED}" in page.visible()


def test_a_task_solved_without_retrieval_is_said_so(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "not retrieval", [])
    page = page_of(root)
    assert page.headline() == "Solved without retrieval"
    assert [attrs.get("data-sites") for attrs in page.figures("map")] == ["all"]


def test_many_models_are_counted_by_architecture():
    def model(architecture, label):
        return SimpleNamespace(label=label, architecture=architecture)

    few = [model("based", f"based d={width}") for width in (16, 32)]
    assert _names(few) == "based d=16 and based d=32"
    many = [*few, model("attention", "attention"), *few]
    assert _names(many) == "based x4 and attention x1"


def test_seeds_of_one_training_are_put_together(folder):
    said = "attention lr=0.001: not above guessing in 2 of 2 seeds; 2 seeds: no interval under 3"
    root = folder("attention", "attention seed 1", "two slots", "based")
    assert said in page_of(root).visible()


def test_one_seed_is_put_together_with_nothing(folder):
    assert "seeds say together" not in page_of(folder("attention")).visible()


def test_the_page_says_how_many_false_names_to_expect(folder):
    root = folder("attention", "based")
    asked = Asked("takes the route", True, Estimate(0.95, 0.92, 0.98, 320), 0.9)
    give_verdict(find_run(root, "based"), "induction", ["key", "value", "query"], tests=(asked,))
    text = page_of(root).visible()
    assert "1 of 2 verdicts names a route; at most 0.021 false names are to be expected (a route that 90% of" in text
    assert "None of 1 verdict names a route." in page_of(find_run(root, "attention").path).visible()
