"""Shared fixtures: tiny specs and models, and a guard that no test leaves the global random state changed."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import rich.progress  # noqa: F401 - rich draws from `random` when it is first imported, which is not our doing
import torch

from mixerscope.spec import RunSpec
from mixerscope.tasks import AR
from tests.report.browser import browser, opened  # noqa: F401 - fixtures: one browser for the tests of all folders

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def global_rng_untouched() -> Iterator[None]:
    """Mixerscope neither reads nor changes global random state, whatever a test makes it do."""
    before = (torch.random.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate())  # noqa: NPY002
    yield
    after = (torch.random.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate())  # noqa: NPY002
    assert torch.equal(before[0], after[0]), "torch's global generator was used"
    assert before[1] == after[1], "numpy's global generator was used"
    assert before[2] == after[2], "random's global generator was used"


@pytest.fixture
def small_task() -> AR:
    return AR(num_pairs=3, num_keys=6, num_values=6)


def tiny_spec(architecture: str = "attention", **train: object) -> RunSpec:
    """A run that takes a fraction of a second."""
    settings = {"steps": 6, "batch_size": 4, "documents": 16, "eval_every": 3, "eval_documents": 8, **train}
    return RunSpec.model_validate(
        {
            "task": {"name": "ar", "num_pairs": 3, "num_keys": 6, "num_values": 6},
            "model": {"architecture": architecture, "width": 16, "max_length": 16},
            "train": settings,
            "stages": {"patch": {"documents": 8}, "judge": {}},
        }
    )


def with_stage(spec: RunSpec, name: str, **settings: object) -> RunSpec:
    """The same run with some settings of a stage changed, or the stage added."""
    stages = {known: stage.model_dump() for known, stage in spec.stages.items()}
    return spec.changed(stages={**stages, name: {**stages.get(name, {}), **settings}})
