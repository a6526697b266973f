"""Trainings that are interrupted go on where they were, and end with the bytes of an undisturbed one."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from mixerscope.artifacts.checkpoint import Checkpoint
from mixerscope.checkpoints import is_begun
from mixerscope.errors import CannotWrite, CorruptFile, UserError
from mixerscope.machine import CPU, Machine
from mixerscope.progress import Cancelled, Stop
from mixerscope.results import load_run, run_folder
from mixerscope.runs import is_finished, run_cohort
from mixerscope.store import checkpoints as checkpoint_files
from mixerscope.store import folder as folder_module
from tests.conftest import tiny_spec, with_stage
from tests.runs.folders import refuse

OFTEN = replace(CPU, checkpoint_seconds=1e-9)
RARELY = replace(CPU, checkpoint_seconds=1e9)


def cohort(architecture: str = "attention", looks: int = 0, **train: object) -> list:
    spec = tiny_spec(architecture, **train)
    if looks:
        spec = with_stage(spec, "emergence", looks=looks, documents=8)
    return [spec.changed(seed=seed, train=spec.train.changed(lr=lr)) for seed, lr in ((0, 1e-3), (1, 1e-2), (2, 3e-2))]


COHORTS = {
    "one run": cohort("mamba")[:1],
    "a cohort that is watched": cohort(looks=4),
    "members leave early": cohort(steps=12, stop_at_accuracy=0.3, warmup=0.0),
    "one diverges": [
        spec.changed(train=spec.train.changed(lr=lr)) for spec in cohort(steps=9, warmup=0.0)[:1] for lr in (1e30, 1e-3)
    ],
}


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a root, but for the times."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "timing.json")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def stopping(at: int):
    def progress(stage: str, done: int, total: int, note: str) -> Stop | None:
        return Stop("enough") if (stage, done) == ("train", at) else None

    return progress


def killing(at: int):
    """A kill leaves no time to write anything."""

    def progress(stage: str, done: int, total: int, note: str) -> None:
        if (stage, done) == ("train", at):
            raise KeyboardInterrupt

    return progress


def steps_done(steps: list[int]):
    def progress(stage: str, done: int, total: int, note: str) -> None:
        if stage == "train":
            steps.append(done)

    return progress


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    made: dict[str, dict[str, bytes]] = {}

    def make(name: str) -> dict[str, bytes]:
        if name not in made:
            root = tmp_path_factory.mktemp("undisturbed")
            run_cohort(COHORTS[name], root, machine=RARELY)
            made[name] = tree(root)
        return made[name]

    return make


@pytest.mark.parametrize("name", COHORTS)
def test_stopped_at_any_step_a_training_goes_on_and_ends_with_the_same_bytes(name, undisturbed, tmp_path):
    specs = COHORTS[name]
    for at in (1, 4, specs[0].train.steps):
        root = tmp_path / str(at)
        try:
            run_cohort(specs, root, stopping(at), RARELY)
        except Cancelled:
            assert is_begun(specs, root)
            assert not any(run_folder(spec, root).sealed for spec in specs)
        done: list[int] = []
        run_cohort(specs, root, steps_done(done), RARELY)
        assert min(done, default=at + 1) > at, "it went on, and did not begin anew"
        assert tree(root) == undisturbed(name)


@pytest.mark.parametrize("name", COHORTS)
def test_killed_again_and_again_it_loses_no_more_than_the_time_between_checkpoints(name, undisturbed, tmp_path):
    specs, done = COHORTS[name], []
    for at in range(2, specs[0].train.steps, 3):
        with pytest.raises(KeyboardInterrupt):
            run_cohort(specs, tmp_path, killing(at), OFTEN)
        run_cohort_until_first_step(specs, tmp_path, done)
        assert done.pop() == at, "the step that was killed is done again, those before it are not"
    run_cohort(specs, tmp_path, machine=OFTEN)
    assert tree(tmp_path) == undisturbed(name)


def run_cohort_until_first_step(specs, root: Path, done: list[int]) -> None:
    def progress(stage: str, step: int, total: int, note: str) -> None:
        done.append(step)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cohort(specs, root, progress, RARELY)


@pytest.mark.parametrize("killed_at", [0, 1, 2])
def test_a_kill_between_two_seals_leaves_the_rest_as_it_was_trained(killed_at, undisturbed, tmp_path, monkeypatch):
    specs = COHORTS["a cohort that is watched"]
    write = folder_module.write_bytes

    def interrupted(path: Path, data: bytes) -> None:
        if path.name == "seal.json" and path.parent == run_folder(specs[killed_at], tmp_path).path:
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cohort(specs, tmp_path)
    assert [run_folder(spec, tmp_path).sealed for spec in specs] == [i < killed_at for i in range(3)]
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    run_cohort(specs, tmp_path)
    assert tree(tmp_path) == undisturbed("a cohort that is watched")


def test_a_sweep_of_what_is_left_takes_it_from_the_cohort_it_was_trained_in(undisturbed, tmp_path, monkeypatch):
    """The planner asks for the runs that are missing, and not for those that were sealed before the kill."""
    specs = COHORTS["a cohort that is watched"]
    close = folder_module.RunFolder.close

    def interrupted(folder, *arguments) -> None:
        if folder.path == run_folder(specs[1], tmp_path).path:
            raise KeyboardInterrupt
        close(folder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module.RunFolder, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cohort(specs, tmp_path)
    run_cohort(specs[:1], tmp_path)  # its stages are missing, its training is not
    monkeypatch.setattr("mixerscope.runs.train_cohort", refuse)
    run_cohort(specs[1:], tmp_path)
    found, wanted = tree(tmp_path), undisturbed("a cohort that is watched")
    trained = ("weights.safetensors", "curve.json", "provenance.json", "emergence.json")
    assert {
        name for name in wanted if name.endswith(trained) and found[name] != wanted[name] and "/patch" not in name
    } == set()


@pytest.fixture
def begun(tmp_path):
    specs = COHORTS["a cohort that is watched"]
    with pytest.raises(Cancelled):
        run_cohort(specs, tmp_path, stopping(4), RARELY)
    return specs, checkpoint_files.CheckpointFolder(tmp_path).file([run_folder(s, tmp_path).path.name for s in specs])


def began_anew(specs, root: Path, machine: Machine = RARELY) -> bool:
    done: list[int] = []
    run_cohort(specs, root, steps_done(done), machine)
    return min(done) == 1


def test_a_checkpoint_made_with_other_settings_is_left_alone_with_one_line(begun, tmp_path, capsys):
    specs, _ = begun
    assert began_anew(specs, tmp_path, replace(RARELY, kernels="plain"))
    assert capsys.readouterr().err.endswith("is not used: it was made with another kernels\n")


def test_a_checkpoint_made_by_other_code_is_left_alone(begun, tmp_path, capsys, monkeypatch):
    specs, _ = begun
    monkeypatch.setattr("mixerscope.checkpoints.own_source", lambda: "edited")
    assert began_anew(specs, tmp_path)
    assert capsys.readouterr().err.endswith("is not used: it was made with another source\n")


def test_a_checkpoint_of_another_cohort_is_left_alone(begun, undisturbed, tmp_path, capsys):
    specs, file = begun
    assert began_anew(specs[:2], tmp_path)
    assert capsys.readouterr().err.count("it is of another cohort") == 1
    assert file.exists()
    run_cohort(specs[2:], tmp_path)
    assert not file.exists(), "all of its runs are finished"
    assert not file.parents[1].exists()


@pytest.mark.parametrize("looks", [7, 2])
def test_what_watched_with_other_settings_is_not_gone_on_with(begun, tmp_path, tmp_path_factory, capsys, looks: int):
    """Its points would be of other steps than those that were asked for, beside ones that nobody asked for."""
    specs = cohort(looks=looks)
    assert began_anew(specs, tmp_path)
    assert capsys.readouterr().err.endswith("is not used: it was not watched by this emergence\n")
    calm = tmp_path_factory.mktemp("calm")
    run_cohort(specs, calm, machine=RARELY)
    assert tree(tmp_path) == tree(calm)


def test_what_was_watched_is_gone_on_with_by_those_who_do_not_watch(begun, tmp_path, tmp_path_factory):
    specs = cohort()
    assert not began_anew(specs, tmp_path)
    calm = tmp_path_factory.mktemp("calm")
    run_cohort(specs, calm, machine=RARELY)
    assert tree(tmp_path) == tree(calm)


@pytest.mark.parametrize("damage", ["bit", "half", "empty", "text", "nonsense"])
def test_a_damaged_checkpoint_is_never_gone_on_from(begun, undisturbed, tmp_path, damage: str):
    specs, file = begun
    data = file.read_bytes()
    if damage == "nonsense":
        found = Checkpoint.from_bytes(data)
        training = {**found.header["training"], "members": "none", "waiting": [[7]]}
        file.write_bytes(Checkpoint({**found.header, "training": training}, found.tensors).to_bytes())
    else:
        flipped = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        file.write_bytes({"bit": flipped, "half": data[: len(data) // 2], "empty": b"", "text": b"hello"}[damage])
    assert began_anew(specs, tmp_path)
    assert tree(tmp_path) == undisturbed("a cohort that is watched")


def test_a_header_that_claims_to_be_endless_is_not_read():
    with pytest.raises(CorruptFile):
        Checkpoint.header_bytes((1 << 62).to_bytes(8, "little"))


def test_where_no_checkpoint_can_be_written_training_goes_on_and_says_so(undisturbed, tmp_path, monkeypatch, capsys):
    def full(path: Path, data: bytes) -> None:
        raise CannotWrite(path, OSError(errno.ENOSPC, "No space left on device"))

    specs = COHORTS["one run"]
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_files, "write_bytes", full)
        with pytest.raises(Cancelled):
            run_cohort(specs, tmp_path, stopping(4), RARELY)
    assert "no checkpoint: cannot write " in (said := capsys.readouterr().err)
    assert said.endswith(": No space left on device\n")
    run_cohort(specs, tmp_path)
    assert tree(tmp_path) == undisturbed("one run")


def test_fresh_keeps_the_old_result_until_the_new_one_is_there(tmp_path):
    [spec] = COHORTS["one run"]
    run_cohort([spec], tmp_path)
    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_cohort([spec], tmp_path, killing(4), OFTEN, fresh=True)
    assert is_finished(spec, tmp_path)
    load_run(run_folder(spec, tmp_path).path).folder.verify()
    assert {name: data for name, data in tree(tmp_path).items() if not name.startswith(".mixerscope")} == before
    [other] = COHORTS["a cohort that is watched"][:1]
    run_cohort([other], tmp_path)  # which clears away what is of no more use, and no more
    done: list[int] = []
    run_cohort([spec], tmp_path, steps_done(done), fresh=True)
    assert min(done) == 4, "and goes on from where it was"
    assert {name: data for name, data in tree(tmp_path).items() if name.startswith("mamba")} == before


def test_seconds_of_an_interrupted_training_are_added_up(tmp_path):
    specs = COHORTS["one run"]
    with pytest.raises(Cancelled):
        run_cohort(specs, tmp_path, stopping(4), RARELY)
    file = checkpoint_files.CheckpointFolder(tmp_path)
    [(_, header)] = file.headers()
    spent = header["training"]["point"]["train_seconds"]
    assert spent > 0
    run_cohort(specs, tmp_path)
    timing = (run_folder(specs[0], tmp_path).path / "timing.json").read_text()
    assert float(timing.partition('"seconds": ')[2].partition(",")[0]) > spent


def test_a_time_between_checkpoints_that_is_none_is_refused():
    with pytest.raises(UserError, match="checkpoint_seconds = 0 should be more than 0"):
        Machine(checkpoint_seconds=0)
