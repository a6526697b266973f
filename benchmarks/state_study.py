"""The tables of docs/state-study.md, worked out from what is kept in `reproduction/task-flip/`, and what erasures leave
in docs/states.md, from `benchmarks/results/refits.json`; `--write` puts them there, and the drawing."""

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paste import DOCS, paste, table
from benchmarks.refits import GATE, RESULTS, SIZES
from mixerscope.analysis.prediction import Area
from mixerscope.artifacts.erasures import LEAST_READ, MOST_LEFT
from mixerscope.experiments.task_flip.models import Model
from mixerscope.experiments.task_flip.predictions import Predicted, by_verdict, foreseen, predictions
from mixerscope.experiments.task_flip.render import Study
from mixerscope.experiments.task_flip.tables import load

ROOT = Path(__file__).parents[1] / "reproduction" / "task-flip"
DRAWING, PICTURE = ROOT / "figure.png", DOCS / "state-study.png"
STUDY, STATES = "state-study.md", "states.md"
WAYS = ("single direction", "leace", "iterated projection")


def tables(root: Path = ROOT) -> dict[tuple[str, str], str]:
    """Page and marker to what stands there."""
    study = Study.of(load(root))
    refits = json.loads((RESULTS / "refits.json").read_text())
    return {
        (STUDY, "claims of the state study"): _claims(study),
        (STUDY, "what foretells longer documents"): _foretold(study.foretold, study.models),
        (STUDY, "what came of held-out models"): _came(study.held_out),
        (STATES, "what erasures leave"): _left(refits),
    }


def _claims(study: Study) -> str:
    rows: list[list[str]] = []
    for claim, found in study.claims:
        number = "" if found.value is None else f"{found.value:.2f}"
        ends = "" if found.low is None or found.high is None else f"{found.low:.2f} to {found.high:.2f}"
        what, other = claim.number if number else "", study.highest[claim.id]
        highest = "" if other.value is None else f"{other.value:.2f}, {other.outcome}"
        told = [f"**{found.outcome}**", number, ends, str(found.seeds or ""), what, highest]
        rows.append([claim.id, claim.sentence, *told])
    header = ["outcome", "number", "95% over seeds", "seeds", "what the number is", "at the highest rates"]
    return table(["", "sentence", *header], rows)


def _foretold(found: Sequence[Predicted], models: Sequence[Model]) -> str:
    def said(area: Area | None) -> str:
        return "–" if area is None else f"{area.value:.2f} ({area.low:.2f} to {area.high:.2f})"

    rows = [[one.by, str(one.models), said(one.overall), said(one.within)] for one in found]
    held = ", ".join(f"{held} of {count} {name}" for name, (count, held) in by_verdict(models).items())
    return f"{table(['by', 'models', 'area', 'within'], rows)}\n\nModels that hold: {held}."


def _came(models: Sequence[Model]) -> str:
    words = {None: "untested", True: "true", False: "false"}
    rows = [[one.id, f"**{words[one.true]}**", one.came] for one in foreseen(models)]
    return f"{table(['', 'outcome', 'what came'], rows)}\n\n{_foretold(predictions(models), models)}"


def _left(rows: Sequence[dict[str, Any]]) -> str:
    """Over the boundaries between blocks of all models at which the answer could be read: what is left of it, above
    chance, and at how many nothing is."""
    tried = {(row["task"], row["architecture"]): row["accuracy"] >= GATE for row in rows}
    between = [row for row in rows if row["site"] and not row["site"].endswith("resid_post")]
    readable = [row for row in between if row["before"] > row["chance"] + LEAST_READ]
    found: list[list[str]] = []
    for method in WAYS:
        for documents, _ in SIZES:
            own = [row for row in readable if (row["method"], row["documents"]) == (method, documents)]
            left = {name: [row[name] - row["chance"] for row in own] for name in ("before", "residual", "unseen")}
            nothing = {name: sum(value <= MOST_LEFT for value in values) for name, values in left.items()}
            told = statistics.median(max(0.0, row["explained"]) for row in own)
            each = [f"{statistics.median(values):.2f}" for values in left.values()]
            counts = [f"{nothing[name]} of {len(own)}" for name in ("residual", "unseen")]
            found.append([method, f"{documents:,}", each[0], each[1], counts[0], each[2], counts[1], f"{told:.3f}"])
    header = ["way", "documents", "before", "left there", "nothing there", "left elsewhere", "nothing elsewhere"]
    lost = ", ".join(f"{architecture} on {task}" for (task, architecture), learned in tried.items() if not learned)
    without = f", without {lost}, which did not learn" if lost else ""
    lines = [
        f"Between the blocks of {sum(tried.values())} models of width {rows[0]['width']}{without}, where the answer",
        "could be read (`python -m benchmarks.refits`). Medians, above chance, of what a probe reads before and",
        "after, in the documents an erasure was found in and in others; at how many boundaries that is nothing,",
        f"{MOST_LEFT} or less; and the share of the label's variance that a probe of others explains:",
    ]
    return "\n".join([*lines, "", table([*header, "explained"], found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put them into the pages")
    options = parser.parse_args()
    for (page, name), text in tables().items():
        if options.write:
            paste(page, name, text)
        else:
            sys.stdout.write(f"{page}: {name}\n\n{text}\n\n")
    if options.write:
        shutil.copyfile(DRAWING, PICTURE)


if __name__ == "__main__":
    main()
