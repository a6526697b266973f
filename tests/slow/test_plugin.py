"""Another package brings a mixer and a task by entry point, without touching ours."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def with_plugin(tmp_path_factory: pytest.TempPathFactory):
    """Runs `mixerscope` where the outside package of tests/plugin is installed; its classes are the examples'."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "tests" / "plugin", folder / "source")
    package = folder / "source" / "src" / "my_lab"
    shutil.copy(ROOT / "examples" / "04_own_mixer.py", package / "decay.py")
    shutil.copy(ROOT / "examples" / "05_own_task.py", package / "first.py")
    uv = str(Path(sys.executable).with_name("uv"))
    site = folder / "site"
    install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(folder / "source")], check=True)

    def mixerscope(*words: str, script: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        found = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, *(["-m", "mixerscope"] if script is None else [str(script)]), *words],
            env={**os.environ, "PYTHONPATH": found, **more},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    return mixerscope


def test_it_is_listed_under_its_distribution(with_plugin):
    assert "my-lab/decay" in with_plugin("ls", "mixers").stdout
    assert "my-lab/decay" in with_plugin("ls", "architectures").stdout
    assert "my-lab/first" in with_plugin("ls", "tasks").stdout


def test_it_passes_the_same_conformance_suite(with_plugin):
    checked = with_plugin("check", "my-lab/decay")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_it_runs_and_is_reported_like_any_other(with_plugin, tmp_path):
    settings = ["train.steps=3", "train.documents=16", "train.eval_documents=8", "stages.patch.documents=8"]
    words = [word for setting in [*settings, "model.width=8"] for word in ("--set", setting)]
    ran = with_plugin("run", "--task", "my-lab/first", "--arch", "my-lab/decay", "--out", str(tmp_path), *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [folder] = tmp_path.glob("my-lab-decay-*")
    record = json.loads((folder / "spec.json").read_text())
    assert record["spec"]["model"]["architecture"] == "my-lab/decay"
    assert record["spec"]["task"]["name"] == "my-lab/first"
    code = record["identity"]["model"]["mixers"]["my-lab/decay"]["code"]
    assert code.keys() in ({"distribution", "version"}, {"sha256"}), "which code it was is part of the run's name"
    assert with_plugin("report", str(tmp_path)).returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="kernels need Triton")
def test_its_operator_runs_its_kernel(with_plugin):
    script = ROOT / "tests" / "plugin" / "try_sums.py"
    interpreted = with_plugin(script=script, TRITON_INTERPRET="1")
    assert interpreted.returncode == 0, interpreted.stdout + interpreted.stderr
    assert interpreted.stdout == "kernel\n"
    assert with_plugin(script=script).stdout == "plain: not on a GPU\n"


def test_without_it_the_name_is_unknown(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "mixerscope", "show", "my-lab/decay"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "my-lab/decay" in ran.stderr
