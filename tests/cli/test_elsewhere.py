"""Where a sweep cannot be made as asked: one sentence, exit code 2, nothing written. Real clusters: tests/cluster."""

import importlib.util
import json
import os
import socket
import sys
import time

import pytest

from mixerscope.sweep.executors import controller


@pytest.fixture
def sweep_file(spec_file, tmp_path):
    base = json.loads(spec_file().read_text())
    (tmp_path / "sweep.json").write_text(json.dumps({"base": base, "vary": {"seed": [0, 1]}}))
    return "sweep.json"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program of this name before all others."""

    def write(name: str, text: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return write


@pytest.mark.parametrize("on", ["moon", "", "local:0", "local:x", "local:99", "rays", "slurm:0", "slurm:many", "Slurm"])
def test_an_executor_that_nobody_knows(refused, sweep_file, program, on: str):
    program("sbatch", "exit 0")
    assert "--on " in refused("sweep", sweep_file, "--on", on)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "-1/2", "1/0", "2/1/1", "1.0/2"])
def test_a_shard_out_of_range(refused, sweep_file, shard: str):
    assert "--shard takes i/n with i from 1 to n" in refused("sweep", sweep_file, f"--shard={shard}")


def test_slurm_that_is_not_installed(refused, sweep_file, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Slurm is not installed here (no `sbatch`)" in refused("sweep", sweep_file, "--on", "slurm")


def test_a_slurm_that_refuses_or_does_not_answer(refused, sweep_file, program, monkeypatch):
    program("sbatch", "echo 'invalid partition: moon' >&2; exit 1")
    assert "Slurm refuses: invalid partition: moon" in refused("sweep", sweep_file, "--on", "slurm")
    assert controller.ANSWERS_WITHIN == 10.0
    monkeypatch.setattr(controller, "ANSWERS_WITHIN", 0.2)
    program("sbatch", "exec sleep 30")
    assert "Slurm did not answer `sbatch` within 0 s" in refused("sweep", sweep_file, "--on", "slurm")


def test_options_of_slurm_without_slurm(refused, sweep_file):
    assert "which is for --on slurm" in refused("sweep", sweep_file, "--slurm", "partition=gpu")


def test_ray_that_is_not_installed(refused, sweep_file, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Ray is not installed here: pip install 'mixerscope[ray]'" in refused("sweep", sweep_file, "--on", "ray")


@pytest.mark.parametrize("address", ["127.0.0.1:{free}", "nowhere.invalid:6379", "what", "host:port", "1.2.3.4:999999"])
def test_an_address_where_there_is_no_ray(refused, sweep_file, monkeypatch, address: str):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)  # Ray itself is not asked
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = address.format(free=gone.getsockname()[1])
    said = refused("sweep", sweep_file, "--on", f"ray:{address}")
    assert address in said
    assert "Ray" in said


def test_a_ray_that_takes_connections_and_never_answers(refused, sweep_file, monkeypatch, tmp_path):
    """The driver is a process that imports Ray: here one whose `ray.init` sleeps, as the real one's does."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/ray.py").write_text("import time\n\n\ndef init(**settings):\n    time.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "lib"), *filter(None, sys.path)]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    from mixerscope.sweep.executors import ray

    assert ray.KNOCKED + ray.ANSWERS_WITHIN <= 10.0
    monkeypatch.setattr(ray, "ANSWERS_WITHIN", 0.5)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        began = time.monotonic()
        assert f"no Ray cluster answers at {address}" in refused("sweep", sweep_file, "--on", f"ray:{address}")
        assert time.monotonic() - began < 300, "it does not wait for Ray to give up"
