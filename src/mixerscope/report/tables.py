"""The tables behind the page: `summary.json`, and the CSV files that can be downloaded from it."""

import base64
import gzip
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from mixerscope.analysis import Estimate
from mixerscope.report.data import ModelResult, SlotVerdict, TaskGroup
from mixerscope.spec import canonical_json


def summary_rows(groups: Sequence[TaskGroup]) -> list[dict[str, Any]]:
    """A row per model and corrupted slot; a diverged model has one row without measurements."""
    return [
        _summary_row(group, model, verdict)
        for group in groups
        for model in group.models
        for verdict in model.verdicts or (None,)
    ]


def _summary_row(group: TaskGroup, model: ModelResult, verdict: SlotVerdict | None) -> dict[str, Any]:
    return {
        "model": model.label,
        "architecture": model.architecture,
        "task": model.spec_json["task"],
        "slot": verdict.slot if verdict else None,
        "outcome": model.outcome,
        "steps": model.trained_steps,
        "accuracy": model.accuracy.value if model.accuracy else None,
        "accuracy_interval": _interval(model.accuracy),
        "likelihood": model.likelihood.value if model.likelihood else None,
        "likelihood_interval": _interval(model.likelihood),
        "mechanism": verdict.mechanism if verdict else model.mechanism,
        "route": list(verdict.route) if verdict else [],
        "moves": [asdict(move) for move in verdict.moves] if verdict else [],
        "share_restored": verdict.share.value if verdict and verdict.share else None,
        "interval": _interval(verdict.share if verdict else None),
        "reason": verdict.reason if verdict else "training gave a number that is not finite",
        "documents": verdict.gap.n if verdict else None,
        "parameters": model.parameters,
        "state_size": model.state_size,
        "width": model.run.spec.model.width,
        "layers": model.run.spec.model.layers,
        "seed": model.run.spec.seed,
        "data_seed": model.run.spec.data_seed,
        "run_id": model.run_id,
    }


def _interval(estimate: Estimate | None) -> list[float] | None:
    return [estimate.low, estimate.high] if estimate else None


def csv_files(groups: Sequence[TaskGroup]) -> dict[str, str]:
    """File name to gzipped CSV in base64, which the page unpacks when it is asked for."""
    models = [model for group in groups for model in group.models]

    def keyed(model: ModelResult, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"run_id": model.run_id, "model": model.label, **row} for row in rows]

    tables = {
        "summary.csv": [_flat(row) for row in summary_rows(groups)],
        "cells.csv": [row for model in models for row in keyed(model, model.cells)],
        "curves.csv": [row for model in models for row in keyed(model, model.curve)],
        "emergence.csv": [row for model in models for row in keyed(model, model.emergence)],
    }
    return {name: _packed(rows) for name, rows in tables.items() if rows}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """One column a fact: intervals become two columns, the task one per field, a route one text."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name.endswith("interval"):
            stem = "share_restored" if name == "interval" else name.removesuffix("_interval")
            flat[f"{stem}_low"], flat[f"{stem}_high"] = value or (None, None)
        elif name == "task":
            flat["task"] = value["name"]
            settings = {field: setting for field, setting in value.items() if field != "name"}
            flat["task_settings"] = canonical_json(settings)
        elif name == "route":
            flat["route"] = " → ".join(value)
        elif name == "moves":
            moves = [f"block {m['block']} {m['component']}: {m['source']} → {m['target']}" for m in value]
            flat["moves"] = "; ".join(moves)
        else:
            flat[name] = value
    return flat


def _packed(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    frame = pl.DataFrame({name: [row.get(name) for row in rows] for name in columns}, strict=False)
    return base64.b64encode(gzip.compress(frame.write_csv().encode(), mtime=0)).decode()
