"""Columns of the tables that are kept of runs."""

from typing import Any

import polars as pl

_NUMBERS = ("accuracy", "likelihood", "corrupted", "dev_accuracy", "dev_likelihood", "dev_corrupted")


def _ends(name: str) -> dict[str, Any]:
    return {name: pl.Float32, f"{name}_low": pl.Float32, f"{name}_high": pl.Float32}


RUNS: dict[str, Any] = {
    **dict.fromkeys(("run_id", "kind", "architecture"), pl.String),
    **dict.fromkeys(("width", "layers"), pl.Int32),
    **dict.fromkeys(("positions", "options", "task", "schedule", "precision"), pl.String),
    "train_steps": pl.Int32,
    "lr": pl.Float64,
    **dict.fromkeys(("seed", "data_seed"), pl.Int32),
    "outcome": pl.String,
    **dict.fromkeys(("steps", "parameters"), pl.Int64),
    **dict.fromkeys(("curve_accuracy", "curve_likelihood", "curve_loss"), pl.Float32),
    **{name: kind for number in _NUMBERS for name, kind in _ends(number).items()},
    "guessing": pl.Float32,
    **dict.fromkeys(("mechanism", "route", "moves"), pl.String),
    **_ends("share"),
    **dict.fromkeys(("found", "published_reading"), pl.String),
    "proof": pl.Boolean,
    "reason": pl.String,
    "seconds": pl.Float32,
    **dict.fromkeys(("source", "device"), pl.String),
    "stack": pl.Int32,
    **dict.fromkeys(("made_by", "documents_sha256", "patched_sha256"), pl.String),
}
CELLS: dict[str, Any] = {
    **dict.fromkeys(("run_id", "documents", "site", "role"), pl.String),
    **_ends("likelihood"),
    **_ends("share"),
}
TESTS: dict[str, Any] = {
    **dict.fromkeys(("run_id", "test"), pl.String),
    "passed": pl.Boolean,
    **_ends("value"),
    "needed": pl.Float32,
}
EMERGENCE: dict[str, Any] = {
    "run_id": pl.String,
    "step": pl.Int32,
    **dict.fromkeys(("site", "role"), pl.String),
    **dict.fromkeys(("accuracy", "gap"), pl.Float32),
    **_ends("share"),
}
FILES = {"runs": RUNS, "cells": CELLS, "tests": TESTS}
"""Tables of every figure that has runs."""
WATCHED, WATCHED_COLUMNS = "emergence", EMERGENCE
"""One more, of those whose training was watched."""
