"""What a fresh probe reads after an erasure: fitted to the documents that it was found in, and to others.

A model of each cell of the state study's main comparison, trained until it makes hardly a mistake, as soon as a CPU
can; those that do not get there are said and left out. LEACE makes the means of the classes equal in the documents in
which it was found, so that a ridge probe of these reads nothing, whatever it leaves elsewhere: vectors that lie far out
can outweigh the rest, most of which are then still told apart. `explained` is the same in the loss by which probes are
fitted, the share of the label's variance that is told in documents that nothing was fitted to: there LEACE holds what
it promises, and the other two do not.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor
from torch.nn import functional as F

from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states, site_vectors
from mixerscope.model import build_model
from mixerscope.probing.erasure import Eraser, chance_of
from mixerscope.probing.ridge import Moments, Parts, fit_probes
from mixerscope.spec import RunSpec
from mixerscope.stages.erase_methods import ITERATED, LEACE, SINGLE, Known
from mixerscope.stages.vectors import ANSWER, draw_vectors
from mixerscope.training import train_cohort

RESULTS = Path(__file__).parent / "results"
TASKS = ("parity", "dyck", "group")
OPTIONS = {
    "attention": {"heads": 4, "relative": "rope"},
    "mamba": {},
    "mamba2": {"heads": 8, "d_state": 64},
    "lstm": {},
    "gru": {},
}
STEPS, BATCH = 6000, 128
ENOUGH, GATE = 0.998, 0.99
"""Accuracy at which training ends, and below which a model is left out."""
SIZES = ((3000, 4), (48000, 4))
"""Documents, and positions of each, that erasures are found in and probes fitted to: what a run takes, and more."""


def spec_of(task: str, architecture: str, width: int, steps: int) -> RunSpec:
    options = OPTIONS[architecture]
    model = {"architecture": architecture, "width": width, "layers": 4, "init": "small_model", "options": options}
    train = {"steps": steps, "batch_size": BATCH, "documents": 32 * steps, "lr": 1e-3, "schedule": "constant"}
    train |= {"warmup": 0.02, "weight_decay": 0.01, "eval_every": 100, "eval_documents": 1024}
    train |= {"stop_at_accuracy": ENOUGH}
    return RunSpec.model_validate({"task": {"name": task, "length": 12}, "model": model, "train": train, "stages": {}})


def explained(eraser: Eraser, fresh: tuple[Moments, Parts], label: Tensor) -> float:
    """Share of the label's variance that a probe of other documents tells, in those that judge."""
    found, parts = fresh
    probe = fit_probes(eraser.left(found), {"": label}, parts)[""]
    told = found.judge @ probe.weight + probe.offset
    one_hot = F.one_hot(label[parts.judge]).double()
    return 1 - float((told[0] - one_hot).square().sum() / (one_hot - probe.offset).square().sum())


def rows(spec: RunSpec) -> Iterator[dict[str, object]]:
    """One for each number of documents, boundary and way of erasing; of a model that did not learn, one alone."""
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
    if member.history[-1].accuracy < GATE:
        yield {**said, "site": None}
        return
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
                    "explained": round(explained(eraser, known.fresh, known.label), 4) if known.fresh else None,
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=STEPS, help="at most")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--architectures", nargs="+", choices=OPTIONS, default=[*OPTIONS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "refits.json"
    for task, architecture in itertools.product(options.tasks, options.architectures):
        found = [*rows(spec_of(task, architecture, options.width, options.steps))]
        for row in found:
            print(json.dumps(row), flush=True)
        own = {name: found[0][name] for name in ("task", "architecture", "width")}
        kept = json.loads(path.read_text()) if path.exists() else []
        others = [row for row in kept if any(row[name] != value for name, value in own.items())]
        path.write_text("[\n" + ",\n".join(json.dumps(row) for row in [*others, *found]) + "\n]\n")


if __name__ == "__main__":
    main()
