"""Runs in trackers' files, read back by the trackers' own readers, or by SQL. Nothing is reached over a network."""

import json
import os
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mixerscope.cli import main
from mixerscope.errors import UnknownName
from mixerscope.export.trackers import TRACKERS, track, tracked
from mixerscope.results import RunResult, load_runs

OFFLINE = """
import socket, sys
connect = socket.socket.connect
def local(self, address):
    if self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"):
        return connect(self, address)
    raise AssertionError(f"reaches for {address}")
socket.socket.connect = local
from mixerscope.cli import main
sys.exit(main(sys.argv[1:]))
"""


def site_of(package: str, tmp_path: Path) -> str:
    """Where a package can be imported from; one that is not installed is fetched for this test alone."""
    if find_spec(package) is not None:
        return ""
    place = tmp_path / "site"
    words = [Path(sys.executable).with_name("uv"), "pip", "install", "-q", "--target", place, package]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip(f"{package} cannot be had here: {ran.stderr.strip()[-200:]}")
    return str(place)


def send(made: Path, to: str, tmp_path: Path, site: str = "") -> Path:
    out = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), site]))}
    words = [sys.executable, "-c", OFFLINE, "track", str(made), "--to", to, "--out", str(out), "--project", "p"]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"3 runs: {TRACKERS[to].format(out=out, project='p')}\n"
    return out


def recall_run(root: Path) -> RunResult:
    return next(run for run in load_runs(root) if "emergence" in run.stages)


def test_what_is_sent_is_what_was_stored(made: Path):
    run = recall_run(made)
    sent = tracked(run, "a label")
    steps = dict(sent.series)
    for point in run.curve.points:
        assert steps[point.step]["dev/accuracy"] == point.accuracy
        assert steps[point.step].get("train/loss") == point.loss
    shares = [look for look in run.emergence.points if look.share is not None]
    for look in shares:
        assert steps[look.step][f"emergence/{look.slot}/{look.site}/{look.role}"] == look.share
    assert sent.final["final/original.accuracy"] == run.scores.accuracy.value
    assert sent.final["final/guessing"] == run.verdicts["key"].guessing
    assert sent.texts == {"verdict/key": run.verdicts["key"].sentence()}
    assert sent.config["model.width"] == 16
    assert list(steps) == sorted(steps)
    diverged = next(run for run in load_runs(made) if run.status.outcome == "diverged")
    assert tracked(diverged, "").texts == {"verdict": f"none: {diverged.reason}"}
    assert tracked(diverged, "").final == {}


def test_tensorboard_reads_what_was_sent(made: Path, tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = send(made, "tensorboard", tmp_path)
    run = recall_run(made)
    events = EventAccumulator(str(out / run.folder.path.name))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("dev/accuracy")}
    assert found == pytest.approx({point.step: point.accuracy for point in run.curve.points})
    [final] = events.Scalars("final/original.likelihood")
    assert final.value == pytest.approx(run.scores.likelihood.value)
    [text] = events.Tensors("verdict/key")
    assert text.tensor_proto.string_val[0].decode() == run.verdicts["key"].sentence()
    assert len(list(out.iterdir())) == 3


@pytest.mark.slow
def test_trackio_keeps_what_was_sent(made: Path, tmp_path: Path):
    out = send(made, "trackio", tmp_path, site_of("trackio", tmp_path))
    run = recall_run(made)
    with sqlite3.connect(out / "p.db") as database:
        query = "select step, metrics from metrics where run_name = ? order by step, id"
        rows = [(step, json.loads(text)) for step, text in database.execute(query, [run.folder.path.name])]
        configs = [json.loads(text) for (text,) in database.execute("select config from configs")]
    found = [(step, values["dev/accuracy"]) for step, values in rows if "dev/accuracy" in values]
    assert found == [(point.step, point.accuracy) for point in run.curve.points]
    assert rows[-1][1]["final/original.accuracy"] == run.scores.accuracy.value
    assert run.verdicts["key"].sentence() in [config.get("verdict/key") for config in configs]


@pytest.mark.slow
def test_wandb_keeps_what_was_sent_offline(made: Path, tmp_path: Path):
    site = site_of("wandb", tmp_path)
    out = send(made, "wandb", tmp_path, site)
    run = recall_run(made)
    [file] = (out / "wandb").glob(f"offline-run-*-{run.run_id}/run-{run.run_id}.wandb")
    read = """
import json, struct, sys
from wandb.proto.wandb_internal_pb2 import Record

def records(data, block=32768):
    # A log as LevelDB has them: blocks of parts, each with checksum, length and which part of a record it is.
    assert data[:4] == b":W&B"
    at, held = 7, b""
    while at < len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, part = struct.unpack("<IHB", data[at : at + 7])
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):
            yield Record.FromString(held)
            held = b""

found = []
for record in records(open(sys.argv[1], "rb").read()):
    kind = record.WhichOneof("record_type")
    if kind in ("history", "summary"):
        items = record.history.item if kind == "history" else record.summary.update
        found.append([kind, {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}])
print(json.dumps(found))
"""
    environment = {**os.environ, "PYTHONPATH": site or os.environ.get("PYTHONPATH", "")}
    words = [sys.executable, "-c", read, str(file)]
    records = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout)
    history = [values for kind, values in records if kind == "history"]
    found = [(values["_step"], values["dev/accuracy"]) for values in history if "dev/accuracy" in values]
    assert found == [(point.step, point.accuracy) for point in run.curve.points]
    summary = {key: value for kind, values in records if kind == "summary" for key, value in values.items()}
    assert summary["final/original.accuracy"] == run.scores.accuracy.value
    assert summary["verdict/key"] == run.verdicts["key"].sentence()


def test_bad_input_is_one_sentence(made: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    assert main(["track", str(made), "--to", "tensorboard", "--out", "taken"]) == 2
    assert "exists already" in capsys.readouterr().err
    monkeypatch.setattr("mixerscope.export.trackers.find_spec", lambda name: None)
    assert main(["track", str(made), "--to", "wandb"]) == 2
    said = capsys.readouterr().err
    assert said == "mixerscope: wandb is not installed here; `pip install 'mixerscope[wandb]'` installs it\n"
    assert main(["track", str(tmp_path / "taken"), "--to", "trackio"]) == 2
    assert main(["track", str(made), "--to", "mlflow"]) == 2
    with pytest.raises(UnknownName, match="no tracker named 'mlflow'"):
        track([], "mlflow", tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "taken"]


def test_nothing_of_a_tracker_is_imported_by_anything_else():
    code = "import sys, mixerscope.export, mixerscope.export.trackers, mixerscope.cli.track\n"
    code += f"assert not {{*sys.modules}} & {{*{sorted(TRACKERS)}}}"
    subprocess.run([sys.executable, "-c", code], check=True)
