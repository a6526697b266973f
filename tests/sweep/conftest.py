import json

import pytest

from mixerscope.errors import SelfTestFailed
from mixerscope.registry import MIXERS
from mixerscope.stages import patch as patch_stage

BASE = {
    "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4},
    "model": {"architecture": "attention", "width": 8},
    "train": {"steps": 4, "batch_size": 4, "documents": 8, "eval_every": 2, "eval_documents": 8},
    "stages": {"patch": {"documents": 8}, "judge": {}},
}


@pytest.fixture
def own_mixer(tmp_path):
    """The reference of a mixer in a file, which leaves a mark when it is imported."""
    file = tmp_path / "own.py"
    file.write_text(
        "from pathlib import Path\n"
        "from mixerscope.mixers.attention import Attention\n"
        f"Path({str(tmp_path / 'imported')!r}).touch()\n\n\n"
        'class Own(Attention):\n    """Mine."""\n'
    )
    yield f"{file}:Own"
    for known in (MIXERS._entries, MIXERS._loaded, MIXERS._adopted):
        known.pop("local/Own", None)


@pytest.fixture
def unpatchable(monkeypatch):
    """Makes the self-test of one member fail, by its number in the cohort."""

    def fail(number):
        real = patch_stage.grids_or_failures

        def failing(models, *arguments):
            found = real(models, *arguments)
            return [*found[:number], SelfTestFailed("site 'embed' leaks"), *found[number + 1 :]]

        monkeypatch.setattr(patch_stage, "grids_or_failures", failing)

    return fail


@pytest.fixture
def sweep_file(tmp_path):
    """Writes a sweep file: two architectures, two rates and two seeds of a tiny model unless told otherwise."""

    def write(vary=None, *, base=None, name="sweep.json"):
        vary = {"model.architecture": ["attention", "based"], "train.lr": [1e-3, 1e-2]} if vary is None else vary
        path = tmp_path / name
        path.write_text(json.dumps({"base": base or BASE, "vary": vary}))
        return path

    return write
