"""The page as a file: what it says, what it holds, what it refuses."""

import base64
import csv
import gzip
import io
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from mixerscope.analysis import CARRIES, MECHANISMS, MIN_GAP, SHARE
from mixerscope.errors import CorruptFile, UserError
from mixerscope.report import save_chart, write_report
from mixerscope.report.charts import MARKS, all_rows, emergence_chart, heat_map, learning_curve, width_chart
from mixerscope.report.data import gather
from mixerscope.report.findings import GLOSS, _names
from mixerscope.runs import load_run
from mixerscope.store import find_runs, read_json, write_json
from mixerscope.tasks import AR

from .conftest import change_rows, find_run, give_verdict

ROUTES = {name: list(route) for route, name in MECHANISMS.items()}
LOADS = {"src", "href", "action", "data", "poster", "srcset", "formaction", "xlink:href"}


class Page(HTMLParser):
    """Tags, visible text, and the contents of elements with an id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.raw: tuple[str, dict[str, str | None]] | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.raw = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.raw = None

    def handle_data(self, data):
        if self.raw is None:
            self.text.append(data)
        elif self.raw[0] == "script":
            self.scripts.append((self.raw[1], data))

    def visible(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    def script(self, id: str) -> str:
        return "".join(text for attrs, text in self.scripts if attrs.get("id") == id)

    def table(self, name: str) -> list[dict[str, str]]:
        text = gzip.decompress(base64.b64decode(self.script(name))).decode()
        return list(csv.DictReader(io.StringIO(text)))

    def headline(self) -> str:
        start = self.text.index("Mixerscope report")
        return next(text for text in self.text[start + 1 :] if text.strip())


def page_of(root) -> Page:
    return Page(write_report(root).read_text())


def test_a_page_of_one_run(folder):
    root = folder("attention")
    page = page_of(root)
    assert page.headline() == "Not learned"
    assert "single seed" in page.visible()
    assert "identity error exactly 0 at" in page.visible()


def test_several_runs_tasks_and_outcomes_share_a_page(folder):
    root = folder("based", "attention", "attention seed 1", "two slots", "other task", "diverged")
    page = page_of(root)
    text = page.visible()
    assert page.headline() == "6 models on 2 tasks"
    for expected in ("Task 1", "Task 2", "1 of 2 seeds", "single seed", "value corrupted", "diverged", "not learned"):
        assert expected in text
    labels = [row["model"] for row in read_json(root / "summary.json")["models"]]
    assert len(set(labels)) == 6, "every run of a task needs a name of its own"
    charts = json.loads(page.script("charts"))
    holders = {attrs["id"] for tag, attrs in page.tags if "chart" in (attrs.get("class") or "").split()}
    assert holders == set(charts)


def test_summary_json_holds_what_the_run_measured(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "induction", ROUTES["induction"], accuracy=0.75)
    write_report(root)
    [row] = read_json(root / "summary.json")["models"]
    run = load_run(find_run(root, "based").path)
    estimates = run.json("evaluation")["estimates"]
    assert row["architecture"] == "based"
    assert row["task"] == run.spec.model_dump(mode="json")["task"]
    assert (row["accuracy"], row["accuracy_interval"]) == (0.75, [0.75, 0.75])
    assert row["likelihood"] == estimates["original.likelihood"]["value"]
    assert (row["mechanism"], row["route"]) == ("induction", ["key", "value", "query"])
    assert (row["share_restored"], row["interval"]) == (0.912345, [0.812345, 0.987654])
    assert (row["seed"], row["run_id"]) == (0, run.spec.run_id)


def test_every_number_of_the_summary_table_is_in_the_downloads(folder):
    root = folder("based", "attention", "two slots", "diverged")
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


def test_downloads_are_the_tables_of_the_runs(folder):
    root = folder("based", "attention")
    page = page_of(root)
    runs = [load_run(find_run(root, name).path) for name in ("attention", "based")]
    for name, rows in (
        ("cells.csv", [row for run in runs for row in run.cells()]),
        ("curves.csv", [row for run in runs for row in run.curve()]),
    ):
        table = page.table(name)
        assert len(table) == len(rows)
        for read, row in zip(table, rows, strict=True):
            for column, value in row.items():
                expected = "" if value is None else value
                assert (float(read[column]) if isinstance(expected, int | float) else read[column]) == expected
    buttons = {attrs.get("data-file") for tag, attrs in page.tags if tag == "button"}
    assert buttons == {"summary.csv", "cells.csv", "curves.csv"}


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


def test_a_route_is_drawn_with_the_part_that_made_each_move(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "induction", ROUTES["induction"])
    text = page_of(root).visible()
    assert "key block 0: part 0 value block 1: part 1 query" in text


def test_a_diverged_run_alone_has_a_page(folder):
    root = folder("diverged")
    page = page_of(root)
    assert page.headline() == "Training diverged"
    [row] = read_json(root / "summary.json")["models"]
    assert row["outcome"] == "diverged"
    assert row["accuracy"] is None
    assert "No run got as far as a grid." in page.visible()


def test_sites_that_the_model_ignores_are_said_to_be_dead(folder):
    root = folder("based")
    assert "this model ignores" not in page_of(root).visible()
    run_folder = find_run(root, "based")
    tested = read_json(run_folder.path / "self_test.json")
    tested["sites"][0]["dead"] = True
    write_json(run_folder.path / "self_test.json", tested)
    run_folder.seal()
    assert "1 site this model ignores" in page_of(root).visible()


def test_thresholds_and_mechanisms_come_from_the_analysis(folder):
    text = page_of(folder("attention")).visible()
    assert f"above {CARRIES}" in text
    assert f"less than {MIN_GAP}" in text
    assert "95 % interval over documents" in text.replace("\u2009", " ")
    for route, name in MECHANISMS.items():
        assert name in GLOSS
        assert f"{name} the route {' → '.join(route)}" in text


def test_heat_maps_show_the_shares_of_the_table(folder):
    root = folder("based")
    page = page_of(root)
    [chart] = [c for id, c in json.loads(page.script("charts")).items() if id.endswith("-sites")]
    cells = [row for row in load_run(find_run(root, "based").path).cells() if row["metric"] == SHARE]
    shown = {
        (d, r["site"], r["role"]): (r["share"], r["status"]) for d, rows in chart["datasets"].items() for r in rows
    }
    assert shown == {
        (row["direction"], row["site"], row["role"]): (row["value"] and round(row["value"], 4), row["status"])
        for row in cells
    }


def test_cells_that_are_not_numbers_are_marked_and_explained(folder):
    root = folder("attention")
    run_folder = find_run(root, "attention")

    def spoil(row):
        bad = row["role"] == "divider" and row["site"] == "blocks.1.resid_pre"
        return {**row, "status": "invalid", "value": None, "low": None, "high": None, "reason": "nan"} if bad else row

    change_rows(run_folder.path / "cells.jsonl", spoil)
    run_folder.seal()
    give_verdict(run_folder, "induction", ROUTES["induction"])
    page = page_of(root)
    charts = json.loads(page.script("charts"))
    rows = [row for chart in charts.values() for data in chart.get("datasets", {}).values() for row in data]
    cells = [row for row in rows if "status" in row]
    by_status = {row["status"]: row["text"] for row in cells if row["status"] != "measured"}
    assert by_status == MARKS
    for status in MARKS:
        assert f"{status}:" in page.visible()


def test_the_example_is_a_measured_pair(folder):
    root = folder("based")
    [group] = gather(find_runs(root))
    example = group.example
    assert example is not None
    [twin] = example.twins.values()
    assert sum(token.changed for token in twin) == 1
    assert [token.roles for token in twin if token.changed] == [("key",)]
    assert example.tokens[example.asked_at].roles == ("query",)
    assert example.tokens[example.asked_at + 1].text == example.answer
    found = load_run(find_run(root, "based").path).predictions()
    assert example.likelihoods == [
        ("based", found["original.likelihood"][0].item(), {"key": found["corrupted.key.likelihood"][0].item()})
    ]


def test_no_example_is_shown_that_was_not_measured(folder):
    root = folder("based")
    run_folder = find_run(root, "based")
    provenance = read_json(run_folder.path / "provenance.json")
    write_json(run_folder.path / "provenance.json", {**provenance, "pairs_sha256": "0" * 64})
    run_folder.seal()
    assert gather(find_runs(root))[0].example is None
    assert "One of the measured pairs" not in page_of(root).visible()


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
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    run_folder = find_run(root, "based")
    renamed = run_folder.path.with_name("<script>alert(3)<script>")
    run_folder.path.rename(renamed)
    run_folder.path = renamed
    change_rows(renamed / "cells.jsonl", lambda row: {**row, "reason": hostile, "role": row["role"] + hostile})
    run_folder.seal()
    monkeypatch.setattr(AR, "symbol", lambda self, token: f"{hostile}{token}")
    html = write_report(root).read_text()
    page = Page(html)
    assert hostile in "".join(page.text)
    assert renamed.name in "".join(page.text)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 6
    assert "<script>alert" not in html


def test_the_same_runs_give_the_same_bytes(folder, tmp_path):
    root = folder("based", "attention", "two slots")
    first = write_report(root, tmp_path / "a" / "first.html")
    second = write_report(root, tmp_path / "b" / "second.html")
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "a" / "summary.json").read_bytes() == (tmp_path / "b" / "summary.json").read_bytes()


def test_the_page_can_go_elsewhere(folder, tmp_path):
    root = folder("based")
    (tmp_path / "there").mkdir()
    assert write_report(root, tmp_path / "there") == tmp_path / "there" / "report.html"
    assert write_report(str(root), tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert (tmp_path / "new" / "summary.json").is_file()
    assert not (root / "report.html").exists()


def test_a_folder_without_runs_is_refused_and_left_as_it_was(tmp_path):
    with pytest.raises(UserError, match="no finished runs"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["cells.jsonl", "verdicts.json", "curve.jsonl", "self_test.json"])
def test_a_tampered_file_is_refused(folder, name):
    root = folder("based")
    path = find_run(root, "based").path / name
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(CorruptFile, match=name):
        write_report(root)
    assert not (root / "report.html").exists()


def test_charts_are_valid_and_can_be_saved_without_a_browser(folder, tmp_path):
    [group] = gather(find_runs(folder("based")))
    [model] = group.models
    assert model.verdict is not None
    sites = all_rows(model, model.verdict)
    heat_map(model, "key", sites).to_dict(validate=True)
    save_chart(heat_map(model, "key", sites), tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    save_chart(learning_curve(group.models, "accuracy", "Accuracy"), tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()


def test_models_of_several_widths_are_shown_together(folder):
    root = folder("wide based", "attention", "diverged")
    assert 'id="widths-0"' not in write_report(root).read_text(), "no architecture has two"
    folder("based")
    [group] = gather(find_runs(root))
    chart = width_chart(group.models)
    assert chart is not None
    spec = chart.to_dict(validate=True)
    assert [row["width"] for row in spec["datasets"]["models"]] == [8, 8, 16]
    assert {row["architecture"] for row in spec["datasets"]["best"]} == {"attention", "based"}
    assert "based at 16" in spec["description"]
    assert write_report(root).read_text().count('id="widths-0"') == 1


def test_an_unforeseen_route_is_glossed_and_not_taken_for_a_name(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "other: offset +3", ["key", "key+3", "query"])
    page = page_of(root)
    assert page.headline() == "based learned an unnamed route"
    assert f"other: offset +3: {GLOSS['other']}" in page.visible()


def test_a_task_solved_without_retrieval_is_said_so(folder):
    root = folder("based")
    give_verdict(find_run(root, "based"), "not retrieval", [])
    page = page_of(root)
    assert page.headline() == "Solved without retrieval"
    assert not any("boundaries" in id for id in json.loads(page.script("charts")))


def test_emergence_is_drawn_from_where_the_model_reads_the_token():
    site = {"slot": "key", "site": "blocks.1.resid_pre", "role": "value"}
    rows = [
        {**site, "step": 0, "share": None, "accuracy": 0.1},
        {**site, "step": 8, "share": 0.9, "accuracy": 0.5},
        {**site, "step": 8, "site": "blocks.0.resid_pre", "share": 0.3, "accuracy": 0.5},
    ]
    spec = SimpleNamespace(model=SimpleNamespace(layers=2))
    model = SimpleNamespace(emergence=rows, label="based", run=SimpleNamespace(spec=spec))
    chart = emergence_chart(model, "key")
    assert chart.datasets["emergence"] == [
        {"step": 8, "what": "value", "value": 0.9},
        {"step": 0, "what": "accuracy", "value": 0.1},
        {"step": 8, "what": "accuracy", "value": 0.5},
    ]
    assert "value 0.90, accuracy 0.50" in chart.description
    assert emergence_chart(SimpleNamespace(emergence=rows[:1], label="based", run=model.run), "key") is None


def test_many_models_are_counted_by_architecture():
    def model(architecture, label):
        spec = SimpleNamespace(model=SimpleNamespace(architecture=architecture))
        return SimpleNamespace(label=label, run=SimpleNamespace(spec=spec))

    few = [model("based", f"based, d={width}") for width in (16, 32)]
    assert _names(few) == "based, d=16 and based, d=32"
    many = [*few, model("attention", "attention"), *few]
    assert _names(many) == "based x4 and attention x1"
