"""What ATR documents look like over many grammars, and where the published grammar falls among them.

Prints the tables of docs/tasks.md and writes benchmarks/results/treecall.json.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from mixerscope.randomness import stream
from mixerscope.tasks import ATR, Batch, GrammarRecipe

RESULTS = Path(__file__).parent / "results" / "treecall.json"
GRAMMARS = 60
DOCUMENTS = 2000
PARSED = 300
PUBLISHED = {
    5: {"length": 15.0, "distance": 2.45, "depth": 3.0, "eligible": 7.8, "answers": 3.9},
    10: {"length": 39.0, "distance": 3.9},
}
"""Means of the reference's own grammars, as far as they are known."""


def depths(batch: Batch) -> Tensor:
    """[n] edges from the root of each tree to its deepest symbol."""
    parents = batch.labels["parents"].long()
    at = torch.arange(parents.shape[1]).expand_as(parents)
    depth = torch.zeros(len(batch), dtype=torch.int64)
    while bool((at >= 0).any()):
        at = torch.where(at >= 0, parents.gather(1, at.clamp(min=0)), -1)
        depth += (at >= 0).any(1)
    return depth


def eligible_pairs(batch: Batch) -> tuple[Tensor, Tensor]:
    """[n] how many (query, answer) pairs and how many answers a parent query could have had."""
    pairs, answers = [], []
    rows = zip(batch.tokens.tolist(), batch.labels["parents"].tolist(), batch.labels["length"].tolist(), strict=True)
    for tokens, parents, size in rows:
        string = tokens[1 : size + 1]
        last = {token: at + 1 for at, token in enumerate(string)}
        found = [parents[at] for at in last.values() if parents[at] >= 0]
        pairs.append(len(found))
        answers.append(len(set(found)))
    return torch.tensor(pairs), torch.tensor(answers)


def statistics(task: ATR) -> dict[str, float]:
    """Means over documents of one grammar."""
    batch = task.sample(DOCUMENTS, stream(0, "statistics"))
    pairs, answers = eligible_pairs(batch)
    columns = {
        "length": batch.labels["length"],
        "distance": batch.labels["distance"],
        "depth": depths(batch),
        "eligible": pairs,
        "answers": answers,
        "ambiguous": task.ambiguous(batch[:PARSED]),
    }
    return {name: float(column.double().mean()) for name, column in columns.items()}


def main() -> None:
    results = {}
    for rule_length, published in PUBLISHED.items():
        rows = []
        for seed in range(GRAMMARS):
            recipe = GrammarRecipe(max_rule_length=rule_length, seed=seed)
            rows.append(statistics(ATR(grammar=recipe, disjoint=False)))
        preset = statistics(ATR.preset("paper" if rule_length == 5 else "paper-l10"))
        results[f"max_rule_length {rule_length}"] = {"grammars": rows, "preset": preset, "published": published}
        print(f"\nmax_rule_length = {rule_length}, {GRAMMARS} grammars, {DOCUMENTS} documents each\n")
        print("| mean of | lowest | 10% | median | 90% | highest | our preset | published | grammars below it |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in rows[0]:
            values = sorted(row[name] for row in rows)
            picks = [values[round(q * (GRAMMARS - 1))] for q in (0, 0.1, 0.5, 0.9, 1)]
            digits = 3 if name == "ambiguous" else 1
            cells = [f"{value:.{digits}f}" for value in [*picks, preset[name]]]
            known = published.get(name)
            cells += ["", ""] if known is None else [f"{known}", f"{sum(v < known for v in values) / GRAMMARS:.0%}"]
            print(f"| {name} | {' | '.join(cells)} |")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
