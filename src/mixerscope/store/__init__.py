"""Run folders: plain files that survive a kill and can be read in ten years."""

from mixerscope.store.files import (
    make_folder,
    read_json,
    read_jsonl,
    read_tensors,
    write_bytes,
    write_json,
    write_jsonl,
    write_tensors,
)
from mixerscope.store.folder import RunFolder, find_runs

__all__ = [
    "RunFolder",
    "find_runs",
    "make_folder",
    "read_json",
    "read_jsonl",
    "read_tensors",
    "write_bytes",
    "write_json",
    "write_jsonl",
    "write_tensors",
]
