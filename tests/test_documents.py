"""README, docs and examples are code: every Python block and every example runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mixerscope.runnable import check_runnable
from mixerscope.spec import RunSpec

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = {page: re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S) for page in PAGES}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_is_something_to_run():
    assert sum(map(len, CODE.values())) >= 18
    assert len(EXAMPLES) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page, blocks in CODE.items() if blocks], ids=lambda page: page.name)
def test_code_blocks_run_in_the_order_of_their_page(page: Path, tmp_path: Path):
    """As one file a page: later blocks may build on earlier ones."""
    (tmp_path / "page.py").write_text("\n".join(CODE[page]))
    subprocess.run([sys.executable, "-W", "error", "page.py"], check=True, cwd=tmp_path)


def test_every_block_is_of_a_kind_that_is_tried():
    kinds = {kind for page in PAGES for kind in re.findall(r"^```(\S+)", page.read_text(), re.M)}
    assert kinds == {"python", "sh", "json"}, "Python runs here, commands in test_commands.py, JSON is read below"


def test_json_blocks_are_specs_that_can_be_run():
    """Parts of a run, or of a sweep's base: what they leave out is the task and the model."""
    blocks = [text for page in PAGES for text in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.M | re.S)]
    assert blocks
    for text in blocks:
        given = json.loads(text)
        spec = RunSpec.model_validate({"task": "ar", "model": {"architecture": "mamba"}, **given})
        check_runnable(spec)


def test_the_first_page_shows_what_its_example_prints(tmp_path: Path):
    text = (ROOT / "docs" / "index.md").read_text()
    code = re.search(r"^```python\n(.*?)^```\n\n`(.*?)`$", text, re.M | re.S)
    assert code is not None
    ran = subprocess.run([sys.executable, "-c", code[1]], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.strip() == code[2]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_are_short(path: Path, tmp_path: Path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    assert not re.search(r"^(from|import) mixerscope\.", text, re.M), "public names are enough"
    subprocess.run([sys.executable, "-W", "error", str(path)], check=True, cwd=tmp_path)


def test_own_mixer_and_own_task_of_the_examples_hold(tmp_path: Path):
    from mixerscope.check import check_mixer, check_task
    from mixerscope.interventions import PairSettings, make_pairs
    from mixerscope.registry import TASKS

    own_task = f"{ROOT / 'examples' / '05_own_task.py'}:First"
    results = [*check_mixer(f"{ROOT / 'examples' / '04_own_mixer.py'}:Decay"), *check_task(own_task)]
    assert [result for result in results if not result.passed] == []
    task = TASKS.load(TASKS.adopt(own_task))(length=5)
    assert len(make_pairs(task, PairSettings(documents=10), 0)) == 10


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path):
    """Those of the docs are followed where they lead on the site: tests/docsite."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_first_page_names_every_architecture_and_task():
    from mixerscope.registry import TASKS, architecture_entries

    text = (ROOT / "docs" / "index.md").read_text()
    for entry in [*architecture_entries(), *TASKS.entries()]:
        if entry.origin == "mixerscope":
            assert f"`{entry.name}`" in text, entry.name


def test_the_readme_is_one_screen_with_one_picture_and_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 36
    assert len(re.findall(r"^!\[", text, re.M)) == 1
    [block] = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    assert [line.split()[:2] for line in block.splitlines()] == [["make", "demo"], ["make", "test"]]


def test_rates_and_seconds_in_the_docs_are_those_that_were_recorded():
    text, results = (ROOT / "docs" / "training.md").read_text(), ROOT / "benchmarks" / "results"
    printed = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) x \| (\d+) \|$", text, re.M)
    keys = ("steps_per_s", "eager_steps_per_s", "as_published_steps_per_s", "ratio", "kernels_per_step")
    rows = json.loads((results / "training_cuda_tf32_compiled.json").read_text())["rows"]
    recorded = {row["architecture"].replace("_", ""): [f"{row[key]:.0f}" for key in keys] for row in rows}
    assert {name.lower(): numbers for name, *numbers in printed} == recorded
    rates = {}
    for precision in ("tf32", "float32"):
        stacks = json.loads((results / f"training_cuda_{precision}_compiled_stacks_of_35.json").read_text())["rows"]
        for row in stacks:
            rates.setdefault(row["architecture"].replace("_", ""), {})[precision, row["width"]] = row["steps_per_s"]
    cells = [(precision, width) for width in (16, 32, 64, 128, 256) for precision in ("tf32", "float32")]
    printed = re.findall(r"^\| (\w+) " + r"\| (\d+) / (\d+) " * 5 + r"\|$", text, re.M)
    found = {name.lower(): numbers for name, *numbers in printed}
    assert found == {name: [f"{row[cell]:.0f}" for cell in cells] for name, row in rates.items()}
    sums = [f"{sum(50_016 / row[cell] for row in rates.values()) / 60:.1f}" for cell in cells]
    assert [*re.findall(r"^\| all, .*$", text, re.M)[0].replace("/", "|").replace(" ", "").split("|")[2:-1]] == sums
    for name, file in (("TF32", "tf32"), ("strict float32", "float32")):
        lines = [json.loads(line) for line in (results / f"figure3_{file}.jsonl").read_text().splitlines()]
        models = sum(row["finished"] + row["diverged"] for row in lines if row["kind"] == "cohort")
        seconds = sum(row["wall_s"] for row in lines if row["kind"] == "job")
        assert f"| {name} | {models} of 245 | {seconds:.0f} s" in text
