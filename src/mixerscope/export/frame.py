"""The columns of the one frame over all runs: which there are, of which type, and what they mean.

A frame has the columns of `RUN`, then settings in which the runs differ, by their paths, then those of `TABLES`, then
those of stages from elsewhere. Ours are always there, so a query that works on one folder works on the next. A change
that breaks a query raises `VERSION`.
"""

import json
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

Kind = Literal["text", "integer", "number", "boolean"]
VERSION = 1
KEY = "mixerscope.collect"
"""In the metadata of a Parquet file of ours: the version of its columns."""

RUN: dict[str, tuple[Kind, str]] = {
    "run_id": ("text", "the training"),
    "folder": ("text", "where it lies, seen from the folder that was collected"),
    "model": ("text", "a name for people: the architecture and what tells this run from the others"),
    "architecture": ("text", "`model.architecture`"),
    "task": ("text", "`task.name`"),
    "outcome": ("text", "of training: `finished`, `reached` its accuracy, or `diverged`"),
    "steps": ("integer", "it was trained for"),
    "parameters": ("integer", "of the model"),
    "state_size": ("integer", "numbers that the model carries from one position to the next"),
    "model.width": ("integer", "a setting"),
    "model.layers": ("integer", "a setting"),
    "train.lr": ("number", "a setting"),
    "data_seed": ("integer", "a setting"),
    "seed": ("integer", "a setting"),
    "settings": ("text", "all settings of the training, as JSON"),
    "stage": ("text", "the analysis that the row comes from; `train` for the training itself"),
    "stage_id": ("text", "tells analyses of one stage with other settings apart"),
    "stage_settings": ("text", "of the analysis, those that are not the default, as JSON"),
    "table": ("text", "what kind of row this is"),
}
"""Of every row."""


def _columns(text: str = "", integer: str = "", number: str = "", boolean: str = "", ends: str = "") -> dict[str, Kind]:
    """Columns by their types. Those of `ends` are numbers with `_low` and `_high` beside them."""
    three = [f"{name}{end}" for name in ends.split() for end in ("", "_low", "_high")]
    return {
        **dict.fromkeys(text.split(), "text"),
        **dict.fromkeys(integer.split(), "integer"),
        **dict.fromkeys([*number.split(), *three], "number"),
        **dict.fromkeys(boolean.split(), "boolean"),
    }


