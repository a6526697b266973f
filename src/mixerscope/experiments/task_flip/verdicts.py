"""Verdicts by the rules of this version, from the tables that are kept.

So one study is judged by one set of rules, whatever it was when runs were taken in, and also where no pack of them was
kept.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from mixerscope.analysis.state_rules import MET_BEFORE
from mixerscope.analysis.tracking import judge_tracking
from mixerscope.artifacts import Earlier, Erased, Erasures, Estimate, Interchanged, Interchanges, Lengths
from mixerscope.artifacts.alignments import Aligned, Alignments
from mixerscope.artifacts.lengths import AtLength
from mixerscope.artifacts.state_verdict import StateVerdict

Row = Mapping[str, Any]
Tables = dict[str, pl.DataFrame]
JUDGED = ("verdict", "verdict_reason", "tests")
"""Columns of models."""
EARLIER = "earlier"
"""In the table of interchanges, the place of documents that got what is held early; `later` is what stays right."""


def judged(tables: Tables) -> Tables:
    """The tables, every model with its verdict; with none where no states were exchanged."""
    by_run = {name: tables[name].partition_by("run_id", as_dict=True) for name in _NEEDED}

    def rows(name: str, run_id: str) -> list[dict[str, Any]]:
        found = by_run[name].get((run_id,))
        return [] if found is None else found.to_dicts()

    said: list[dict[str, str | None]] = []
    for model in tables["models"].iter_rows(named=True):
        verdict = _verdict(model, {name: rows(name, model["run_id"]) for name in _NEEDED})
        said.append(
            {
                "verdict": verdict.name if verdict else None,
                "verdict_reason": verdict.reason if verdict else None,
                "tests": json.dumps({test.name: test.value for test in verdict.tests}) if verdict else None,
            }
        )
    found = pl.DataFrame(said, schema=[(name, pl.String) for name in JUDGED])
    return {**tables, "models": tables["models"].with_columns(found)}


_NEEDED = ("lengths", "probes", "erasures", "interchanges", "alignments")


def _verdict(model: Row, of: Mapping[str, Sequence[Row]]) -> StateVerdict | None:
    short = next((row for row in of["lengths"] if row["times"] == 1), None)
    if short is None or not of["interchanges"]:
        return None
    shares = (_known(short, "accuracy"), _known(short, "last"), _exactly(short["whole"]))
    lengths = Lengths((AtLength(short["length"], 1, *shares, short["guessing"], (), short["guessing_all"]),))
    found = _interchanges(model, of["interchanges"], short["guessing"])
    return judge_tracking(lengths, found, erasures=_erasures(of, short["length"]), aligned=_alignments(of))


def _interchanges(model: Row, rows: Sequence[Row], guessing: float) -> Interchanges:
    cells = tuple(
        Interchanged(
            *(row["place"], row["how"], _estimate(row, "now"), _estimate(row, "later"), row["kept"]),
            by_distance=tuple(row["by_distance"] or ()),
            told=tuple(row["told"] or ()),
        )
        for row in rows
        if row["place"] != EARLIER
    )
    right = next((_estimate(row, "later") for row in rows if row["place"] == EARLIER), None)
    if right is None:
        # Runs that were taken in before have the value alone, beyond guessing.
        value = json.loads(model["tests"] or "{}").get(MET_BEFORE)
        right = None if value is None else _exactly(value * (1 - guessing) + guessing)
    # Kept before that was asked are runs of mixers alone that say all that they hold.
    unwritten = tuple(model["unwritten"] or ())
    return Interchanges(0, 0, 0, 1.0, cells, None if right is None else Earlier(0, 0, right), unwritten)


def _erasures(of: Mapping[str, Sequence[Row]], length: int) -> Erasures | None:
    rows = [row for row in of["erasures"] if row["length"] == length]
    if not rows:
        return None
    first = rows[0]
    # Before chance was kept here: that of probes of the same label.
    chance = first["chance"]
    if chance is None:
        chance = next(row["chance"] for row in of["probes"] if (row["label"], row["positions"]) == ("answer", "every"))
    erased = tuple(
        Erased(
            *(row["site"], row["method"], row["rank"], row["variance"], row["before"], row["residual"]),
            *((row["accuracy"],), (row["damage"],)),
            unseen=row["unseen"],
        )
        for row in rows
    )
    return Erasures("answer", (length,), (first["clean"],), (first["guessing"],), chance, erased, ())


def _alignments(of: Mapping[str, Sequence[Row]]) -> Alignments | None:
    cells = tuple(
        Aligned(
            *(row["place"], row["how"], row["rank"], _estimate(row, "now"), _estimate(row, "later")),
            *(row["kept"], row["alike"], _estimate(row, "moved"), _estimate(row, "earlier")),
            by_distance=tuple(row["by_distance"] or ()),
            told=tuple(row["told"] or ()),
        )
        for row in of["alignments"]
    )
    return Alignments(0, "answer", 0, 0, 1.0, (), cells) if cells else None


def _estimate(row: Row, name: str) -> Estimate | None:
    return None if row[name] is None else _known(row, name)


def _known(row: Row, name: str) -> Estimate:
    return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"], 0)


def _exactly(value: float) -> Estimate:
    """Of which no interval is kept. Those of verdicts are over hundreds of documents: less wide than what lies between
    following and failing."""
    return Estimate(value, value, value, 0)
