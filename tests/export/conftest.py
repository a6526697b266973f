import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mixerscope.artifacts import JsonArtifact
from mixerscope.registry import STAGES, register
from mixerscope.runs import run
from mixerscope.spec import RunSpec
from mixerscope.stages import Done, Result, Stage, Trained
from tests.conftest import tiny_spec

STATES = {
    "task": {"name": "parity", "length": 6},
    "model": {"architecture": "mamba", "width": 8, "layers": 1},
    "train": {"steps": 4, "batch_size": 8, "documents": 32, "eval_every": 2, "eval_documents": 8},
    "stages": {
        "lengths": {"documents": 16, "times": [1, 2]},
        "probes": {"documents": 64},
        "erase": {"documents": 64, "damaged_documents": 16, "draws": 2},
        "interchange": {"documents": 64, "pairs": 16},
        "align": {"documents": 64, "learned_on": 16, "pairs": 16, "ranks": [1], "steps": 2},
        "recover": {"pairs": 16},
        "track": {},
    },
}


@dataclass(frozen=True)
class Norms(JsonArtifact):
    """A table of somebody else: names that are ours too, and values of other types."""

    file: ClassVar[str] = "norms.json"
    norms: dict[str, float]

    def rows(self) -> Iterator[dict[str, Any]]:
        for site, norm in self.norms.items():
            yield {"site": site, "norm": norm, "seed": "of the probe", "n": 3, "reason": 1, "odd": [1, {"a": None}]}


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: a recall task with emergence and two verdicts, a diverged one, and a tracked state."""
    root = tmp_path_factory.mktemp("made")
    spec = tiny_spec("mamba").changed(
        stages={
            "patch": {"documents": 8},
            "prove": {},
            "judge": {},
            "emergence": {"looks": 2},
            "patterns": {"documents": 8},
        }
    )
    run(spec, root, progress=False)
    run(tiny_spec("attention", lr=1e30, eval_every=6), root, progress=False)
    run(RunSpec.model_validate(STATES), root, progress=False)
    return root


@pytest.fixture
def made(_made: Path, tmp_path: Path) -> Path:
    """The same, free to be damaged."""
    return Path(shutil.copytree(_made, tmp_path / "runs"))


@pytest.fixture
def foreign(made: Path) -> Iterator[Path]:
    """A folder in which a run has a stage from elsewhere."""

    @register("stage", "norms-elsewhere")
    class FindNorms(Stage):
        """Something."""

        artifacts: ClassVar[tuple] = (Norms,)

        def run(self, trained: Trained) -> list[Result]:
            return [Done((Norms({"embed": 1.0, "blocks.0.resid_post": 2.5}),)) for _ in trained.specs]

    run(tiny_spec().changed(stages={"norms-elsewhere": {}}), made, progress=False)
    yield made
    STAGES._entries.pop("norms-elsewhere", None)
    STAGES._loaded.pop("norms-elsewhere", None)