TABLES: dict[str, tuple[str, dict[str, Kind]]] = {
    "run": ("one row for each run, whatever became of it", _columns("reason")),
    "stage": ("what became of each analysis", _columns("state reason notes")),
    "curve": ("a row per evaluation while training", _columns(integer="step", number="loss accuracy likelihood")),
    "effects": (
        "a row per cell of a patching grid",
        _columns(
            text="site component slot role read direction edit status reason",
            integer="layer head n",
            ends="likelihood accuracy logit logit_difference kl share best",
        ),
    ),
    "evaluation": (
        "scores on fresh documents and on changed ones",
        _columns(text="documents metric", integer="n", number="value low high"),
    ),
    "self_test": (
        "a row per site: what was checked before the grid",
        _columns(
            text="site",
            integer="n",
            number="resume_error tolerance",
            boolean="fires identity_exact noise_moves_later noise_moves_earlier dead",
        ),
    ),
    "proof": ("a row per test of a route", _columns(text="test documents", integer="n", number="share")),
    "verdicts": (
        "a row per slot that was corrupted",
        _columns(
            text="slot mechanism route moves weakest_test published reason",
            number="guessing",
            ends="share gap accuracy",
        ),
    ),
    "tests": (
        "a row per test that could have refuted a verdict",
        _columns(text="slot test about", integer="n", number="value low high needed", boolean="passed"),
    ),
    "emergence": (
        "shares at the block boundaries during training; `low` and `high` are those of `share`",
        _columns(text="slot site role reason", integer="step", number="share low high gap accuracy"),
    ),
    "lengths": (
        "accuracy by length and position, of tracked states",
        _columns(text="metric", integer="length times position n", number="guessing guessing_all value low high"),
    ),
    "probes": (
        "a row per label and site; `probes.position` is what the usual label at each position gets",
        _columns(
            text="site label positions",
            integer="classes judged",
            number="chance probes.position window ceiling readability shuffled control untrained logistic penalty",
            ends="accuracy",
        ),
    ),
    "erasures": (
        "a row per site, method and length; columns that begin with `random` are lists, as JSON",
        _columns(
            text="site method random_rank random_variance random_longer",
            integer="rank length",
            number="variance before residual unseen accuracy",
            boolean="speaks",
            ends="damage",
        ),
    ),
    "erased_once": (
        "a row per site and method at one position; columns that begin with `random` are lists, as JSON",
        _columns(
            text="site method random_now random_later",
            integer="rank",
            number="chance before residual unseen erased_once.now erased_once.later damage_now damage_later",
            boolean="speaks",
        ),
    ),
    "refitted": (
        "a row per site, method and longer length whose erasure was found there; `cosines` is a list, as JSON",
        _columns(
            text="site method cosines",
            integer="length rank",
            number="chance before residual unseen kept_residual accuracy damage",
            boolean="speaks",
        ),
    ),
    "ablations": (
        "a row per component that was replaced; `turned` is a list, as JSON",
        _columns(text="site edit turned", number="accuracy damage"),
    ),
    "interchanges": (
        "a row per place, way of writing another state there, and how much later",
        _columns(text="place how", integer="distance n", number="follows kept"),
    ),
    "interchanged": (
        "a row per place and way of writing",
        _columns(text="place how", integer="now_n later_n", number="kept", ends="now later"),
    ),
    "held_earlier": (
        "documents that got, after input `late`, what some document holds after input `early`",
        _columns(integer="early late n", number="right"),
    ),
    "alignments": (
        "a row per place and subspace along which parts of what is held were exchanged",
        _columns(text="place how", integer="rank", number="kept alike", ends="now later moved earlier"),
    ),
    "spans": (
        "a row per place: the axes within which subspaces were looked for",
        _columns(text="place", integer="axes", number="variance"),
    ),
    "patterns": (
        "a row per head and pair of roles, and per state and role",
        _columns(text="role attends_to what", integer="block head n", number="value low high"),
    ),
    "recoveries": ("a row per site and position", _columns(text="site", integer="position", ends="same later")),
    "without_taps": ("a row per block", _columns(integer="block", number="accuracy damage")),
    "state_verdict": ("how the state is tracked", _columns(text="mechanism reason")),
    "state_tests": ("a row per question of that verdict", _columns(text="test", number="value low high")),
}
"""What each table is, and its columns. One name has one type and one meaning in all of them."""
RENAMED = {
    ("probes", "position"): "probes.position",
    ("erased_once", "now"): "erased_once.now",
    ("erased_once", "later"): "erased_once.later",
}
"""Columns that mean something else than the same name does in other tables."""


def declared() -> dict[str, Kind]:
    """The columns of all tables of ours."""
    return {name: kind for _, columns in TABLES.values() for name, kind in columns.items()}


def kind_of(values: Iterable[Any]) -> Kind | None:
    """The one type that holds all of these; None where all of them are missing."""
    found: set[Kind] = {_kind(value) for value in values if value is not None}
    if len(found) <= 1:
        return next(iter(found), None)
    return "number" if found == {"integer", "number"} else "text"


def _kind(value: Any) -> Kind:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    if isinstance(value, Integral):
        return "integer" if -(2**63) <= int(value) < 2**63 else "number"
    return "number" if isinstance(value, Real) else "text"


def fitted(value: Any, kind: Kind) -> Any:
    """A value as its column holds it: what is nested, or no text in a column of text, as JSON; no number is missing."""
    if value is None:
        return None
    if kind == "text":
        return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if kind == "number":
        number = float(value)
        return number if number == number else None
    return bool(value) if kind == "boolean" else int(value)


def names_of(table: str, columns: Mapping[str, Kind], taken: Mapping[str, Kind]) -> dict[str, str]:
    """What the columns of a table from elsewhere are called: as there, or behind the table's name where that name has
    another type here."""
    named: dict[str, str] = {}
    for column, kind in columns.items():
        fits = column not in RUN and taken.get(column, kind) in (kind, "number" if kind == "integer" else kind)
        named[column] = column if fits else f"{table}.{column}"
    return named
