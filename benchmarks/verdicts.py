"""The release gate of verdicts: the confusion matrix over all planted models, many random embeddings each.

Every planted route must be named, with the parts that made each move; every sham must be refused; `undetermined` is
right only where two routes are mixed. Writes benchmarks/results/verdicts.json and the tables of docs/verdicts.md, and
fails if any verdict is not the planted one. Ends with `right: <number> of <number>`.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks.paste import paste, table
from mixerscope.planted.zoo import ALL, DOCUMENTS, RETRIEVERS
from mixerscope.randomness import stream

RESULTS = Path(__file__).parent / "results" / "verdicts.json"
SLOTS = ("key", "value")
NOISE = (0.01, 0.02, 0.03, 0.05, 0.1)
"""Standard deviation of what is added to each weight, relative to the root mean square of its matrix."""
NOISY_SEEDS = 5


def measure(seeds: int) -> dict[str, Any]:
    rows = []
    for planted in ALL:
        found: dict[str, Counter[str]] = {slot: Counter() for slot in SLOTS}
        moves = solved = 0
        for seed in range(seeds):
            model = planted.build(planted.task, seed)
            solved += planted.solved(model) == 1.0
            verdicts = planted.judge(model, SLOTS)
            for slot, verdict in verdicts.items():
                found[slot][verdict.mechanism] += 1
            moves += tuple((m.block, m.component, m.source, m.target) for m in verdicts["key"].moves) == planted.moves
        rows.append(
            {
                "planted": planted.name,
                "solved": solved,
                "expected": {slot: planted.expected(slot) for slot in SLOTS},
                "found": {slot: dict(found[slot]) for slot in SLOTS},
                "moves_right": moves,
            }
        )
        print(f"{planted.name}: {', '.join(f'{slot} {dict(found[slot])}' for slot in SLOTS)}", flush=True)
    return {"seeds": seeds, "documents": DOCUMENTS, "models": rows, "noise": [under_noise(scale) for scale in NOISE]}


def under_noise(scale: float) -> dict[str, Any]:
    """What becomes of the verdicts on models with one route when their weights are blurred."""
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
            mechanism = planted.judge(model, ("key",))["key"].mechanism
            refused = mechanism in ("undetermined", "not learned")
            found["right" if mechanism == planted.mechanism else mechanism if refused else "wrong"] += 1
    models = len(RETRIEVERS) * NOISY_SEEDS
    print(f"noise {scale}: accuracy {accuracy / models:.2f}, {dict(found)}", flush=True)
    return {"scale": scale, "models": models, "accuracy": accuracy / models, "found": dict(found)}


def confusion(result: dict[str, Any], slot: str) -> str:
    names = list(dict.fromkeys(name for row in result["models"] for name in row["found"][slot]))
    rows = [
        [row["planted"], row["expected"][slot], *(str(row["found"][slot].get(name, "·")) for name in names)]
        + ([f"{row['moves_right']} of {result['seeds']}"] if slot == "key" else [])
        for row in result["models"]
    ]
    return table(["planted", "expected", *names, *(["moves right"] if slot == "key" else [])], rows)


def noise_table(result: dict[str, Any]) -> str:
    names = ["right", "undetermined", "not learned", "wrong"]
    rows = [
        [f"{row['scale']}", f"{row['accuracy']:.0%}", *(str(row["found"].get(name, 0)) for name in names)]
        for row in result["noise"]
    ]
    return table(["noise", "accuracy", *names], rows)


def tables(result: dict[str, Any]) -> dict[str, str]:
    """By their name on the page."""
    return {
        "confusion, key corrupted": confusion(result, "key"),
        "confusion, value corrupted": confusion(result, "value"),
        "verdicts under noise": noise_table(result),
    }


def right(result: dict[str, Any]) -> tuple[int, int]:
    """Verdicts as planted, and all of them; a model counts once for each slot and once for its moves."""
    seeds = result["seeds"]
    good = sum(
        row["moves_right"] + sum(row["found"][slot].get(row["expected"][slot], 0) for slot in SLOTS)
        for row in result["models"]
    )
    return good, seeds * len(result["models"]) * (len(SLOTS) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    result = measure(parser.parse_args().seeds)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for name, text in tables(result).items():
        paste("verdicts.md", name, text)
    good, total = right(result)
    print(f"right: {good} of {total}")
    sys.exit(good != total)


if __name__ == "__main__":
    main()
