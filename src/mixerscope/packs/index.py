"""What a pack says of itself: its first member, and how the others are named. Writer and reader agree here."""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from mixerscope.artifacts import JsonArtifact
from mixerscope.errors import UserError

PLAIN, FILTERED = "plain", "filtered"
"""Folders inside a pack: files as they are, and those whose bytes `filter` has put in another order."""
MOST_BYTES, MOST_FILE_BYTES, MOST_FILES = 2 << 30, 64 << 20, 200_000
"""What a pack can hold, unpacked: in all, in one file, and how many."""
UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]|^\.|[. ]$')
"""What a name cannot have on some system, or what means something there."""


@dataclass(frozen=True)
class PackedRun:
    """One run of a pack."""

    id: str
    folder: str
    label: str
    """For people: the architecture, and the settings in which it differs from the other runs."""
    stages: tuple[str, ...]
    """Folders of its analyses."""


@dataclass(frozen=True)
class Index(JsonArtifact):
    """The list of runs; the first member of a pack, not compressed, so that the first bytes tell what the file is."""

    file: ClassVar[str] = "index.json"
    mixerscope_pack: Literal[1]
    finished: tuple[str, ...]
    """Ids of the runs: enough for another machine to leave them out."""
    runs: tuple[PackedRun, ...]


def is_pack(head: bytes) -> bool:
    """Whether a file that begins like this is a pack."""
    return head.startswith(b"PK\3\4") and head[30:].startswith(b'index.json{\n  "mixerscope_pack": ')


def member_name(run: str, path: str, how: str) -> str:
    """What a file of a run is called in a pack, given its path in the run's folder."""
    name = f"{how}/{run}/{path}"
    place_of(name)
    return name


def place_of(name: str) -> tuple[str, str]:
    """The run's folder that a member of this name belongs to, and its path in there: a file of the training, or of one
    of its stages. Any other name is refused."""
    how, *parts = name.split("/")
    if how not in (PLAIN, FILTERED) or len(parts) not in (2, 3) or not all(parts) or any(map(UNSAFE.search, parts)):
        raise UserError(f"{name!r} is no name for a file of a run in a pack")
    return parts[0], "/".join(parts[1:])


def check_sizes(sizes: dict[str, int]) -> None:
    """Refuses files, by name in a pack, that are too large or too many."""
    if len(sizes) > MOST_FILES:
        raise UserError(f"{len(sizes):,} files are too many for a pack (at most {MOST_FILES:,})")
    for name, size in sizes.items():
        if size > MOST_FILE_BYTES:
            raise UserError(f"{name!r} has {size >> 20:,} MiB, too many for a pack (at most {MOST_FILE_BYTES >> 20})")
    if sum(sizes.values()) > MOST_BYTES:
        raise UserError(f"{sum(sizes.values()) >> 20:,} MiB are too many for a pack (at most {MOST_BYTES >> 20:,})")
