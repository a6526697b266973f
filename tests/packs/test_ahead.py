"""Parts of packs made while others train: the same bytes, whatever becomes of the processes that make them."""

import shutil

import pytest

from mixerscope.artifacts import Status
from mixerscope.errors import CorruptFile
from mixerscope.packs import ahead as ahead_module
from mixerscope.packs import write_pack, write_packs
from mixerscope.packs.ahead import PartsAhead
from mixerscope.packs.parts import Part, part_of
from mixerscope.results import load_run, load_runs
from mixerscope.runs import run
from tests.conftest import tiny_spec


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    for architecture in ("attention", "based"):
        run(tiny_spec(architecture), root, progress=False)
    return root


@pytest.fixture
def results(made, tmp_path):
    """Runs in a folder with a name that is not easily said in a line."""
    root = tmp_path / "a\nfolder ä"
    shutil.copytree(made, root)
    return load_runs(root)


@pytest.fixture
def ahead():
    ahead = PartsAhead(processes=1)
    yield ahead
    ahead.close()


@pytest.fixture
def nothing_is_made_here(monkeypatch):
    def refuse(run):
        raise AssertionError(f"{run} was packed in this process")

    monkeypatch.setattr(ahead_module, "part_of", refuse)


def test_a_part_is_the_same_after_a_line(results):
    part = part_of(results[0].folder)
    line = part.to_line()
    assert "\n" not in line
    assert Part.from_line(line) == part


def test_what_other_processes_made_is_packed_to_the_same_bytes(results, ahead, nothing_is_made_here, tmp_path):
    write_pack(tmp_path / "here.pack", results)
    ahead.begin([results[0].folder])  # the other is asked for when it is packed
    write_pack(tmp_path / "ahead.pack", results, ahead.part)
    assert (tmp_path / "ahead.pack").read_bytes() == (tmp_path / "here.pack").read_bytes()
    [one, two] = write_packs(tmp_path / "part.pack", results, 1, ahead.part)
    assert [len(load.read_bytes()) > 0 for load in (one, two)] == [True, True]


def test_what_changed_since_is_packed_as_it_is_now(results, ahead):
    folder = results[0].folder
    ahead.begin([folder])
    before = ahead.part(folder)
    shutil.rmtree(results[0].stages["judge"].folder.path)
    after = ahead.part(load_run(folder.path).folder)
    assert len(after.stages) == len(before.stages) - 1
    assert after == part_of(folder)


def test_a_run_that_cannot_be_packed_is_refused_here_and_stops_no_other(results, ahead):
    (results[0].folder.path / Status.file).write_text("{}")
    ahead.begin(result.folder for result in results)
    with pytest.raises(CorruptFile, match="has changed"):
        ahead.part(results[0].folder)
    assert ahead.part(results[1].folder) == part_of(results[1].folder)
    assert len(ahead.processes) == 1
    assert ahead.processes[0].poll() is None


def test_nobody_needs_the_processes(results, ahead, monkeypatch):
    ahead.begin([results[0].folder])
    expected = ahead.part(results[0].folder)
    ahead.processes[0].kill()
    assert ahead.part(results[1].folder) == part_of(results[1].folder)

    def none_left():
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(ahead_module, "_start", none_left)
    assert PartsAhead(processes=1).part(results[0].folder) == expected
    ahead.close()
    assert ahead.part(results[0].folder) == expected
    assert PartsAhead(processes=1).processes == []


def test_closing_waits_for_nothing(results, ahead):
    ahead.begin(result.folder for result in results)
    ahead.close()
    assert all(process.returncode is not None for process in ahead.processes)
    assert ahead.part(results[1].folder) == part_of(results[1].folder)
