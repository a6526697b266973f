"""What a fresh probe reads after an erasure: fitted to the documents that it was found in, and to others.

Two models of the state study's size, each trained until it makes no mistake. LEACE makes the means of the classes
equal in the documents in which it was found, so that a ridge probe of these reads nothing, whatever it leaves
elsewhere: vectors that lie far out can outweigh the rest, most of which are then still told apart.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states, site_vectors
from mixerscope.model import build_model
from mixerscope.probing.erasure import chance_of
from mixerscope.spec import RunSpec
from mixerscope.stages.erase_methods import ITERATED, LEACE, SINGLE, Known
from mixerscope.stages.vectors import ANSWER, draw_vectors
from mixerscope.training import train_cohort

RESULTS = Path(__file__).parent / "results"
MODELS = {"parity": ("gru", {}), "dyck": ("attention", {"options": {"heads": 4, "relative": "rope"}})}
STEPS, BATCH = 900, 128
SIZES = ((3000, 4), (12000, 6))
"""Documents, and positions of each, that erasures are found in and probes fitted to: what a run takes, and more."""


def spec_of(task: str, width: int, steps: int) -> RunSpec:
    architecture, options = MODELS[task]
    model = {"architecture": architecture, "width": width, "layers": 4, "init": "small_model", **options}
    train = {"steps": steps, "batch_size": BATCH, "documents": 32 * steps, "lr": 1e-3, "schedule": "cosine"}
    train |= {"warmup": 0.1, "weight_decay": 0.01, "eval_every": steps, "eval_documents": 512}
    return RunSpec.model_validate({"task": {"name": task, "length": 12}, "model": model, "train": train, "stages": {}})


def rows(spec: RunSpec) -> Iterator[dict[str, object]]:
    """One for each number of documents, boundary and way of erasing."""
    [member] = train_cohort([spec])
    task = demand_states(spec.task)
    model = build_model(spec.model, task.vocab_size, spec.seed)
    model.load_state_dict(member.weights)
    said = {
        "task": spec.model_dump(mode="json")["task"]["name"],
        "architecture": spec.model.architecture,
        "width": spec.model.width,
    }
    said |= {"steps": member.steps, "accuracy": member.history[-1].accuracy}
    for documents, each in SIZES:
        drawn = draw_vectors(task, documents, each, None, [ANSWER], spec.data_seed)
        chance = chance_of(drawn.labels[ANSWER][drawn.parts.judge])
        vectors = site_vectors(Members([model]), drawn.batch, model.boundaries()[1:], drawn.positions)
        for site, x in vectors.items():
            known = Known.of(x, drawn, ANSWER)
            for method in (SINGLE, LEACE, ITERATED):
                eraser = known.eraser(method, drawn.labels[ANSWER])
                yield {
                    **said,
                    "documents": documents,
                    "vectors": int(drawn.parts.fit.sum()),
                    "site": site,
                    "method": method,
                    "rank": int(eraser.rank[0]),
                    "chance": chance,
                    "before": round(float(known.probe.accuracy[0]), 4),
                    "residual": round(known.residual(eraser)[0], 4),
                    "unseen": known.unseen(eraser)[0],
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--tasks", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found: list[dict[str, object]] = []
    for task in options.tasks:
        for row in rows(spec_of(task, options.width, options.steps)):
            found.append(row)
            print(json.dumps(row), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "refits.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
