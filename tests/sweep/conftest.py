import json

import pytest

BASE = {
    "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4},
    "model": {"architecture": "attention", "width": 8},
    "train": {"steps": 4, "batch_size": 4, "documents": 8, "eval_every": 2, "eval_documents": 8},
    "interventions": {"documents": 8},
}


@pytest.fixture
def sweep_file(tmp_path):
    """Writes a sweep file: two architectures, two rates and two seeds of a tiny model unless told otherwise."""

    def write(vary=None, *, base=None, name="sweep.json"):
        vary = {"model.architecture": ["attention", "based"], "train.lr": [1e-3, 1e-2]} if vary is None else vary
        path = tmp_path / name
        path.write_text(json.dumps({"base": base or BASE, "vary": vary}))
        return path

    return write
