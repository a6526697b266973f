"""The product as a newcomer meets it: the real demo, a run killed at any moment, the built wheel."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MIXERSCOPE = [sys.executable, "-m", "mixerscope"]


def test_demo_twice(tmp_path: Path):
    """Three models learn, each gets its name, the page is there; the second call trains nothing."""
    command = [*MIXERSCOPE, "demo", "--out", str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    models = json.loads((tmp_path / "summary.json").read_text())["models"]
    assert [model["architecture"] for model in models] == ["attention", "based", "deltanet"]
    assert [model["mechanism"] for model in models] == ["induction", "induction", "direct retrieval"]
    for model in models:
        assert model["accuracy"] >= 0.95
        assert model["route"][0] == "key"
        assert model["route"][-1] == "query"
        low, high = model["takes_the_route_interval"]
        assert low <= model["takes_the_route"] <= high
        assert model["seed"] == 0
    page = (tmp_path / "report.html").read_bytes()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/weights.safetensors")}
    assert len(times) == 3

    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 0
    assert "training" not in second.stderr
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (tmp_path / "report.html").read_bytes() == page


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != "timing.json"
    }


def test_killed_at_any_moment_and_run_again_gives_the_same_bytes(tmp_path: Path):
    """kill -9 at ten moments spread over a run; each time the rerun ends with the bytes of an undisturbed run."""
    settings = ["train.steps=150", "train.documents=2000", "train.eval_every=25", "stages.patch.documents=32"]
    settings += ["task.num_pairs=3", "task.num_keys=6", "task.num_values=6", "model.width=16"]
    command = [*MIXERSCOPE, "run", "--task", "ar", "--arch", "based"]
    for setting in settings:
        command += ["--set", setting]
    took: list[float] = []
    for calm in ("calm", "calm-again"):  # the quicker of two: work beside the first would put kills off
        started = time.monotonic()
        subprocess.run([*command, "--out", str(tmp_path / calm)], check=True, capture_output=True)
        took.append(time.monotonic() - started)
    seconds, expected = min(took), contents(tmp_path / "calm")
    of_each = "six files of the training, seven of patching, five each of the proof and the patterns, four of judging"
    assert len(expected) == 27, of_each
    killed = 0
    for moment in range(10):
        out = tmp_path / f"killed-{moment}"
        process = subprocess.Popen(
            [*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(seconds * (moment + 1) / 11)
        killed += process.poll() is None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
        assert contents(out) == expected
    assert killed >= 5, "most kills came after the end: the run is too short for this test to mean anything"


def test_the_wheel_works_in_a_clean_environment(tmp_path: Path):
    """Built, installed beside nothing of ours, it lists, samples, runs and reports."""
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    # The same torch as here, from wherever pip is told to look, so that no CUDA build is fetched.
    environment = {**os.environ, "UV_FIND_LINKS": ",".join(os.environ.get("PIP_FIND_LINKS", "").split())}
    install = [uv, "pip", "install", "--quiet", "--python", str(python), str(wheel), "torch==2.13.*"]
    subprocess.run(install, check=True, env=environment)

    def mixerscope(*words: str) -> str:
        command = [str(tmp_path / "clean" / "bin" / "mixerscope"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    assert "mamba" in mixerscope("ls", "mixers")
    document = json.loads(mixerscope("sample", "ar", "--n", "1", "--json"))
    assert {"tokens", "roles", "answer"} <= set(document)
    settings = ["train.steps=2", "train.documents=8", "train.eval_documents=4", "stages.patch.documents=4"]
    words = [word for setting in [*settings, "model.width=8"] for word in ("--set", setting)]
    mixerscope("run", "--task", "ar", "--arch", "attention", "--out", "runs", *words)
    mixerscope("report", "runs")
    assert (tmp_path / "runs" / "report.html").stat().st_size > 60_000
