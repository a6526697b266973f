"""`--on ray` on a real cluster of three nodes: the bytes of a sweep made here, whatever is lost meanwhile."""

import http.server
import importlib
import importlib.util
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mixerscope.store import holders
from mixerscope.sweep.executors.knocking import knock
from tests.cluster.calls import (
    LONG,
    SHORT,
    call,
    checkpoints,
    command,
    ended,
    rows,
    start,
    tree,
    wait_for,
    write_broken,
    write_sweep,
)

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def global_rng_untouched() -> None:
    """Ray's cluster of nodes in this process draws from `random`; nothing of ours runs here."""


@contextmanager
def cluster(nodes: int, **settings: Any) -> Iterator[Any]:
    """Nodes of one CPU each beside a head without any, so that nodes can be lost and the head stays."""
    if importlib.util.find_spec("ray") is None:
        pytest.fail("Ray is not installed: make test-ray installs it")
    utils = importlib.import_module("ray.cluster_utils")
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": settings or None}
    found = utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        found.workers = [found.add_node(num_cpus=1) for _ in range(nodes - 1)]
        found.wait_for_nodes()
        yield found
    finally:
        found.shutdown()


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    with cluster(3) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def calm(folder: Path) -> dict[str, bytes]:
    code, said = call(command(write_sweep(folder / "long.json", LONG), folder / "calm"))
    assert code == 0, said
    return tree(folder / "calm")


@contextmanager
def mute_server() -> Iterator[int]:
    """Takes connections, and never says a word: as a head does that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found.getsockname()[1]


@contextmanager
def web_server() -> Iterator[int]:
    """Answers, but is no Ray: as the port of the dashboard does."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1]
        found.shutdown()


def on(found: Any) -> tuple[str, str]:
    return "--on", f"ray:{found.address}"


@pytest.mark.smoke
def test_the_tables_are_those_of_a_sweep_made_here(three: Any, tmp_path: Path):
    source = write_sweep(tmp_path / "short.json", SHORT)
    assert call(command(source, tmp_path / "calm"))[0] == 0
    root = tmp_path / "a folder 'mine'"
    code, said = call(command(source, root, *on(three)))
    assert code == 0, said
    assert "2 tasks for Ray: 3 nodes, 2 CPUs" in said
    assert tree(root) == tree(tmp_path / "calm")
    assert not (root / ".mixerscope").exists(), "nothing is left behind"


@pytest.mark.smoke
def test_an_address_where_nobody_answers_is_refused_within_ten_seconds(three: Any, tmp_path: Path):
    """One that speaks as a head does and is none is among them: the port of a node."""
    assert knock(three.address)
    source = write_sweep(tmp_path / "short.json", SHORT)
    with mute_server() as mute, web_server() as web:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            free = gone.getsockname()[1]
        ports = (free, mute, web, three.head_node.node_manager_port)
        for address in (*(f"127.0.0.1:{port}" for port in ports), "nowhere.invalid:6379", "what"):
            began = time.monotonic()
            code, said = call(command(source, tmp_path / "out", "--on", f"ray:{address}"))
            assert code == 2, said
            assert said.count("\n") == 1
            assert address in said
            assert not (tmp_path / "out").exists()
            assert time.monotonic() - began < 60, "it does not wait for Ray, which gives up after minutes"


def test_a_node_that_is_removed_loses_nothing_but_time(folder: Path, calm: dict[str, bytes]):
    root = folder / "node-lost"
    with cluster(3) as found:
        first = start(command(folder / "long.json", root, *on(found)), os.environ)
        wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
        found.remove_node(found.workers[0], allow_graceful=False)
        code, said = ended(first)
    assert code == 0, said
    assert tree(root) == calm


def test_a_worker_that_is_killed_loses_nothing_but_time(three: Any, folder: Path, calm: dict[str, bytes]):
    root = folder / "worker-lost"
    first = start(command(folder / "long.json", root, *on(three)), os.environ)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    pid = next(iter(holders(root).values())).pid
    worker = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    code, said = ended(first)
    assert code == 0, said
    assert tree(root) == calm


def test_without_its_head_a_call_ends_and_the_next_goes_on(three: Any, folder: Path, calm: dict[str, bytes]):
    root = folder / "head-lost"
    with cluster(3, gcs_rpc_server_reconnect_timeout_s=1) as found:  # a minute, unless told otherwise
        first = start(command(folder / "long.json", root, *on(found)), os.environ)
        wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
        found.remove_node(found.head_node, allow_graceful=False)
        code, said = ended(first)
    assert code == 1, said
    assert "is lost; what its tasks kept goes on anywhere" in said
    assert "2 cohorts are left for the next call" in said
    assert "Traceback" not in said
    wait_for(lambda: not holders(root), "tasks to end")
    assert checkpoints(root) == 2
    endings = {row["ending"] for row in rows(root) if row["kind"] == "cohort"}
    assert endings == {"interrupted"}, "they were not killed, so a checkpoint is the last thing they wrote"
    code, said = call(command(folder / "long.json", root, *on(three)))
    assert code == 0, said
    assert tree(root) == calm


def test_killed_and_called_again_it_goes_on(three: Any, folder: Path, calm: dict[str, bytes]):
    root = folder / "driver-killed"
    first = start(command(folder / "long.json", root, *on(three)), os.environ)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    first.send_signal(signal.SIGKILL)
    ended(first)
    code, said = call(command(folder / "long.json", root, *on(three)))
    assert code == 0, said
    assert tree(root) == calm


def test_an_interrupt_ends_the_tasks_and_keeps_their_checkpoints(three: Any, folder: Path):
    root = folder / "interrupted"
    first = start(command(folder / "long.json", root, *on(three)), os.environ)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    first.send_signal(signal.SIGINT)
    code, said = ended(first)
    assert code == 130, said
    assert checkpoints(root) == 2
    wait_for(lambda: not holders(root), "tasks to end")
    endings = [row["ending"] for row in rows(root) if row["kind"] == "cohort"]
    assert endings == ["interrupted", "interrupted"], "they were asked to end, and not killed"


def test_what_fails_for_its_own_reason_is_tried_once_a_call(three: Any, tmp_path: Path):
    write_broken(tmp_path / "mine.py")
    source = write_sweep(tmp_path / "short.json", SHORT, ("attention", "local/Broken"))
    code, said = call(command(source, tmp_path / "out", *on(three), "--use", f"{tmp_path}/mine.py:Broken"))
    assert code == 1, said
    assert "its own reason" in said
    tried = [row for row in rows(tmp_path / "out") if row["kind"] == "cohort" and row["ending"] == "failed"]
    assert len(tried) == 1
