"""Where a sweep cannot be made as asked: one sentence, exit code 2, nothing written. Real clusters: tests/cluster."""

import importlib.util
import json
import os
import socket
import sys
import threading
import time
from concurrent import futures

import grpc
import pytest

from mixerscope.sweep.executors import controller, knocking, ray


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


@pytest.fixture
def sleeping_ray(monkeypatch, tmp_path):
    """The driver is a process that imports Ray: here one whose `ray.init` sleeps, as the real one's does."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/ray.py").write_text("import time\n\n\ndef init(**settings):\n    time.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "lib"), *filter(None, sys.path)]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.usefixtures("sleeping_ray")
def test_a_ray_that_takes_connections_and_never_answers(refused, sweep_file):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        began = time.monotonic()
        assert f"no Ray cluster answers at {address}" in refused("sweep", sweep_file, "--on", f"ray:{address}")
        assert time.monotonic() - began < 300, "it does not wait for Ray to give up"


@pytest.mark.usefixtures("sleeping_ray")
def test_one_that_speaks_as_ray_does_and_is_no_head_is_not_waited_for(refused, sweep_file, monkeypatch):
    assert 2 * knocking.SECONDS + ray.DOUBTED <= 10.0
    monkeypatch.setattr(ray, "DOUBTED", 0.5)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    began = time.monotonic()
    try:
        assert not knocking.knock(address)
        assert f"no Ray cluster answers at {address}" in refused("sweep", sweep_file, "--on", f"ray:{address}")
    finally:
        server.stop(None)
    assert time.monotonic() - began < ray.STARTS_WITHIN, "as long as for a head that is starting"


def test_a_head_that_says_it_is_alive_is_known():
    """The question is the one that heads are asked by their own tools; `make test-ray` asks a real one."""

    class Head(grpc.GenericRpcHandler):
        def service(self, call):
            return grpc.unary_unary_rpc_method_handler(lambda asked, about: b"") if call.method == asked_for else None

    asked_for = "/ray.rpc.NodeInfoGcsService/CheckAlive"
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Head()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        assert knocking.knock(address)
    finally:
        server.stop(None)


@pytest.mark.parametrize(("name", "value"), [("RAY_USE_TLS", "1"), ("RAY_AUTH_MODE", "token")])
def test_where_nobody_can_be_asked_a_head_is_taken_to_be_there(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"\x15"), daemon=True).start()
        assert knocking.knock(f"127.0.0.1:{server.getsockname()[1]}")
