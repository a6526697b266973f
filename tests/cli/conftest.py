import json
import shutil

import pytest

from mixerscope.cli import main

TINY = {
    "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4},
    "model": {"architecture": "attention", "width": 8},
    "train": {"steps": 2, "batch_size": 4, "documents": 8, "eval_every": 1, "eval_documents": 8},
    "stages": {"patch": {"documents": 8}, "judge": {}},
}


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch, tmp_path):
    """No colours, no width of whoever runs the tests, and a folder of its own to stand in."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsys):
    """Runs a command line; gives exit code, stdout, stderr."""

    def call(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def refused(cli, tmp_path):
    """Runs a command line that must be refused: code 2, one line on stderr, no file made. Gives the line."""

    def files():
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def call(*words):
        before = files()
        code, out, err = cli(*words)
        assert (code, out) == (2, ""), (code, out, err)
        assert err.count("\n") == 1, err
        assert err.startswith("mixerscope: "), err
        assert "Traceback" not in err
        assert files() == before, "something was written"
        return err

    return call


@pytest.fixture
def spec_file(tmp_path):
    """Writes a spec file: the tiny one, with some keys changed."""

    def write(name="spec.json", **changes):
        data = json.loads(json.dumps(TINY))
        for path, value in changes.items():
            section, _, key = path.partition("__")
            if key:
                data[section][key] = value
            else:
                data[section] = value
        path = tmp_path / name
        path.write_text(json.dumps(data))
        return path

    return write


@pytest.fixture(scope="session")
def _tiny_run(tmp_path_factory):
    from mixerscope.runs import run
    from mixerscope.spec import RunSpec

    root = tmp_path_factory.mktemp("tiny")
    return run(RunSpec.model_validate(TINY), root, progress=False).folder.path


@pytest.fixture
def finished(_tiny_run, tmp_path):
    """The folder of a finished run of the tiny spec below `runs`, free to be damaged."""
    target = tmp_path / "runs" / _tiny_run.name
    shutil.copytree(_tiny_run, target)
    return target
