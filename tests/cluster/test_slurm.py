"""`--on slurm` on a real Slurm: the bytes of a sweep made here, whatever becomes of nodes, jobs and those who call."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
from tests.cluster.slurm_here import Slurm, missing, running_slurm

pytestmark = pytest.mark.slurm
ON = ("--on", "slurm")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if lacking := missing():
        pytest.fail(f"no Slurm can be started here: {lacking}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, running_slurm(Path(folder) / "here") as found:
        yield found


@pytest.fixture(autouse=True)
def empty_queue(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.ask("scancel", "--user=root")
    for node in ("one", "two"):
        slurm.set_up(node)
    wait_for(lambda: not slurm.jobs(), "an empty queue")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slurm")


@pytest.fixture(scope="module")
def calm(folder: Path) -> dict[str, bytes]:
    """The long sweep, made here."""
    code, said = call(command(write_sweep(folder / "long.json", LONG), folder / "calm"))
    assert code == 0, said
    return tree(folder / "calm")


@pytest.mark.smoke
def test_the_tables_are_those_of_a_sweep_made_here(slurm: Slurm, tmp_path: Path):
    source = write_sweep(tmp_path / "short.json", SHORT)
    assert call(command(source, tmp_path / "calm"))[0] == 0
    root = tmp_path / "a folder 100% 'mine'"
    code, said = call(command(source, root, *ON, "--slurm", "partition=low", "--slurm", "time=10"), slurm.environment)
    assert code == 0, said
    assert "2 jobs queued as" in said
    assert tree(root) == tree(tmp_path / "calm")
    assert not (root / ".mixerscope").exists(), "nothing is left behind"
    assert {row["call"] for row in rows(root)} != {""}
    again, said = call(command(source, root, *ON), slurm.environment)
    assert again == 0
    assert "queued" not in said, "there was nothing to do"


@pytest.mark.smoke
def test_what_slurm_refuses_is_said_in_a_sentence_and_nothing_is_written(slurm: Slurm, tmp_path: Path):
    source = write_sweep(tmp_path / "short.json", SHORT)
    for option in ("partition=nowhere", "colour=red", "time=soon"):
        code, said = call(command(source, tmp_path / "out", *ON, "--slurm", option), slurm.environment)
        assert code == 2, said
        assert said.startswith("mixerscope: Slurm refuses: ")
        assert said.count("\n") == 1
        assert not (tmp_path / "out").exists()


@pytest.mark.smoke
def test_a_cancelled_array_is_taken_up_by_the_next_call(slurm: Slurm, folder: Path, calm: dict[str, bytes]):
    root = folder / "cancelled"
    first = start(command(folder / "long.json", root, *ON), slurm.environment)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    slurm.ask("scancel", "--name=mixerscope")
    code, said = ended(first)
    assert code == 1, said
    assert "of 2 jobs: 2 cancelled; logs are in" in said
    assert "2 cohorts are left for the next call" in said
    assert checkpoints(root) == 2
    code, said = call(command(folder / "long.json", root, *ON), slurm.environment)
    assert code == 0, said
    assert tree(root) == calm


def test_a_job_that_is_cancelled_is_taken_over_by_the_others(slurm: Slurm, folder: Path, calm: dict[str, bytes]):
    root = folder / "one-cancelled"
    first = start(command(folder / "long.json", root, *ON), slurm.environment)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    array = slurm.jobs()[0][3].partition("_")[0]
    slurm.ask("scancel", f"{array}_1")
    code, said = ended(first)
    assert code == 0, said
    assert tree(root) == calm


def test_a_node_that_goes_down_loses_nothing_but_time(slurm: Slurm, folder: Path, calm: dict[str, bytes]):
    root = folder / "node-down"
    first = start(command(folder / "long.json", root, *ON), slurm.environment)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    slurm.set_down("two")
    code, said = ended(first)
    assert code == 0, said
    assert tree(root) == calm
    assert not (root / ".mixerscope").exists()


def test_preempted_for_good_it_is_taken_up_by_the_next_call(slurm: Slurm, folder: Path, calm: dict[str, bytes]):
    root = folder / "preempted"
    first = start(command(folder / "long.json", root, *ON, "--slurm", "partition=low"), slurm.environment)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    slurm.ask("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    code, said = ended(first)
    assert code == 1, said
    assert "2 preempted" in said
    code, said = call(command(folder / "long.json", root, *ON, "--slurm", "partition=low"), slurm.environment)
    assert code == 0, said
    assert tree(root) == calm


def test_what_fails_for_its_own_reason_is_tried_once_a_call(slurm: Slurm, tmp_path: Path):
    write_broken(tmp_path / "mine.py")
    source = write_sweep(tmp_path / "short.json", SHORT, ("attention", "local/Broken"))
    words = command(source, tmp_path / "out", *ON, "--use", f"{tmp_path}/mine.py:Broken")
    for number in (1, 2):
        code, said = call(words, slurm.environment)
        assert code == 1, said
        assert "its own reason" in said
        tried = [row for row in rows(tmp_path / "out") if row["kind"] == "cohort" and row["ending"] == "failed"]
        assert len(tried) == number
    assert len(list((tmp_path / "out").glob("attention-*"))) == 2, "the others were made"


def test_another_call_follows_the_jobs_of_one_that_was_interrupted(slurm: Slurm, folder: Path, calm: dict[str, bytes]):
    root = folder / "followed"
    first = start(command(folder / "long.json", root, *ON), slurm.environment)
    wait_for(lambda: checkpoints(root) == 2, "two trainings", first)
    before = {job[3] for job in slurm.jobs()}
    first.send_signal(signal.SIGINT)
    code, said = ended(first)
    assert code == 130
    assert "go on; the same call follows them" in said
    assert {job[3] for job in slurm.jobs()} == before
    both = [start(command(folder / "long.json", root, *ON), slurm.environment) for _ in range(2)]
    for code, said in map(ended, both):
        assert code == 0, said
    assert {job[3].partition("_")[0] for job in slurm.jobs("--states=all")} >= {
        name.partition("_")[0] for name in before
    }
    assert tree(root) == calm


def test_two_calls_at_once_queue_one_array(slurm: Slurm, tmp_path: Path):
    source = write_sweep(tmp_path / "short.json", SHORT)
    both = [start(command(source, tmp_path / "out", *ON), slurm.environment) for _ in range(2)]
    said = ""
    for process in both:
        code, lines = ended(process)
        assert code == 0, lines
        said += lines
    assert said.count("queued as") <= 1 or "are at it already" in said
    assert len([row for row in rows(tmp_path / "out") if row["kind"] == "cohort"]) == 2, "each cohort was made once"


def test_an_interpreter_that_is_not_there_is_named(slurm: Slurm, tmp_path: Path):
    source = write_sweep(tmp_path / "short.json", SHORT)
    words = command(source, tmp_path / "out", *ON, "--python", "/nowhere/python")
    code, said = call(words, slurm.environment)
    assert code == 1
    assert "/nowhere/python: not found" in said or "No such file" in said
    assert "2 cohorts are left for the next call" in said


def test_more_cohorts_than_an_array_may_have_are_shared_out(slurm: Slurm, tmp_path: Path):
    source = write_sweep(tmp_path / "short.json", SHORT, ("attention", "based", "mamba"))
    code, said = call(command(source, tmp_path / "out", "--on", "slurm:1"), slurm.environment)
    assert code == 0, said
    assert "1 job queued as" in said
    assert len([row for row in rows(tmp_path / "out") if row["kind"] == "cohort"]) == 3
