"""Kernels without a GPU. Triton's interpreter has to be chosen before Triton is imported, hence other processes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = {
    "interpreted_decay_attention", "interpreted_recurrent_cells", "interpreted_residual", "interpreted_selective_scan"
}  # fmt: skip
"""Many positions or heads one after the other, which the interpreter goes through slowly."""


def _marked(path):
    return pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("file", [_marked(path) for path in sorted(HERE.glob("interpreted_*.py"))])
def test_kernels_under_the_interpreter(file, tmp_path):
    settings = {"TRITON_INTERPRET": "1", "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(
        command, cwd=HERE.parents[1], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
