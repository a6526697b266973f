"""The page as it is served: on this machine alone, from the folder alone, and newer when the folder is."""

import errno
import json
import shutil
import socket
import threading
from http.client import HTTPConnection

import pytest

import mixerscope.report.serve
from mixerscope.errors import UserError
from mixerscope.report.serve import Live, PageServer
from mixerscope.store.folder import Seal
from mixerscope.store.locks import locked

from .conftest import find_run


@pytest.fixture
def served(folder, monkeypatch):
    """A server of a folder with one run, and how to ask it."""
    monkeypatch.setattr(mixerscope.report.serve, "PAUSE", 0)
    monkeypatch.setattr(mixerscope.report.serve, "TIMES", 0)
    server = PageServer(folder("based"), 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def ask(path, method="GET", host=None):
        connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    yield server, ask
    server.shutdown()
    server.server_close()
    thread.join()


def listing(root):
    return {path: path.stat().st_mtime_ns for path in root.rglob("*")}


def test_a_run_that_is_finished_meanwhile_is_on_the_next_page(served, folder):
    server, ask = served
    before = listing(server.live.root)
    status, page = ask("/")
    assert status == 200
    assert "<dd>1 model. " in page
    first = json.loads(ask("/state")[1])
    assert first["said"] == "1 run finished"
    assert f'data-live="{first["page"]}"' in page
    assert listing(server.live.root) == before, "nothing is written"
    folder("attention")
    second = json.loads(ask("/state")[1])
    assert second["page"] != first["page"]
    assert "<dd>2 models. " in ask("/")[1]


@pytest.mark.parametrize("path", ["/etc/passwd", "/../../etc/passwd", "/report.html", "/%2e%2e/", "/state/x", "x"])
def test_nothing_but_the_page_and_its_state_can_be_asked_for(served, path):
    assert served[1](path)[0] in (400, 404)


def test_nobody_can_write_and_no_other_page_can_read(served):
    _, ask = served
    assert ask("/", "POST")[0] == ask("/", "PUT")[0] == ask("/", "DELETE")[0] == 501
    assert ask("/", host="evil.example:80")[0] == 403
    assert ask("/state", host="evil.example")[0] == 403
    assert ask("/", "HEAD") == (200, "")


def test_it_listens_on_this_machine_alone(served):
    assert served[0].server_address[0] == "127.0.0.1"


def test_a_damaged_run_is_left_out_and_the_last_page_stays_if_none_is_whole(served, folder):
    server, ask = served
    folder("attention")
    path = next(find_run(server.live.root, "attention").path.glob("curve.json"))
    path.write_text("{}")
    assert "<dd>1 model. " in ask("/")[1]
    assert json.loads(ask("/state")[1])["said"] == "2 runs finished, 1 damaged and left out"
    shutil.rmtree(find_run(server.live.root, "attention").path)
    (find_run(server.live.root, "based").path / Seal.file).write_text("{}")
    assert "<dd>1 model. " in ask("/")[1]


def test_pages_are_not_made_more_often_than_they_can_be(folder):
    now = [0.0]
    live = Live(folder("based"), clock=lambda: now[0])
    folder("attention")
    first = live.page()
    assert json.loads(live.state())["page"] in first.decode(), "no newer page is announced before it may be made"
    now[0] = 10.0
    assert live.page() != first


def test_a_port_in_use_is_refused(folder):
    root = folder("based")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match=r"is in use; take another with --port"):
            PageServer(root, taken.getsockname()[1])
    with pytest.raises(UserError, match="should lie between"):
        PageServer(root, 70_000)


def test_a_port_that_is_not_ours_to_have_is_refused(folder, monkeypatch):
    def refuse(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(PageServer, "server_bind", refuse)
    with pytest.raises(UserError, match=r"port 80 cannot be had \(Permission denied\)"):
        PageServer(folder("based"), 80)


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no finished runs"):
        PageServer(tmp_path, 0)
    with pytest.raises(UserError, match="is not a folder"):
        PageServer(tmp_path / "nowhere", 0)


def test_a_sweep_that_has_finished_nothing_yet_is_waited_for(folder, tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    with locked(root, ["based-0123456789ab"], wait=False, interrupt=lambda: None):
        live = Live(root, clock=lambda: 0.0)
        assert "1 run is in the making" in live.page().decode()
        assert json.loads(live.state())["said"] == "0 runs finished, 1 in the making"
        folder("based")
        assert "<dd>1 model. " in live.page().decode()


def test_in_the_browser_the_page_grows_and_keeps_its_filters(served, folder, opened):
    server, _ = served
    folder("attention")
    tab = opened(server.address)
    tab.get_by_role("group", name="architecture").get_by_label("based").uncheck()
    assert tab.locator(".cards > .card").count() == 1
    folder("two slots")
    tab.get_by_text("2 of 3 models").wait_for()
    tab.get_by_text("Live: 3 runs finished.").wait_for()
