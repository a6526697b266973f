"""Run folders: plain files that survive a kill and can be read in ten years."""

from mixerscope.store.checkpoints import CheckpointFolder
from mixerscope.store.files import (
    append_jsonl,
    claim,
    make_folder,
    read_json,
    read_jsonl,
    replacing,
    sha256_of,
    write_bytes,
    write_json,
)
from mixerscope.store.folder import RunFolder, Seal, SealedFolder, StageFolder, find_runs, own_name
from mixerscope.store.locks import Locks, holders, locked

__all__ = [
    "CheckpointFolder",
    "Locks",
    "RunFolder",
    "Seal",
    "SealedFolder",
    "StageFolder",
    "append_jsonl",
    "claim",
    "find_runs",
    "holders",
    "locked",
    "make_folder",
    "own_name",
    "read_json",
    "read_jsonl",
    "replacing",
    "sha256_of",
    "write_bytes",
    "write_json",
]
