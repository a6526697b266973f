"""The table beside the page, and the same as CSV inside it. Other CSV files are made by the page from what it draws."""

import base64
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from mixerscope.artifacts import Estimate, Verdict
from mixerscope.report.data import ModelResult, TaskGroup
from mixerscope.spec import canonical_json
from mixerscope.spec.labels import plain


def summary_rows(groups: Sequence[TaskGroup]) -> list[dict[str, Any]]:
    """A row per model and patched slot; a model without verdicts has one row, with the reason."""
    return [_row(model, verdict) for g in groups for model in g.models for verdict in model.verdicts or (None,)]


def _row(model: ModelResult, verdict: Verdict | None) -> dict[str, Any]:
    training = model.training
    return {
        "model": model.label,
        "architecture": model.architecture,
        "differs": dict(model.differs),
        "task": training["task"],
        "slot": verdict.slot if verdict else None,
        "outcome": model.status.outcome,
        "steps": model.status.steps,
        "accuracy": model.accuracy.value if model.accuracy else None,
        "accuracy_interval": _interval(model.accuracy),
        "last_answer": model.last_answer.value if model.last_answer else None,
        "last_answer_interval": _interval(model.last_answer),
        "dev_accuracy": model.dev_accuracy,
        "likelihood": model.likelihood.value if model.likelihood else None,
        "likelihood_interval": _interval(model.likelihood),
        "mechanism": verdict.mechanism if verdict else model.mechanism,
        "route": list(verdict.route) if verdict else [],
        "moves": [asdict(move) for move in verdict.moves] if verdict else [],
        "takes_the_route": verdict.share.value if verdict and verdict.share else None,
        "takes_the_route_interval": _interval(verdict.share if verdict else None),
        "reason": verdict.reason if verdict else model.reason,
        "documents": model.accuracy.n if model.accuracy else None,
        "parameters": model.status.parameters,
        "state_size": model.status.state_size,
        "width": model.width,
        "layers": training["model"]["layers"],
        "seed": training["seed"],
        "data_seed": training["data_seed"],
        "run_id": model.run_id,
    }


def _interval(estimate: Estimate | None) -> list[float] | None:
    return [estimate.low, estimate.high] if estimate else None


def summary_csv(groups: Sequence[TaskGroup]) -> str:
    """The rows of `summary.json` as a flat table."""
    return _frame([_flat(row) for row in summary_rows(groups)]).write_csv()


def packed(text: str) -> str:
    """Gzipped, in base64: what a page can hold, and unpack by itself."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """One column a fact: intervals become two columns, the task one per field, a route one text."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name.endswith("_interval"):
            stem = name.removesuffix("_interval")
            flat[f"{stem}_low"], flat[f"{stem}_high"] = value or (None, None)
        elif name == "task":
            flat["task"] = value["name"]
            settings = {field: setting for field, setting in value.items() if field != "name"}
            flat["task_settings"] = canonical_json(settings)
        elif name == "differs":
            flat |= {path: plain(setting) for path, setting in value.items()}
        elif name == "route":
            flat["route"] = " → ".join(value)
        elif name == "moves":
            moves = [f"block {m['block']} {m['component']}: {m['source']} → {m['target']}" for m in value]
            flat["moves"] = "; ".join(moves)
        else:
            flat[name] = value
    return flat


def _frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in columns}, strict=False)
