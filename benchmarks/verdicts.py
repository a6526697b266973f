"""The release gate of verdicts: all planted models, many random embeddings each.

A model with one route must get its name in 19 of 20 embeddings, and the parts that made each move; no model may get a
name that is not true of it. Writes benchmarks/results/verdicts.json and the tables of docs/verdicts.md, and fails where
this does not hold. Ends with `right R, without a name U, wrong W of N`.

Every part is written down as it is done, with the revisions it was judged by: `--missing` looks only at what was not
judged by those of today, and so goes on where a run was ended.
"""

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from benchmarks.judged import JUDGED_BY, of_today
from benchmarks.paste import paste, table
from mixerscope.analysis.rules import NO_NAME, NOT_LEARNED
from mixerscope.planted import DOCUMENTS, EVERY, RETRIEVERS, Planted
from mixerscope.randomness import stream

RESULTS = Path(__file__).parent / "results" / "verdicts.json"
SLOTS = ("key", "value")
NAMED = 0.95
"""Share of the embeddings in which a model with one route must get its name."""
NOISE = (0.01, 0.02, 0.03, 0.05, 0.1)
"""Standard deviation of what is added to each weight, relative to the root mean square of its matrix."""
USUAL_DOCUMENTS, USUAL_SEEDS = 320, 2
"""What a run has by default; with more documents a mixture must not turn into a name."""
NOISY_SEEDS = 5
NOISY_DOCUMENTS = (DOCUMENTS, USUAL_DOCUMENTS)
"""Few documents leave no room for exceptions, which noise makes."""
NOISY = tuple((scale, documents) for scale in NOISE for documents in NOISY_DOCUMENTS)


def has_a_name(mechanism: str) -> bool:
    return mechanism.partition(":")[0] not in NO_NAME


def outcome(planted: Planted, slot: str, mechanism: str) -> str:
    """`right`, `wrong` (a name that is not true), or `without a name` where it should have one."""
    if planted.accepts(slot, mechanism):
        return "right"
    return "wrong" if has_a_name(mechanism) else "without a name"


def look(number: int, seeds: int) -> dict[str, Any]:
    """One planted model with every embedding."""
    torch.set_num_threads(1)
    planted = EVERY[number]
    found: dict[str, Counter[str]] = {slot: Counter() for slot in SLOTS}
    outcomes: dict[str, Counter[str]] = {slot: Counter() for slot in SLOTS}
    solved = moves = 0
    for seed in range(seeds):
        model = planted.build(planted.task, seed)
        low, high = planted.accuracy
        solved += low <= planted.solved(model) <= high
        verdicts = planted.judge(model, SLOTS)
        for slot, verdict in verdicts.items():
            found[slot][verdict.mechanism] += 1
            outcomes[slot][outcome(planted, slot, verdict.mechanism)] += 1
        moved = tuple((m.block, m.component, m.source, m.target) for m in verdicts["key"].moves)
        moves += has_a_name(verdicts["key"].mechanism) and moved == planted.moves
    usual: dict[str, Counter[str]] = {slot: Counter() for slot in SLOTS}
    for seed in range(min(seeds, USUAL_SEEDS)):
        verdicts = planted.judge(planted.build(planted.task, seed), SLOTS, USUAL_DOCUMENTS)
        for slot, verdict in verdicts.items():
            usual[slot][f"{outcome(planted, slot, verdict.mechanism)}: {verdict.mechanism}"] += 1
    return {
        "planted": planted.name,
        "kind": planted.kind,
        "acceptable": list(planted.acceptable),
        "accuracy_as_declared": solved,
        "found": {slot: dict(found[slot].most_common()) for slot in SLOTS},
        "outcomes": {slot: dict(outcomes[slot]) for slot in SLOTS},
        "moves_right": moves if planted.moves else None,
        f"found_with_{USUAL_DOCUMENTS}": {slot: dict(usual[slot].most_common()) for slot in SLOTS},
        "judged_by": JUDGED_BY,
    }


def under_noise(scale: float, documents: int) -> dict[str, Any]:
    """What becomes of the verdicts on models with one route when their weights are blurred."""
    torch.set_num_threads(1)
    found: Counter[str] = Counter()
    accuracy = 0.0
    for planted in RETRIEVERS:
        for seed in range(NOISY_SEEDS):
            model = planted.build(planted.task, seed)
            rng = stream(seed, "blur", planted.name)
            with torch.no_grad():
                for parameter in model.parameters():
                    size = parameter.square().mean().sqrt()
                    parameter.add_(scale * size * torch.randn(parameter.shape, generator=rng))
            accuracy += planted.solved(model)
            mechanism = planted.judge(model, ("key",), documents)["key"].mechanism
            kind = outcome(planted, "key", mechanism)
            found[mechanism if kind == "without a name" else kind] += 1
    models = len(RETRIEVERS) * NOISY_SEEDS
    return {
        "scale": scale,
        "documents": documents,
        "models": models,
        "accuracy": accuracy / models,
        "found": dict(found),
        "judged_by": JUDGED_BY,
    }


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def named(row: dict[str, Any]) -> int:
    """Verdicts on the key that name a route; others tell no moves."""
    return sum(count for mechanism, count in row["found"]["key"].items() if has_a_name(mechanism))


def _mark(row: dict[str, Any]) -> str:
    """What tells rows that other rules have judged from those of today."""
    return "" if of_today(row) else " \\*"


