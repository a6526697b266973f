"""Verdicts on the ground truth: right, undetermined or wrong, and where other methods place the information.

Writes `report.json` beside the models and the numbers into the README. Ends with
`right R, undetermined U, wrong W of N`.

Every model is written down as it is done, with the revisions it was judged by: `--missing` judges those again that were
judged by others than today's, and leaves the numbers of the other methods, which know no verdict, as they are.
"""

import argparse
import json
from collections import Counter, defaultdict
from math import comb
from typing import Any

import torch

from benchmarks.ground_truth.challenge import UNDETERMINED, last_line
from benchmarks.ground_truth.collection import HERE, MIXTURE, Known, known
from benchmarks.ground_truth.localise import METHODS, auroc, declared, faithfulness, pairs_of, scores
from benchmarks.judged import JUDGED_BY, of_today
from benchmarks.paste import pasted
from mixerscope import Model, interchange, verdict
from mixerscope.analysis.rules import NO_NAME
from mixerscope.interventions import verdict_plan
from mixerscope.tasks import Task

REPORT, README = HERE / "report.json", HERE / "README.md"
CONFIDENCE = 0.95
NAMES = {
    ("induction", (0, 1)): "induction",
    ("direct retrieval", (0,)): "direct, first block",
    ("direct retrieval", (1,)): "direct, last block",
    ("association one step later", (0, 1)): "one step later",
    ("other: divider", (0, 1)): "divider",
}
"""By what the verdict on the key says, and the blocks that move it."""
NAMELESS = (MIXTURE, "pointer")
"""Of these a verdict is right if it names no route."""


def judge(model: Model, task: Task) -> str:
    """What the verdict says: one of our routes, `undetermined` where it names none, or a route of its own."""
    pairs = pairs_of(task)
    found = verdict(interchange(model, pairs, verdict_plan(model, pairs)), model, "key")
    if found.mechanism.partition(":")[0] in NO_NAME:
        return UNDETERMINED
    blocks = tuple(dict.fromkeys(move.block for move in found.moves))
    return NAMES.get((found.mechanism, blocks), found.mechanism)


def outcome(said: str, truth: str) -> str:
    if truth in NAMELESS:
        return "right" if said in (UNDETERMINED, truth) else "wrong"
    return "right" if said == truth else UNDETERMINED if said == UNDETERMINED else "wrong"


def upper_bound(wrong: int, models: int, confidence: float = CONFIDENCE) -> float:
    """The largest error rate with which so few errors would still be seen in 1 of 20 tries (Clopper and Pearson)."""
    low, high = wrong / models, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        seen = sum(comb(models, i) * rate**i * (1 - rate) ** (models - i) for i in range(wrong + 1))
        low, high = (rate, high) if seen > 1 - confidence else (low, rate)
    return high


def look(one: Known, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """One model: the verdict, and how well each method finds its route; of these numbers those of `before`."""
    model = one.model()
    said = judge(model, one.task)
    row: dict[str, Any] = {"id": one.id, "architecture": one.architecture, "route": one.route, "verdict": said}
    row |= {"outcome": outcome(said, one.answer), "judged_by": JUDGED_BY}
    if one.answer == MIXTURE or before is not None:
        return (before or {}) | row
    pairs = pairs_of(one.task, seed=1)
    on, found = declared(one.route), scores(model, pairs, seed=int(one.id, 16) % 2**31)
    row["auroc"] = {name: auroc([(value[cell], on[cell]) for cell in on]) for name, value in found.items()}
    curves = {name: faithfulness(model, pairs, value) for name, value in found.items()}
    row["cpr"] = {name: curve.cpr for name, curve in curves.items()}
    row["cmd"] = {name: curve.cmd for name, curve in curves.items()}
    row["faithfulness"] = {name: [round(value, 4) for value in curve.curve] for name, curve in curves.items()}
    return row


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """What the report prints in the end, and the README shows."""
    lines: list[str] = []
    by_route: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_route[row["route"]][row["outcome"]] += 1
    lines += [f"{route}: {last_line(counts)}" for route, counts in sorted(by_route.items())]
    located = [row for row in rows if "auroc" in row]
    for name in METHODS if located else ():
        mean = {key: sum(row[key][name] for row in located) / len(located) for key in ("auroc", "cpr", "cmd")}
        lines.append(f"{name}: AUROC {mean['auroc']:.3f}, CPR {mean['cpr']:.3f}, CMD {mean['cmd']:.3f}")
    if before := [row for row in rows if not of_today(row)]:
        lines.append(f"judged by the rules of before, until --missing is run: {len(before)} of {len(rows)}")
    counts = Counter(row["outcome"] for row in rows)
    lines.append(f"error rate: at most {upper_bound(counts['wrong'], len(rows)):.1%} ({CONFIDENCE:.0%} confidence)")
    return [*lines, last_line(counts)]


def shown(page: str, rows: list[dict[str, Any]]) -> str:
    """The README with the numbers of a report."""
    return pasted(page, "report", "\n".join(["```", *summary(rows), "```"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, help="only so many of them; then nothing is written")
    parser.add_argument("--missing", action="store_true", help="only those that today's rules have not judged")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {row["id"]: row for row in json.loads(REPORT.read_text())} if options.missing else {}
    models = known()[: options.models]
    for one in models:
        if of_today(found.get(one.id)):
            continue
        found[one.id] = row = look(one, found.get(one.id))
        print(f"{one.id}  {one.architecture}, {one.route}: {row['verdict']}, {row['outcome']}", flush=True)
        if options.models is None:
            rows = [found[known_one.id] for known_one in models if known_one.id in found]
            REPORT.write_text(json.dumps(rows, indent=1) + "\n")
    rows = [found[one.id] for one in models]
    if options.models is None:
        README.write_text(shown(README.read_text(), rows))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
