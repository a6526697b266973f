"""Documents as files, for people with a trainer of their own."""

import json
from pathlib import Path
from typing import Any

import torch

from mixerscope.errors import UserError
from mixerscope.tasks.base import Batch, Split, Task

FORMATS = (".jsonl", ".parquet")


def export(task: Task, path: str | Path, n: int, rng: torch.Generator, split: Split = "train") -> Path:
    """Writes n documents to a .jsonl or .parquet file: a row each, columns tokens, targets, roles, labels."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise UserError(f"cannot export to {path.name!r}; the file must end in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"cannot export to {str(path)!r}: there is no folder {str(path.parent)!r}")
    columns = _columns(task.sample(n, rng, split))
    # Written beside and moved, so that a file with this name is always whole.
    partial = path.with_name(path.name + ".partial")
    if path.suffix == ".jsonl":
        with partial.open("w") as file:
            for row in zip(*columns.values(), strict=True):
                file.write(json.dumps(dict(zip(columns, row, strict=True))) + "\n")
    else:
        import polars  # only here: the tasks themselves do without

        polars.DataFrame(columns).write_parquet(partial)
    partial.replace(path)
    return path


def _columns(batch: Batch) -> dict[str, list[Any]]:
    return {
        "tokens": batch.tokens.tolist(),
        "targets": batch.targets.tolist(),
        **{f"role_{name}": at.tolist() for name, at in batch.roles.items()},
        **{f"label_{name}": label.tolist() for name, label in batch.labels.items()},
    }
