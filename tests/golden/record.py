"""Writes the record: `python -m tests.golden.record`. Refuses a change that no raised revision announces."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.golden.compare import Recorded, silent_changes
from tests.golden.pins import Pinned
from tests.golden.pipeline import makers

FOLDER = Path(__file__).parent


def load(folder: Path, file: str) -> dict[str, Recorded]:
    """Component to what is recorded of it; nothing where there is no file yet."""
    path = folder / f"{file}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def update(folder: Path, file: str, found: Mapping[str, Pinned]) -> list[str]:
    """Records what was found and returns no complaint, or returns complaints and writes nothing."""
    before = load(folder, file)
    refused = [line for name, pinned in found.items() for line in silent_changes(before.get(name), pinned)]
    if not refused:
        record = {name: merged(before.get(name), pinned) for name, pinned in found.items()}
        (folder / f"{file}.json").write_text(as_text(record))
    return refused


def merged(before: Recorded | None, found: Pinned) -> Recorded:
    """The new entry. Cases that hold keep their digits, so that another CPU does not rewrite the file."""
    kept = before["cases"] if before is not None and before["revision"] == found.revision else {}
    return {"revision": found.revision, "cases": {**found.cases, **kept}}


def as_text(record: Mapping[str, Recorded]) -> str:
    """JSON with one line a case: few lines to read, and a diff that names what changed."""
    entries = []
    for name, entry in record.items():
        cases = ",\n".join(f"   {text(case)}: {text(value)}" for case, value in entry["cases"].items())
        entries.append(
            f' {text(name)}: {{\n  "revision": {text(entry["revision"])},\n  "cases": {{\n{cases}\n  }}\n }}'
        )
    return "{\n" + ",\n".join(entries) + "\n}\n"


def text(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def main() -> int:
    torch.set_num_threads(1)
    status = 0
    for file, components in makers().items():
        refused = update(FOLDER, file, {name: make() for name, make in components.items()})
        print(f"{file}.json: {'refused' if refused else 'recorded'}")
        for line in refused:
            print(f"  {line}")
        status = 2 if refused else status
    return status


if __name__ == "__main__":
    sys.exit(main())