def planted_table(result: dict[str, Any]) -> str:
    rows = [
        [
            row["planted"] + _mark(row),
            row["kind"],
            _counts(row["found"]["key"]),
            _counts(row["found"]["value"]),
            f"{row['moves_right']} of {named(row)}" if row["moves_right"] is not None and named(row) else "–",
        ]
        for row in result["models"]
    ]
    return table(["planted", "what it is", "verdict on the key", "verdict on the value", "moves right"], rows)


def noise_table(result: dict[str, Any]) -> str:
    names = ["right", "undetermined", "contradicted", "not retrieval", NOT_LEARNED, "wrong"]
    rows = [
        [
            f"{row['scale']}{_mark(row)}",
            str(row["documents"]),
            f"{row['accuracy']:.0%}",
            *(str(row["found"].get(name, 0)) for name in names),
        ]
        for row in result["noise"]
    ]
    return table(["noise", "documents", "accuracy", *names], rows)


def tables(result: dict[str, Any]) -> dict[str, str]:
    """By their name on the page."""
    return {"verdicts on planted models": planted_table(result), "verdicts under noise": noise_table(result)}


def totals(result: dict[str, Any]) -> Counter[str]:
    """Of both slots, by outcome."""
    found: Counter[str] = Counter()
    for row in result["models"]:
        for slot in SLOTS:
            found.update(row["outcomes"][slot])
    return found


def failures(result: dict[str, Any]) -> list[str]:
    """Where the gate does not hold."""
    seeds = result["seeds"]
    found: list[str] = []
    for row in result["models"]:
        least = NAMED * seeds if row["kind"] == "one route" else seeds
        found += [
            f"{row['planted']}, {slot}: {_counts(row['found'][slot])}"
            for slot in SLOTS
            if row["outcomes"][slot].get("wrong") or row["outcomes"][slot].get("right", 0) < least
        ]
        if row["moves_right"] is not None and row["moves_right"] < NAMED * named(row):
            found.append(f"{row['planted']}: moves right in {row['moves_right']}")
        found += [
            f"{row['planted']}, {slot}, {USUAL_DOCUMENTS} documents: {said}"
            for slot in SLOTS
            for said in row.get(f"found_with_{USUAL_DOCUMENTS}", {}).get(slot, ())
            if not said.startswith("right")
        ]
        if row["accuracy_as_declared"] < seeds:
            found.append(f"{row['planted']}: accuracy as declared in {row['accuracy_as_declared']}")
    found += [
        f"noise {row['scale']}, {row['documents']} documents: {_counts(row['found'])}"
        for row in result["noise"]
        if "wrong" in row["found"]
    ]
    return found


def older(result: dict[str, Any]) -> list[str]:
    """Parts that were judged by other rules than those of today."""
    parts = {row["planted"]: row for row in result["models"]}
    parts |= {f"noise {row['scale']}, {row['documents']} documents": row for row in result["noise"]}
    return [name for name, row in parts.items() if not of_today(row)]


class Recorded:
    """What is known so far, by kind and by noise."""

    def __init__(self, seeds: int) -> None:
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"seeds": seeds, "models": [], "noise": []}
        if before["seeds"] != seeds:
            before = {"models": [], "noise": []}
        self.seeds = seeds
        self.models = {row["planted"]: row for row in before["models"]}
        self.noise = {(row["scale"], row["documents"]): row for row in before["noise"]}

    def result(self) -> dict[str, Any]:
        models = [self.models[planted.name] for planted in EVERY if planted.name in self.models]
        noise = [self.noise[at] for at in NOISY if at in self.noise]
        return {"seeds": self.seeds, "documents": DOCUMENTS, "models": models, "noise": noise}

    def write(self) -> None:
        RESULTS.write_text(json.dumps(self.result(), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--noise", action="store_true", help="only the part under noise; the rest is as recorded")
    parser.add_argument("--only", nargs="*", metavar="TEXT", help="only kinds with this in their name, likewise")
    parser.add_argument("--missing", action="store_true", help="only what today's rules have not judged, likewise")
    options = parser.parse_args()
    known = Recorded(options.seeds)
    kinds = [] if options.noise else list(range(len(EVERY)))
    blurs = [] if options.only else list(NOISY)
    if options.only:
        kinds = [i for i in kinds if any(text in EVERY[i].name for text in options.only)]
    if options.missing:
        kinds = [i for i in kinds if not of_today(known.models.get(EVERY[i].name))]
        blurs = [at for at in blurs if not of_today(known.noise.get(at))]
    with ProcessPoolExecutor(options.jobs) as pool:
        looks = [pool.submit(look, number, options.seeds) for number in kinds]
        blurred = [pool.submit(under_noise, *at) for at in blurs]
        for done in as_completed(looks):
            row = done.result()
            known.models[row["planted"]] = row
            known.write()
            print(f"{row['planted']}: {_counts(row['found']['key'])}; {_counts(row['found']['value'])}", flush=True)
        for done in as_completed(blurred):
            row = done.result()
            known.noise[row["scale"], row["documents"]] = row
            known.write()
            print(f"noise {row['scale']}, {row['documents']} documents: {_counts(row['found'])}", flush=True)
    result = known.result()
    for name, text in tables(result).items():
        paste("verdicts.md", name, text)
    failed = failures(result)
    for line in failed:
        print(f"does not hold: {line}")
    if before := older(result):
        print(f"judged by other rules, until --missing looks at them: {', '.join(before)}")
    counts = totals(result)
    said = ", ".join(f"{name} {counts[name]}" for name in ("right", "without a name", "wrong"))
    print(f"{said} of {counts.total()}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
