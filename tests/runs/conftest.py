"""A finished run, made once for all tests that look at it; none changes it."""

import pytest

from mixerscope.runs import run
from tests.conftest import tiny_spec


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory):
    return run(tiny_spec("mamba"), tmp_path_factory.mktemp("runs"), progress=False)
