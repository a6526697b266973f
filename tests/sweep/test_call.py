"""What people type: the same on the command line and for the worker."""

import json
import signal
from dataclasses import fields

import pytest

from mixerscope import cli, results
from mixerscope.errors import Interrupted
from mixerscope.sweep import worker
from mixerscope.sweep.call import Call
from mixerscope.sweep.cohorts import LARGEST
from mixerscope.sweep.executors.local import Here
from mixerscope.sweep.plan import JOB_SECONDS, Imagined, default_in_flight
from mixerscope.sweep.source import load_runs


@pytest.fixture(params=["command line", "worker"])
def call(request, capsys, tmp_path):
    """Runs a sweep below `tmp_path / "out"`; gives exit code, stdout, stderr."""

    def run(source, *words):
        capsys.readouterr()
        words = [str(word) for word in (source, *words)]
        out = str(tmp_path / "out")
        main, line = {
            "command line": (cli.main, ["sweep", *words, "--out", out]),
            "worker": (worker.main, [*words, "--out", out]),
        }[request.param]
        code = main(line)
        return code, *capsys.readouterr()

    return run


def test_what_help_says_of_defaults_is_so():
    said = {option.name: option.metadata["help"] for option in fields(Call)}
    assert f"; {LARGEST} unless" in said["largest"]
    assert f"; {JOB_SECONDS:.0f} unless" in said["job_seconds"]
    gpu, cpu = (default_in_flight(Imagined(device)) for device in ("cuda", "cpu"))
    assert f"; {gpu} on a GPU and {cpu} on a CPU" in said["in_flight"]


def architectures(tmp_path):
    return [result.training["model"]["architecture"] for result in results.load_runs(tmp_path / "out")]


def test_a_class_of_ones_own_may_be_typed(call, sweep_file, own_mixer, tmp_path):
    code, out, err = call(sweep_file({"seed": [0]}), "--set", f"model.architecture={own_mixer}")
    assert code == 0, err
    assert "local/Own d=8 x1: finished" in err
    assert out.splitlines()[1].startswith("local/Own ")
    assert architectures(tmp_path) == ["local/Own"]


def test_a_file_may_not_name_code_to_run(call, sweep_file, own_mixer, tmp_path):
    for vary in ({"model.architecture": [own_mixer]}, {"task": [own_mixer]}):
        code, out, err = call(sweep_file(vary))
        assert (code, out) == (2, "")
        assert "named" in err
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "out").exists()


def test_what_is_used_is_known_by_its_name_in_the_file(call, sweep_file, own_mixer, tmp_path):
    source = sweep_file({"model.architecture": ["attention", "local/Own"], "seed": [0]})
    code, _, err = call(source)
    assert (code, "named 'local/Own'" in err) == (2, True)
    code, _, err = call(source, "--use", own_mixer)
    assert code == 0, err
    assert sorted(architectures(tmp_path)) == ["attention", "local/Own"]


def test_what_cannot_be_used_is_refused(call, sweep_file, tmp_path):
    for reference, part in (("nowhere.py:Own", "there is no file nowhere.py"), ("json:JSONDecoder", "none of Mixer")):
        code, out, err = call(sweep_file(), "--use", reference)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert part in err
    assert not (tmp_path / "out").exists()


def test_runs_finished_elsewhere_are_not_made(call, sweep_file, tmp_path):
    source = sweep_file({"seed": [0, 1, 2]})
    ids = [run.run_id for run in load_runs(str(source))]
    for name, part in (("a.json", ids[:1]), ("b.json", ids[2:])):
        (tmp_path / name).write_text(json.dumps(part))
    code, _, err = call(source, "--skip", tmp_path / "a.json", "--skip", tmp_path / "b.json")
    assert code == 0, err
    assert "3 runs, 2 of them finished; to do: 1 cohorts" in err
    assert [result.run_id for result in results.load_runs(tmp_path / "out")] == ids[1:2]


