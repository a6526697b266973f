"""The tables behind the page: `summary.json`, and the CSV files that can be downloaded from it."""

import base64
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from mixerscope.artifacts import Estimate, Verdict
from mixerscope.artifacts.effects import EffectTable
from mixerscope.report.data import ModelResult, TaskGroup
from mixerscope.spec import canonical_json

DIGITS = 5


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
        "dev_accuracy": model.dev_accuracy,
        "likelihood": model.likelihood.value if model.likelihood else None,
        "likelihood_interval": _interval(model.likelihood),
        "mechanism": verdict.mechanism if verdict else model.mechanism,
        "route": list(verdict.route) if verdict else [],
        "moves": [asdict(move) for move in verdict.moves] if verdict else [],
        "share_restored": verdict.share.value if verdict and verdict.share else None,
        "interval": _interval(verdict.share if verdict else None),
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


def csv_files(groups: Sequence[TaskGroup]) -> dict[str, str]:
    """File name to gzipped CSV in base64, which the page unpacks when it is asked for."""
    models = [model for group in groups for model in group.models]
    frames = {
        "summary.csv": _frame([_flat(row) for row in summary_rows(groups)]),
        "cells.csv": _of_each((model, _cells(model.effects)) for model in models if model.effects),
        "curves.csv": _of_each((model, _frame(model.curve.rows())) for model in models),
        "emergence.csv": _of_each((model, _frame(model.emergence.rows())) for model in models if model.emergence),
    }
    return {name: packed(frame.write_csv()) for name, frame in frames.items() if not frame.is_empty()}


def packed(text: str) -> str:
    """Gzipped, in base64: what a page can hold, and unpack by itself."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


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
        elif name == "differs":
            flat |= {path: _cell(setting) for path, setting in value.items()}
        elif name == "route":
            flat["route"] = " → ".join(value)
        elif name == "moves":
            moves = [f"block {m['block']} {m['component']}: {m['source']} → {m['target']}" for m in value]
            flat["moves"] = "; ".join(moves)
        else:
            flat[name] = value
    return flat


def _cell(value: Any) -> Any:
    return canonical_json(value) if isinstance(value, list | dict) else value


def _of_each(frames: Iterable[tuple[ModelResult, pl.DataFrame]]) -> pl.DataFrame:
    """The models' tables below each other, each row with its model."""
    named = [
        frame.select(pl.lit(model.run_id).alias("run_id"), pl.lit(model.label).alias("model"), pl.all())
        for model, frame in frames
    ]
    return pl.concat(named, how="diagonal_relaxed") if named else pl.DataFrame()


def _cells(effects: EffectTable) -> pl.DataFrame:
    """All numbers with the digits that mean something; the run's folder has the others."""
    rounded = pl.col("value", "low", "high").cast(pl.Float64).round_sig_figs(DIGITS)
    return _frame(effects.rows()).with_columns(rounded)


def _frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in columns}, strict=False)
