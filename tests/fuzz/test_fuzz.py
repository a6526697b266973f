"""Mutated specs, settings, sweeps and run folders: no traceback, nothing over 5 seconds or 2 GB."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.cases import make_finished, run_case

FEW, MANY = 120, 10_000
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_finished(tmp_path_factory.mktemp("finished"))


def test_some_mutated_inputs_are_refused_in_a_sentence_or_do_no_harm(finished, tmp_path):
    wrong: dict[int, str] = {}
    for number in range(FEW):
        here = tmp_path / str(number)
        here.mkdir()
        if complaint := run_case(number, here, finished):
            wrong[number] = complaint
    assert wrong == {}


def test_a_case_that_goes_wrong_is_seen(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fuzz.cases.main", lambda words: 1 / 0)
    assert "ZeroDivisionError" in run_case(0, tmp_path, finished)
    monkeypatch.setattr("tests.fuzz.cases.main", lambda words: (tmp_path / "left").write_text("x") and 2)
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    assert "was refused in other than one line" in run_case(0, tmp_path, finished)


@pytest.mark.slow
def test_ten_thousand_mutated_inputs():
    """In a process of its own, which is given no more memory than a case may have."""
    words = [sys.executable, "-m", "tests.fuzz.cases", "0", str(MANY)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert f"{MANY} cases, 0 went wrong" in done.stdout
