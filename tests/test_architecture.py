"""The house rules that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "mixerscope"

# Each room may import from rooms with a lower number, and from itself.
ROOMS = {
    "errors": 0,
    "cache": 0,
    "registry": 0,
    "code": 0,
    "loading": 0,
    "values": 0,
    "spec": 0,
    "randomness": 0,
    "machine": 0,
    "progress": 0,
    "signals": 0,
    "showing": 0,
    "artifacts": 1,
    "provenance": 2,
    "kernels": 2,
    "sites": 2,
    "tasks": 2,
    "store": 2,
    "analysis": 2,
    "probing": 2,
    "mixers": 3,
    "model": 4,
    "training": 5,
    "interventions": 6,
    "planted": 7,
    "stages": 7,
    "results": 8,
    "runnable": 8,
    "listing": 9,
    "checkpoints": 9,
    "runs": 10,
    "comparisons": 10,
    "packs": 10,
    "check": 10,
    "sweep": 11,
    "work": 12,
    "report": 12,
    "export": 12,
    "experiments": 13,
    "cli": 14,
    "__init__": 14,
    "__main__": 15,
}
ABOVE_ALL = {"cli", "__main__"}
"""Rooms that may use what people use."""
WITHOUT_TORCH = {"errors", "cache", "registry", "code", "loading", "values", "spec", "progress", "signals"}
WITHOUT_TORCH |= {"showing", "store"}
COMPUTE_PATH = {"spec", "randomness", "sites", "tasks", "mixers", "model", "training", "interventions", "analysis"}
COMPUTE_PATH |= {
    "artifacts",
    "probing",
    "machine",
    "kernels",
    "progress",
    "results",
    "runs",
    "stages",
    "store",
    "packs",
    "sweep",
    "work",
}
HEAVY = {"polars", "altair", "vl_convert", "jinja2", "rich", "cyclopts"}

FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_there_are_files_to_check():
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_in_one_direction(path: Path):
    tree = ast.parse(path.read_text())
    here = room(path)
    assert here in ROOMS, f"{here} is a new room: give it a place in the table"
    if here == "__init__":
        return
    for name in imports(tree):
        if not name.startswith("mixerscope."):
            continue
        there = name.split(".")[1]
        if there not in ROOMS:
            # `from mixerscope import run` would pass by the table: public names are for people, not for rooms.
            assert there == "__version__" or here in ABOVE_ALL, f"{here} imports the public name {name}"
            continue
        allowed = there == here or ROOMS[there] < ROOMS[here] or (ROOMS[there] == ROOMS[here] == 0)
        assert allowed, f"{here} (room {ROOMS[here]}) imports {name} (room {ROOMS[there]})"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_forbidden_things(path: Path):
    text = path.read_text()
    tree = ast.parse(text)
    used, called = imports(tree), calls(tree)
    assert not used & {"pickle", "cloudpickle", "dill", "yaml"}, "no pickle, no yaml"
    assert "random" not in used or room(path) == "randomness", "no global RNG; one room sees that nobody uses it"
    assert not called & {"torch.load", "torch.save", "eval", "exec", "np.load", "torch.seed", "np.random.seed"}
    seeds = [name for name in called if name.endswith("manual_seed")]
    assert not seeds or room(path) == "randomness", "seeds are set in one place only"
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, "a bare except hides errors"
            assert not all(isinstance(s, ast.Pass) for s in node.body), "an except that passes hides errors"
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names), "no star imports"
    assert path.name != "utils.py"
    if room(path) in WITHOUT_TORCH:
        assert "torch" not in {name.split(".")[0] for name in used}
    if room(path) in COMPUTE_PATH:
        top_level = imports(ast.Module([n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], []))
        assert not {name.split(".")[0] for name in top_level} & HEAVY, "workers stay light"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_can_be_read_in_one_sitting(path: Path):
    assert len(path.read_text().splitlines()) <= 400


def test_importing_the_package_or_the_registry_does_not_import_torch():
    code = "import sys, mixerscope, mixerscope.registry, mixerscope.spec; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compute_path_imports_with_torch_numpy_pydantic_and_safetensors_only():
    code = (
        "import sys\n"
        f"for name in {sorted(HEAVY)}: sys.modules[name] = None\n"
        "import mixerscope.runs, mixerscope.training, mixerscope.interventions, mixerscope.analysis\n"
        "import mixerscope.sweep.worker, mixerscope.work, mixerscope.sweep.executors.slurm\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


EXPERIMENTS = "mixerscope.experiments"
FIGURES = sorted((SOURCE / "experiments").glob("*/figure.py"))
FIGURES_SEE = {f"{EXPERIMENTS}.paper.{name}" for name in ("data", "drawing", "panels", "sweeps", "tables")}
FIGURES_SEE |= {"mixerscope.model", "mixerscope.spec", "mixerscope.tasks"}
"""Modules that the drawing of a figure may import, beside other drawings: it draws kept tables and nothing else."""
USED_BY = {
    "artifacts": {"collect"},
    "packs": {"collect"},
    "results": {"collect"},
    "machine": {"cost"},
    "sweep": {"cost", "data", "sweeps"},
    "stages": {"render"},
    "store": {"collect", "page", "records", "render"},
}
"""Rooms in which runs are made and kept, and the modules of `experiments/paper` that alone may use them."""
NEITHER = {"training", "interventions", "probing", "runs", "checkpoints", "kernels", "mixers", "work", "cli", "export"}
"""Rooms that nothing of `experiments/paper` uses."""


def modules_used(path: Path) -> set[str]:
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in named if name.partition(".")[0] == "mixerscope"}


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.parent.name)
def test_the_drawing_of_a_figure_sees_kept_tables_alone(path: Path):
    drawings = {f"{EXPERIMENTS}.{other.parent.name}.figure" for other in FIGURES}
    assert modules_used(path) <= FIGURES_SEE | drawings


@pytest.mark.parametrize("path", sorted((SOURCE / "experiments" / "paper").glob("*.py")), ids=lambda path: path.stem)
def test_what_figures_share_reaches_runs_where_it_is_said_to(path: Path):
    rooms = {name.split(".")[1] for name in imports(ast.parse(path.read_text())) if name.startswith("mixerscope.")}
    assert {name for name in rooms & set(USED_BY) if path.stem not in USED_BY[name]} == set()
    assert rooms & NEITHER == set()


ABOUT_NO_ROOM = {
    "cluster": "real Slurm and real Ray",
    "docsite": "the documentation site",
    "fuzz": "mutated input",
    "golden": "recorded outputs",
    "ground_truth": "benchmarks/ground_truth",
    "plugin": "an outside package",
    "slow": "the demo, the wheel, kills",
    "test_architecture": "the house",
    "test_commands": "commands of the docs",
    "test_documents": "code of the docs",
    "test_public_names": "the package",
}
"""Tests that are not of one room, and what they are of."""


def test_tests_are_where_the_code_is():
    """A folder or a file of tests is called like the room it tests, or is named above."""
    tests = Path(__file__).parent
    found = {path.name for path in tests.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    found |= {path.stem for path in tests.glob("test_*.py")}
    rooms = set(ROOMS) | {f"test_{name}" for name in ROOMS}
    assert found - rooms == set(ABOUT_NO_ROOM)


ACROSS_A_ROOM = {
    "analysis": "coverage statistics_fuzz",
    "check": "broken_mixers every_mixer outside_mixers",
    "cli": "bad_input elsewhere hostile looking signals upkeep",
    "experiments": "figures_wrong kept patch_dev published round_trip seconds toy",
    "export": "page",
    "interventions": "benchmark cohort devices every_architecture first_looks heads no_silent_zero one_engine peers",
    "kernels": "interpreted",
    "mixers": "against_transformers forward_at later_interventions later_mixers later_references options"
    " published_numbers recurrent_cells references",
    "model": "canon plain_stacks residual site_layout threads",
    "packs": "hostile",
    "planted": "release_gate verdicts",
    "report": "browser inside verdict_table writing",
    "sweep": "shipped work",
    "tasks": "alone counterfactuals every_task fields",
    "training": "precision resumed_graphs",
}
"""Tests of a room that are of no single module of it."""


def test_tests_are_called_like_the_modules_they_test():
    """Those of `sweep/plan.py` are in `tests/sweep/test_plan.py`, or `test_plan_more.py` where they are many."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("*/test_*.py")):
        room = SOURCE / path.parent.name
        modules = {room.name, *(part.stem for part in room.rglob("*") if part.is_dir() or part.suffix == ".py")}
        name = path.stem.removeprefix("test_")
        if room.is_dir() and not any(name == module or name.startswith(f"{module}_") for module in modules):
            found.setdefault(room.name, []).append(name)
    assert found == {room: names.split() for room, names in ACROSS_A_ROOM.items()}


def test_tests_can_be_read_in_one_sitting_too():
    paths = Path(__file__).parent.rglob("*.py")
    assert [path.name for path in paths if len(path.read_text().splitlines()) > 400] == []


KINDS_OF_MODELS = {"Model", "Adapted"}
TOLD_APART = {
    "model/backbone.py": "blocks of ours are known, others are not",
    "interventions/programs.py": "how edits are run",
    "interventions/selftest.py": "how that is tested",
    "interventions/prove.py": "a map that somebody wrote is tested first",
    "interventions/check_model.py": "is for maps alone",
    "comparisons.py": "what people may compare",
}
"""The only places that ask whether a model is ours. All else asks the model, or the blocks that are known of it."""


def test_our_models_and_adapted_ones_are_told_apart_at_the_seams_alone():
    asking = [
        path.relative_to(SOURCE).as_posix()
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "isinstance"
        and {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)} & KINDS_OF_MODELS
    ]
    assert sorted(asking) == sorted(TOLD_APART)
