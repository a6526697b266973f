"""Packs that are damaged, forged or in the way: each is refused in one sentence, and nothing is written."""

import io
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mixerscope.cli import main
from mixerscope.errors import CorruptFile, MixerscopeError, UserError
from mixerscope.listing import listed_runs
from mixerscope.packs import finished_ids, unpack, write_pack
from mixerscope.packs.filter import restored
from mixerscope.packs.index import MOST_BYTES, MOST_FILE_BYTES
from mixerscope.results import RunResult, load_run
from mixerscope.runs import run_cohort
from mixerscope.store import Seal, sha256_of
from tests.conftest import tiny_spec

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[RunResult]:
    specs = [tiny_spec("attention").changed(seed=seed) for seed in range(2)]
    found = run_cohort(specs, tmp_path_factory.mktemp("runs"))
    return sorted(found, key=lambda result: result.folder.path.name)


@pytest.fixture(scope="module")
def packed(results, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("packs") / "runs.pack"
    write_pack(path, results)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path, capsys) -> Callable[[bytes], str]:
    """Gives the sentence with which the command refuses a pack; it must leave everything as it was."""

    def call(data: bytes) -> str:
        path = tmp_path / "runs.pack"
        path.write_bytes(data)
        with pytest.raises((UserError, CorruptFile)):
            unpack(path, tmp_path / "home" / "runs")
        assert main(["unpack", str(path), "--out", str(tmp_path / "home" / "runs")]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert ".unpacking-" not in said.err, "a folder that nobody will find"
        assert list(tmp_path.rglob("*")) == [path], "something was written"
        return said.err

    return call


def members(packed: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(packed)) as pack:
        return {name: pack.read(name) for name in pack.namelist()}


def zipped(files: Members, mode: int = stat.S_IFREG | 0o644) -> bytes:
    """A pack of these members, well formed otherwise; `mode` is that of the last one."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as pack:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (mode if name == list(files)[-1] else 0o644) << 16
            pack.writestr(info, data, zipfile.ZIP_DEFLATED if name != "index.json" else zipfile.ZIP_STORED)
    return written.getvalue()


def with_index(files: Members, change: Callable[[dict], object]) -> Members:
    index = json.loads(files["index.json"])
    change(index)
    return {**files, "index.json": (json.dumps(index, indent=2) + "\n").encode()}


def renamed(files: Members, old: str, new: str) -> Members:
    return {name.replace(old, new): data for name, data in files.items()}


def test_what_is_not_altered_is_unpacked(packed, results, tmp_path):
    (tmp_path / "runs.pack").write_bytes(zipped(members(packed)))
    found = unpack(tmp_path / "runs.pack", tmp_path / "home")
    assert [folder.seal().id for folder in found] == [result.run_id for result in results]


OUTSIDE = [
    "../evil.json",
    "/tmp/evil.json",
    "plain/../evil.json",
    "plain/../../evil.json",
    "plain/RUN/../../../evil.json",
    "plain/RUN/../evil.json",
    "plain/RUN/a/b/evil.json",
    "plain//evil.json",
    "plain/RUN/",
    "plain/RUN/C:evil.json",
    "plain/RUN/..\\evil.json",
    "plain/RUN/.writing.json",
    "plain/evil.json",
    "elsewhere/RUN/evil.json",
    "evil.json",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_elsewhere_are_refused(packed, results, refused, name: str):
    name = name.replace("RUN", results[0].folder.path.name)
    assert "is no name for a file of a run" in refused(zipped({**members(packed), name: b"{}"}))


def test_links_are_refused(packed, results, refused):
    name = f"plain/{results[0].folder.path.name}/passwords.json"
    said = refused(zipped({**members(packed), name: b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777))
    assert "is no regular file" in said


def test_a_file_that_is_there_twice_is_refused(packed, results, refused):
    folder = results[0].folder.path.name
    for twice in (f"filtered/{folder}/status.json", f"plain/{folder}/STATUS.json"):
        assert "is there twice" in refused(zipped({**members(packed), twice: b"{}"}))


def test_what_would_not_fit_is_refused_unread(packed, refused, monkeypatch):
    def unread(*_: object) -> bytes:
        raise AssertionError("a bomb was opened")

    monkeypatch.setattr(zipfile.ZipFile, "read", unread)
    assert "MiB, too many for a pack" in refused(_claiming(packed, MOST_FILE_BYTES + 1, entries=1))
    many = 1 + MOST_BYTES // MOST_FILE_BYTES
    files = {"index.json": b'{\n  "mixerscope_pack": 1}'}
    files |= {f"plain/run-{i}/file.json": b"{}" for i in range(many)}
    assert "MiB are too many for a pack" in refused(_claiming(zipped(files), MOST_FILE_BYTES, entries=many))
    monkeypatch.setattr("mixerscope.packs.index.MOST_FILES", 3)
    assert "files are too many for a pack" in refused(packed)


def _claiming(packed: bytes, size: int, entries: int) -> bytes:
    """The pack with other sizes in its directory, from the second entry on."""
    data, at = bytearray(packed), packed.index(b"PK\1\2")
    for _ in range(entries):
        at = data.index(b"PK\1\2", at + 4)
        data[at + 24 : at + 28] = size.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("size", [0, 7, 10_000_000])
def test_a_file_that_is_not_as_long_as_it_says_is_refused(packed, refused, size: int):
    assert "damaged" in refused(_claiming(packed, size, entries=1))


def test_a_pack_without_its_list_is_refused(packed, refused):
    files = members(packed)
    index = files.pop("index.json")
    assert "is no pack" in refused(zipped(files))
    assert "is no pack" in refused(zipped({**files, "index.json": index})), "it comes first"
    assert "is no pack" in refused(zipped({"index.json": b"{}", **files}))
    assert "another version" in refused(zipped({"index.json": index.replace(b": 1", b": 2", 1), **files}))
    assert "is no pack" in refused(b"")
    assert "is no pack" in refused(b"PK\3\4 and so on")
    assert "is no pack" in refused(b"a letter")


CHANGES: dict[str, Callable[[dict], object]] = {
    "an id too many": lambda index: index["finished"].append("0" * 12),
    "an id too few": lambda index: index["finished"].pop(),
    "another order": lambda index: index["finished"].reverse(),
    "a run too few": lambda index: (index["finished"].pop(), index["runs"].pop()),
    "a run twice": lambda index: (
        index["finished"].append(index["finished"][0]),
        index["runs"].append(index["runs"][0]),
    ),
    "another id": lambda index: (index["finished"].__setitem__(0, "0" * 12), index["runs"][0].update(id="0" * 12)),
    "another folder": lambda index: index["runs"][0].update(folder=f"../x-{index['runs'][0]['id']}"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_list_that_does_not_fit_is_refused(packed, refused, tmp_path, change: Callable[[dict], object]):
    forged = zipped(with_index(members(packed), change))
    assert "the runs that it lists are not those that it holds" in refused(forged)
    with pytest.raises(UserError, match="not those that it holds"):
        finished_ids(tmp_path / "runs.pack")


def test_a_renamed_run_is_refused(packed, results, refused):
    run_id, other = results[0].run_id, "0" * 12

    def rename(index: dict) -> None:
        index["finished"] = [other if known == run_id else known for known in index["finished"]]
        for run in index["runs"]:
            if run["id"] == run_id:
                run.update(id=other, folder=run["folder"].replace(run_id, other))

    forged = renamed(with_index(members(packed), rename), run_id, other)
    assert f"its seal says that it holds {run_id}" in refused(zipped(forged))
    name = f"plain/attention-{other}/seal.json"
    resealed = {**forged, name: forged[name].replace(run_id.encode(), other.encode())}
    assert f"belongs to the run {run_id}, not to the one it lies in" in refused(zipped(resealed))
    seals = [name for name in forged if name.startswith(f"plain/attention-{other}/") and name.endswith("/seal.json")]
    resealed = {**forged, **{name: forged[name].replace(run_id.encode(), other.encode()) for name in seals}}
    assert f"is sealed as {other}, but what it holds is {run_id}" in refused(zipped(resealed))


def test_changed_missing_and_added_files_are_refused(packed, results, refused):
    files, folder = members(packed), f"plain/{results[0].folder.path.name}"
    changed = files[f"{folder}/status.json"].replace(b'"finished"', b'"diverged"')
    assert changed != files[f"{folder}/status.json"]
    assert "status.json has changed" in refused(zipped({**files, f"{folder}/status.json": changed}))
    assert "weights.safetensors is not named in a seal" in refused(
        zipped({**files, f"{folder}/weights.safetensors": b""})
    )
    for gone in ("status.json", f"judge-{results[0].stages['judge'].id}/verdicts.json"):
        left = {name: data for name, data in files.items() if name != f"{folder}/{gone}"}
        assert f"{gone} is missing" in refused(zipped(left))
    for gone in ("seal.json", f"judge-{results[0].stages['judge'].id}/seal.json"):
        left = {name: data for name, data in files.items() if name != f"{folder}/{gone}"}
        assert "holds no finished run" in refused(zipped(left))
    stage = f"{folder}/judge-{results[0].stages['judge'].id}/"
    left = {name: data for name, data in files.items() if not name.startswith(stage)}
    assert "does not hold the stages that are listed" in refused(zipped(left))


def test_a_seal_that_names_files_elsewhere_reads_none_of_them(packed, results, refused, tmp_path):
    (tmp_path / "runs.pack").touch()
    files, name = members(packed), f"plain/{results[0].folder.path.name}/seal.json"
    seal = json.loads(files[name])
    seal["files"]["../../../runs.pack"] = sha256_of(b"")
    assert "runs.pack is missing" in refused(zipped({**files, name: json.dumps(seal).encode()}))


def test_effects_that_cannot_be_put_in_order_again_are_refused(packed, results, refused):
    files = members(packed)
    [name] = [name for name in files if name.startswith(f"filtered/{results[0].folder.path.name}/")]
    good = files[name]
    at = 8 + int.from_bytes(good[:8], "little")
    assert restored(good)
    for bad in (good[:-1], good + b"\0", good[:at], b"\xff" * 8 + good[8:], good[:8] + b"[" * (at - 8) + good[at:]):
        assert "damaged" in refused(zipped({**files, name: bad}))
    header = json.loads(good[8:at])
    half = min((e["data_offsets"] for e in header.values() if e.get("dtype") == "F16"), default=[0])[0]
    for place, value, said in ((1, 9, "damaged"), (2, 1, "refers to one that is not there")):
        forged = bytearray(good)  # with longer differences, or a first row that refers to one before it
        forged[at + half + place] = value
        assert said in refused(zipped({**files, name: bytes(forged)}))


def test_a_flipped_byte_is_noticed_or_changes_nothing(packed, tmp_path):
    (tmp_path / "runs.pack").write_bytes(packed)
    want = {f.path.name: _contents(f.path) for f in unpack(tmp_path / "runs.pack", tmp_path / "want")}
    generator, noticed = np.random.default_rng(0), 0
    for attempt in range(200):
        data = bytearray(packed)
        data[int(generator.integers(len(data)))] ^= 1 << int(generator.integers(8))
        (tmp_path / "runs.pack").write_bytes(bytes(data))
        root = tmp_path / f"home{attempt}"
        try:
            found = unpack(tmp_path / "runs.pack", root)
            assert {folder.path.name: _contents(folder.path) for folder in found} == want
        except MixerscopeError:
            noticed += 1
            assert not root.exists()
    assert noticed > 100


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_in_the_way_is_named_and_left_alone(packed, results, tmp_path):
    (tmp_path / "runs.pack").write_bytes(packed)
    home = tmp_path / "home"
    place = home / results[1].folder.path.name
    obstacles: list[Callable[[], object]] = [
        lambda: place.mkdir(parents=True),
        lambda: (place / "notes.txt").write_text("mine"),
        lambda: (shutil.rmtree(place), place.write_text("mine")),
        lambda: (place.unlink(), place.symlink_to(tmp_path / "nowhere")),
    ]
    for put in obstacles:
        put()
        before = sorted(home.rglob("*"))
        with pytest.raises(UserError, match=f"{place.name} is in the way"):
            unpack(tmp_path / "runs.pack", home)
        assert sorted(home.rglob("*")) == before
    place.unlink()
    shutil.copytree(results[0].folder.path, place)
    with pytest.raises(CorruptFile, match="is misnamed"):
        unpack(tmp_path / "runs.pack", home)


def test_a_folder_that_cannot_be_written_is_the_users_to_fix(packed, tmp_path):
    (tmp_path / "runs.pack").write_bytes(packed)
    (tmp_path / "file").write_text("in the way")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="is not a folder"):
            unpack(tmp_path / "runs.pack", root)


@pytest.mark.parametrize("cleans_up", [True, False], ids=["interrupted", "killed"])
def test_stopped_half_way_no_half_run_is_found(packed, results, tmp_path, monkeypatch, cleans_up: bool):
    """A kill leaves what an interrupt takes away, but under no name that counts."""
    (tmp_path / "runs.pack").write_bytes(packed)
    home = tmp_path / "home"
    home.mkdir()
    steps = 0
    while True:
        stopper = _Stopper(steps)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", stopper.before(Path.write_bytes))
            patch.setattr(os, "rename", stopper.before(os.rename))
            if not cleans_up:
                patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            try:
                unpack(tmp_path / "runs.pack", home)
                break
            except KeyboardInterrupt:
                steps += 1
        if cleans_up:
            assert not any(path.name.startswith(".unpacking-") for path in home.iterdir())
        for folder in home.glob("attention-*"):
            load_run(folder).folder.verify()
            assert set(load_run(folder).stages) == {"patch", "judge"}
        for seal in home.rglob(f".unpacking-*/*/{Seal.file}"):
            assert len(list(seal.parent.glob(f"*/{Seal.file}"))) == 2, "the run's own seal comes last"
    assert steps > 30
    damaged: list[str] = []
    assert {run.id for run in listed_runs(home, damaged).values()} == {result.run_id for result in results}
    assert damaged == []


class _Stopper:
    def __init__(self, steps: int) -> None:
        self.left = steps

    def before(self, function: Callable) -> Callable:
        def call(*words: object) -> object:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return function(*words)

        return call


NO_LISTS = [
    b"",
    b"a letter",
    b"{}",
    b'"0123456789ab"',
    b"[1]",
    b'["short"]',
    b'[["0123456789ab"]]',
    b"\xff\xfe",
    b"[" * 99999,
]


@pytest.mark.parametrize("data", NO_LISTS, ids=range(len(NO_LISTS)))
def test_what_lists_no_runs_is_refused(tmp_path, data: bytes):
    (tmp_path / "ids").write_bytes(data)
    with pytest.raises(UserError, match="JSON list of run ids"):
        finished_ids(tmp_path / "ids")


def test_what_is_no_file_lists_no_runs(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="cannot read"):
            finished_ids(path)
        with pytest.raises(UserError, match="there is no pack"):
            unpack(path, tmp_path / "home")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("letter.txt", "dear")
    with pytest.raises(UserError, match="is no pack"):
        finished_ids(tmp_path / "other.zip")


def test_what_could_not_be_unpacked_is_not_packed(results, tmp_path, monkeypatch):
    monkeypatch.setattr("mixerscope.packs.index.MOST_FILE_BYTES", 1000)
    with pytest.raises(UserError, match="too many for a pack"):
        write_pack(tmp_path / "runs.pack", results)
    assert not (tmp_path / "runs.pack").exists()
