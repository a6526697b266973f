"""Run folders: plain files that survive a kill and can be read in ten years."""

from mixerscope.store.checkpoints import CheckpointFolder
from mixerscope.store.files import (
    claim,
    make_folder,
    read_json,
    read_jsonl,
    sha256_of,
    write_bytes,
    write_json,
    write_jsonl,
)
from mixerscope.store.folder import RunFolder, Seal, SealedFolder, StageFolder, find_all_runs, find_runs

__all__ = [
    "CheckpointFolder",
    "RunFolder",
    "Seal",
    "SealedFolder",
    "StageFolder",
    "claim",
    "find_all_runs",
    "find_runs",
    "make_folder",
    "read_json",
    "read_jsonl",
    "sha256_of",
    "write_bytes",
    "write_json",
    "write_jsonl",
]