def test_finished_runs_are_packed_and_a_pack_says_what_is_finished_elsewhere(call, sweep_file, tmp_path):
    pack = tmp_path / "runs.pack"
    code, out, err = call(sweep_file({"seed": [0, 1]}), "--pack", pack)
    assert code == 0, err
    assert f"2 finished runs are packed in {pack}, {pack.stat().st_size / 2**20:.1f} MiB" in out
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    code, _, err = call(sweep_file({"seed": [0, 1, 2]}), "--skip", pack)
    assert code == 0, err
    assert [result.training["seed"] for result in results.load_runs(tmp_path / "out")] == [2]


def test_packs_are_no_larger_than_can_be_carried(call, sweep_file, tmp_path):
    pack = tmp_path / "runs.pack"
    code, out, err = call(sweep_file({"seed": [0, 1]}), "--pack", pack, "--pack-mib", "0.001")
    assert code == 0, err
    for path in (pack, tmp_path / "runs-2.pack"):
        assert f"1 finished runs are packed in {path}, " in out
    code, _, err = call(sweep_file({"seed": [0, 1]}), "--skip", pack, "--skip", tmp_path / "runs-2.pack")
    assert "2 runs, 2 of them finished" in err
    for words in (["--pack", pack, "--pack-mib", "0"], ["--pack-mib", "16"]):
        code, out, err = call(sweep_file(), *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "is a positive number of MiB, for what --pack FILE writes" in err


def test_a_pack_that_could_not_be_written_is_refused_before_training(call, sweep_file, tmp_path):
    for pack in (tmp_path, tmp_path / "nowhere" / "runs.pack"):
        code, out, err = call(sweep_file(), "--pack", pack)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"cannot write the pack to {pack}" in err
    (tmp_path / "mine.txt").write_text("not a pack")
    code, _, err = call(sweep_file(), "--pack", tmp_path / "mine.txt")
    assert (code, "mine.txt exists and was not written by mixerscope" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_what_is_finished_is_packed_when_a_call_is_cut_short(call, sweep_file, tmp_path, monkeypatch):
    """Whoever ends the call may take the machine away, and what is on it."""
    code, _, err = call(sweep_file({"seed": [0]}))
    assert code == 0, err

    def interrupted(*_):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(Here, "execute", interrupted)
    code, out, err = call(sweep_file({"seed": [0, 1]}), "--pack", tmp_path / "runs.pack")
    assert code == 128 + signal.SIGTERM
    assert "1 finished runs are packed in" in out
    assert "interrupted by SIGTERM" in err


def test_nothing_finished_is_nothing_to_pack(call, sweep_file, tmp_path):
    source = sweep_file({"seed": [0]})
    ids = [run.run_id for run in load_runs(str(source))]
    (tmp_path / "all.json").write_text(json.dumps(ids))
    code, out, err = call(source, "--skip", tmp_path / "all.json", "--pack", tmp_path / "runs.pack")
    assert code == 0, err
    assert "no run is finished below" in out
    assert not (tmp_path / "runs.pack").exists()


def test_a_dry_run_counts_what_is_finished_elsewhere_and_packs_nothing(call, sweep_file, tmp_path):
    source = sweep_file({"seed": [0, 1]})
    (tmp_path / "one.json").write_text(json.dumps([load_runs(str(source))[0].run_id]))
    code, out, err = call(source, "--dry-run", "--skip", tmp_path / "one.json", "--pack", tmp_path / "runs.pack")
    assert code == 0, err
    assert "2 runs, 1 of them finished; to do: 1 cohorts" in out
    assert not (tmp_path / "runs.pack").exists()


def test_what_seeds_say_together_is_printed_and_how_many_names_may_be_false(call, sweep_file):
    _, out, _ = call(sweep_file({"seed": [0, 1, 2]}))
    assert "attention: not above guessing in 3 of 3 seeds" in out.splitlines()
    assert "none of 3 verdicts names a route" in out.splitlines()
