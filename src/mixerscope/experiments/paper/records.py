"""What is kept of figures as it lies on disk: their tables, and `about.json`, which says how these were made.

Both are looked at before they are used: what is damaged, or was made in another way, is refused in a sentence.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from mixerscope.errors import CannotWrite, UserError
from mixerscope.experiments.paper.schemas import FILES, WATCHED, WATCHED_COLUMNS
from mixerscope.experiments.paper.sweeps import Choice, figure_names
from mixerscope.signals import refuse_signals
from mixerscope.spec import read_data_file
from mixerscope.store import locked, make_folder, replacing, write_bytes

ABOUT = "about.json"
COMPRESSION = {"compression": "zstd", "compression_level": 19}
MAKING, MADE = ".making", ".made"
"""Folders of tables that are being written, and of such as are whole and have yet to take the place of others."""
ASKED: dict[str, type] = {"preset": str, "toy": bool, "settings": dict}
"""What everything that is kept says of how it was asked for."""
TOLD: dict[str, type] = {"runs": int, "with_proof": int, "diverged": int, "seeds": list, "seconds": float}
TOLD |= {"devices": list}
"""What the figures say beside."""
NOTED: dict[str, type] = {"files": dict, "packs": dict, "sources": dict, "commands": list, "trained_by": list}
NOTED |= {"judged_by_revisions": list}
"""What may be lacking, where it was taken in before that was noted."""
HASHED = 1 << 20
T = TypeVar("T")


def read_about(folder: Path, needed: Mapping[str, type] = ASKED | TOLD) -> dict[str, Any]:
    """How the tables in a folder were made; nothing where that is not said."""
    _settle(folder)
    path = folder / ABOUT
    if not path.is_file():
        return {}
    said = read_data_file(path, "record")
    if not isinstance(said, dict):
        raise UserError(f"{path} should be a JSON object; {_again(folder)}")
    wrong = [name for name, kind in needed.items() if not _is(said.get(name), kind)]
    wrong += [name for name, kind in NOTED.items() if name in said and not _is(said[name], kind)]
    if wrong:
        raise UserError(f"{path} does not say {', '.join(wrong)} as it should; {_again(folder)}")
    return said


def _is(value: Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)


def _again(folder: Path) -> str:
    return f"get {folder} again, or move it away and take its runs in anew"


def kept_folders(root: Path) -> list[Path]:
    """Those of figures that hold runs, or say that they do, in the order of figures."""
    folders = [root / name for name in figure_names()]
    for folder in folders:
        _settle(folder)
    return [folder for folder in folders if (folder / ABOUT).is_file() or _file(folder, "runs").is_file()]


def read_together(folder: Path, read: Callable[[], T], needed: Mapping[str, type]) -> T:
    """What `read` makes of the tables in a folder, all of them as one process put them there: where another one has put
    others into their place meanwhile, they are read again, since some with others' would be nobody's result."""
    while True:
        before = read_about(folder, needed)  # refuses what it does not say as it should; has the hashes of tables
        try:
            found = read()
        except UserError:  # half of a table, perhaps, or one beside what is said of another
            if read_about(folder, needed) == before:
                raise
            continue
        if read_about(folder, needed) == before:
            return found


def read_tables(folder: Path) -> dict[str, pl.DataFrame]:
    """The tables of a figure. What was watched during training is empty where nothing was."""
    return read_together(folder, lambda: _tables(folder), ASKED | TOLD)


def _tables(folder: Path) -> dict[str, pl.DataFrame]:
    found = {name: read_table(_file(folder, name), columns) for name, columns in FILES.items()}
    watched, nothing = _file(folder, WATCHED), pl.DataFrame(schema=WATCHED_COLUMNS)
    return {**found, WATCHED: read_table(watched, WATCHED_COLUMNS) if is_kept(watched) else nothing}


def _file(folder: Path, table: str) -> Path:
    return folder / f"{table}.parquet"


def is_kept(path: Path) -> bool:
    """Whether a table is there, or should be, as what is said of its folder names it."""
    return path.name in read_about(path.parent, {}).get("files", {}) or path.is_file()


def read_table(path: Path, columns: Mapping[str, Any]) -> pl.DataFrame:
    """These columns of a table."""
    return _of_types(path, _read_parquet(path), columns).select(list(columns))


def read_older_table(path: Path, columns: Mapping[str, Any]) -> pl.DataFrame:
    """A table that may be from before some of these columns were there."""
    table = _read_parquet(path)
    return _of_types(path, table, {name: kind for name, kind in columns.items() if name in table.schema})


def _of_types(path: Path, table: pl.DataFrame, columns: Mapping[str, Any]) -> pl.DataFrame:
    wrong = [name for name, kind in columns.items() if table.schema.get(name) != kind]
    if wrong:
        raise UserError(f"{path} lacks {', '.join(wrong)}, or has another type there; {_again(path.parent)}")
    return table


def _read_parquet(path: Path) -> pl.DataFrame:
    """A table as it lies there. Its hash is looked at first, where that is noted: some damage ends the process that
    reads it."""
    noted = read_about(path.parent, {}).get("files", {})
    if not path.is_file():
        raise UserError(f"there is no {path}, which belongs to what lies beside it; {_again(path.parent)}")
    if path.name in noted and sha256(path) != noted[path.name]:
        raise UserError(f"{path} is not the file whose hash {ABOUT} has; {_again(path.parent)}")
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{path} cannot be read as Parquet; {_again(path.parent)}") from error


def asked_below(root: Path, preset: str | None = None) -> Choice:
    """How the figures that are kept below a folder were asked for, read by their own preset or by another."""
    found = {name: about for name in figure_names() if (about := read_about(root / name))}
    if not found:
        raise UserError(f"there are no results below {root}; `mixerscope reproduce` puts them there")
    (first, *_), choices = found, {name: _choice(about) for name, about in found.items()}
    for name, choice in choices.items():
        if not _alike(choices[first], choice):
            words = f"{_in_words(choices[first])} in {first} and {_in_words(choice)} in {name}"
            raise UserError(f"{root} keeps {words}; keep them in two folders")
        if preset is None and choice.preset != choices[first].preset:
            words = f"{first} of preset {choices[first].preset} and {name} of preset {choice.preset}"
            raise UserError(f"{root} keeps {words}; say with --preset which to read, or keep them in two folders")
    return Choice(preset or choices[first].preset, choices[first].toy, settings=choices[first].settings)


def _choice(about: Mapping[str, Any]) -> Choice:
    return Choice(about["preset"], about["toy"], settings=about["settings"])


def _alike(one: Choice, other: Choice) -> bool:
    return (one.toy, dict(one.settings)) == (other.toy, dict(other.settings))


def refuse_others(root: Path, choice: Choice, names: Iterable[str] = ()) -> None:
    """Refuses to put beside what is kept what was asked for in another way, or figures would find the runs of another
    and read them by a rule that nobody asked for. `names` are the folders that are looked at: those of figures, unless
    they are given."""
    for name in names or figure_names():
        about = read_about(root / name, ASKED)
        if not about:
            continue
        kept = _choice(about)
        if not _alike(kept, choice):
            raise UserError(
                f"{root} keeps {_in_words(kept)}, not {_in_words(choice)}; give another folder with --results"
            )
        if kept.preset != choice.preset:
            raise UserError(
                f"{root} keeps what was asked for with preset {kept.preset}, not {choice.preset}; give another folder"
                " with --results"
            )


def _in_words(choice: Choice) -> str:
    what = "a toy" if choice.toy else "runs"
    over = ", ".join(f"{path}={json.dumps(value)}" for path, value in choice.settings.items())
    return f"{what} with {over}" if over else what if choice.toy else "runs as usual"


def sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(HASHED):
            found.update(part)
    return found.hexdigest()


def packs_in(folder: Path) -> dict[str, str]:
    """The packs that lie in a folder to be judged again, and their hashes."""
    return {path.name: sha256(path) for path in sorted(folder.glob("*.pack"))}


def refuse_other_packs(folder: Path) -> None:
    """Refuses packs that are no longer what was noted."""
    noted, found = read_about(folder, {}).get("packs", {}), packs_in(folder)
    for name, known in noted.items():
        if found.get(name, known) != known:
            raise UserError(
                f"{folder / name} is not the pack whose hash {ABOUT} has; get it again, or give it a new name"
            )


def note_packs(folder: Path) -> None:
    """Notes the hashes of packs that were put beside the tables since; refuses one that is no longer what was noted."""
    refuse_other_packs(folder)
    about, found = read_about(folder, ASKED), packs_in(folder)
    if about and about.get("packs", {}) != found:
        with changing(folder.parent):
            write_about(folder, {**read_about(folder, ASKED), "packs": found})


@contextmanager
def changing(root: Path) -> Iterator[None]:
    """While open no other process changes what is kept below a folder: whoever adds to tables has read them first, and
    two at once would lose what one of them adds, or leave tables of both."""
    with locked(root, ["what is kept"], True, refuse_signals):
        yield


def write_tables(folder: Path, tables: Mapping[str, pl.DataFrame], said: Mapping[str, Any]) -> None:
    """Puts tables into a folder, and what is said of them, with the hashes of all that lie there then. Whoever is
    killed meanwhile leaves those of before, or such as whoever reads them next puts into their place."""
    make_folder(folder)
    refuse_other_packs(folder)
    making = folder / MAKING
    shutil.rmtree(making, ignore_errors=True)
    make_folder(making)
    for name, frame in tables.items():
        with replacing(making / f"{name}.parquet") as file:
            frame.write_parquet(file, **COMPRESSION)
    there = {path.name: path for place in (folder, making) for path in place.glob("*.parquet")}
    files = {name: sha256(there[name]) for name in sorted(there)}
    write_about(making, {**said, "files": files, "packs": packs_in(folder)})
    making.rename(folder / MADE)
    _settle(folder)


def _settle(folder: Path) -> None:
    """Puts tables that are whole into the place of others, all of them: some with others' would be nobody's result. Of
    several who read at once, each puts there what the others have not yet."""
    made = folder / MADE
    if not made.is_dir():
        return
    try:
        with suppress(FileNotFoundError):
            for path in [*made.iterdir()]:
                with suppress(FileNotFoundError):
                    _put(path, folder / path.name)
            made.rmdir()
    except OSError as error:
        raise CannotWrite(folder, error) from error


def _put(path: Path, where: Path) -> None:
    path.replace(where)


def write_about(folder: Path, said: Mapping[str, Any]) -> None:
    write_bytes(folder / ABOUT, (json.dumps(said, indent=1) + "\n").encode())
