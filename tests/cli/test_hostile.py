"""Input that nobody could mean well, full disks, damaged neighbours: a sentence each, and nothing else is touched."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest

from mixerscope.errors import printable
from mixerscope.store import files


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("seed=18446744073709551616", "less than"),
        ("model.width=100000000000000000000", "model.width: input should be less than or equal to 65536"),
        ("model.layers=1000000", "model.layers: input should be less than or equal to 1024"),
        ("model.max_length=1000000000", "max_length should be at most 100,000,000"),
        ("train.documents=1e11", "documents should be at most 100,000,000"),
        ("train.documents=100000000", "train.documents is too large for this machine"),
        ("train.batch_size=90000000", "train.batch_size is too large for this machine"),
        ("train.steps=100000000000", "train.steps: input should be less than or equal to 10000000"),
        ("task.num_keys=1000000000", "num_keys should be at most 1,048,576"),
        ("model.width=" + "9" * 5000, "a number of so many digits"),
        ("model.options=" + "[" * 100_000, "brackets so deep"),
        ("model.options=" + "[" * 900 + "]" * 900, "options"),
        ("model.width=true", "width should be a number, not true"),
        ("train.lr=false", "lr should be a number, not false"),
        ("task.num_pairs=true", "num_pairs should be a number, not true"),
    ],
)
def test_a_number_that_nobody_means_is_refused_before_anything_of_its_size_is_made(
    refused, spec_file, monkeypatch, setting: str, part: str
):
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if "SIZE" in name else 2**20)  # 4 GiB
    said = refused("run", spec_file(), "--set", setting)
    assert part in said
    assert len(said) < 2300


@pytest.mark.parametrize("text", ['{"seed": ' + "9" * 5000 + "}", '{"a":' * 90_000 + "1" + "}" * 90_000, "[" * 900])
def test_a_file_that_nobody_means_is_refused(refused, tmp_path, text: str):
    (tmp_path / "bad.json").write_text(text)
    refused("run", "bad.json")
    refused("sweep", "bad.json")


def test_a_sweep_of_more_than_ten_thousand_runs_asks(refused, tmp_path, spec_file):
    vary = {"seed": list(range(1000)), "data_seed": list(range(1000)), "train.lr": [1e-4 * i for i in range(1, 11)]}
    (tmp_path / "large.json").write_text(json.dumps({"base": json.loads(spec_file().read_text()), "vary": vary}))
    assert "large.json describes 10,000,000 runs, more than 10,000; say --yes" in refused("sweep", "large.json")


@pytest.mark.parametrize("content", ["null", "[]", "3", "[" * 900, "9" * 5000])
def test_one_damaged_run_is_named_and_left_out(cli, finished, spec_file, content: str):
    cli("run", spec_file(), "--set", "seed=1")
    (finished / "seal.json").write_text(content)
    for words in (["report", "runs"], ["judge", "runs"]):
        code, out, err = cli(*words)
        assert code == 1
        assert "1 run" in out
        assert err.startswith("mixerscope: left out: ")
        assert finished.name in err
        assert err.count("\n") == 1
        code, out, err = cli(*words, "--strict")
        assert (code, out) == (1, "")
        assert finished.name in err


def test_of_a_damaged_file_the_run_is_left_out_too(cli, finished, spec_file):
    cli("run", spec_file(), "--set", "seed=1")
    (finished / "curve.json").write_text("{}")
    code, out, err = cli("report", "runs")
    assert (code, out.startswith("1 run: ")) == (1, True)
    assert "curve.json has changed since the run wrote it" in err


def test_a_file_of_a_size_that_no_run_has_is_not_read(cli, finished, spec_file):
    cli("run", spec_file(), "--set", "seed=1")
    os.truncate(finished / "curve.json", files.LARGEST_JSON + 1)
    code, _, err = cli("report", "runs")
    assert code == 1
    assert "curve.json has 64 MiB, where 64 are the most" in err
    os.truncate(finished / "seal.json", files.LARGEST_JSON + 1)
    code, _, err = cli("report", "runs")
    assert code == 1
    assert f"left out: runs/{finished.name}/seal.json has 64 MiB, where 64 are the most\n" in err


@pytest.mark.parametrize("name", ["seal.json", "weights.safetensors", "curve.json"])
def test_where_the_disk_is_full_nothing_is_sealed_and_the_next_call_goes_on(
    cli, spec_file, tmp_path, monkeypatch, name
):
    replace = os.replace

    def full(written, path) -> None:
        if path.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(written, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        code, out, err = cli("run", spec_file())
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("mixerscope: cannot write runs/attention-")
    assert err.splitlines()[-1].endswith(f"/{name}: No space left on device")
    assert list((tmp_path / "runs").glob("*/seal.json")) == []
    monkeypatch.setattr("mixerscope.runs.train_cohort", None)  # trained it was
    code, _, _ = cli("run", spec_file())
    assert code == 0


def test_a_full_disk_fails_one_cohort_and_no_other(cli, spec_file, tmp_path, monkeypatch):
    sweep = {"base": json.loads(spec_file().read_text()), "vary": {"model.architecture": ["attention", "based"]}}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    replace = os.replace

    def full(written, path) -> None:
        if path.parent.name.startswith("based"):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        replace(written, path)

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(files, "_append", lambda path, line: full(None, path.parent / "based/x"))
    code, out, err = cli("sweep", "sweep.json")
    assert code == 1
    assert re.search(r"failed: cannot write \S*runs/based-\S*: Disk quota exceeded", out)
    assert re.search(r"cannot write \S*runs/sweep.jsonl: Disk quota exceeded", err)
    assert len(list((tmp_path / "runs").glob("attention-*/seal.json"))) == 1
    assert list((tmp_path / "runs").glob("based-*/seal.json")) == []
    assert "makes a page of these runs" in out
    code, out, _ = cli("sweep", "sweep.json", "--set", "model.architecture=based", "--out", "none")
    assert code == 1
    assert "makes a page" not in out, "there are none"


def test_what_a_terminal_would_obey_is_spelled_out(cli, finished, tmp_path):
    assert printable("a\x1b[31mb\rc\n\tä\u202e") == "a\\x1b[31mb\\rc\n\tä\\u202e"
    folder = tmp_path / "x\x1b[31m[b]y[" / "runs"
    folder.mkdir(parents=True)
    finished.rename(folder / finished.name)
    for words in (["ls", "runs", "--out", folder], ["report", folder], ["report", folder / "no"], ["judge", folder]):
        _, out, err = cli(*words)
        assert "\x1b" not in out + err, words
    code, out, _ = cli("ls", "runs", "--out", folder)
    assert code == 0
    assert "x\\x1b[31m[b]y[" in out


def test_a_terminal_that_knows_ascii_only_gets_what_it_can_show(tmp_path):
    """The name of the task's folder is not ASCII, and is printed."""
    (tmp_path / "ä–").mkdir()
    command = [sys.executable, "-m", "mixerscope", "ls", "runs", "--out", "ä–"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"mixerscope: \\xe4\\u2013 holds no finished runs")


def test_a_reader_that_has_gone_is_no_failure_of_ours():
    """As with `mixerscope ls | head`: the exit code is that of a process that SIGPIPE ends, and nothing is said."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "mixerscope", "ls"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
