"""Probes of one four-layer model of width 128: every site but recurrent states, 20,000 vectors, seven penalties.

Three sets of labels are read at each of the 49 sites: the answer, the answer in random order and a random function of
the last tokens. Timed are the probes alone, on vectors that are at hand, and the whole stage, which also runs the
model and its untrained twin and cross-checks the boundaries by logistic regression. Processor seconds stand beside
wall seconds, since a shared machine has fewer cores than it says.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mixerscope.interventions.members import Members
from mixerscope.interventions.tagging import demand_states, site_vectors
from mixerscope.machine import CPU
from mixerscope.model import build_model
from mixerscope.probing.controls import control_labels, shuffled
from mixerscope.probing.ridge import PENALTIES, fit_probes, moments
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Trained
from mixerscope.stages.probes import ProbeStates
from mixerscope.stages.vectors import ANSWER, draw_vectors

RESULTS = Path(__file__).parent / "results"
MODEL = {"width": 128, "layers": 4, "init": "small_model"}
ARCHITECTURES = ("attention", "mamba")


def seconds_of(work: Callable[[], object]) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
    }


def solved_by(gram: torch.Tensor, times: int = 50) -> dict[str, dict[str, float]]:
    """What all penalties take at one site, so many times: a Cholesky factor each, or one eigendecomposition."""
    right, eye = torch.randn(*gram.shape[:-1], 6, dtype=gram.dtype), torch.eye(gram.shape[-1], dtype=gram.dtype)
    unit = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]

    def factors() -> None:
        for penalty in PENALTIES:
            torch.cholesky_solve(right, torch.linalg.cholesky(gram + penalty * unit * eye))

    def axes() -> None:
        values, turn = torch.linalg.eigh(gram)
        for penalty in PENALTIES:
            _ = turn @ ((turn.mT @ right) / (values + penalty * unit[..., 0])[..., None])

    return {
        name: seconds_of(lambda way=way: [way() for _ in range(times)])
        for name, way in (("cholesky", factors), ("eigendecomposition", axes))
    }


def measured(architecture: str) -> dict[str, object]:
    spec = RunSpec.model_validate(
        {"task": {"name": "group", "length": 12}, "model": {"architecture": architecture, **MODEL}}
    )
    model, stage, task = build_model(spec.model, spec.task.vocab_size, 0), ProbeStates(), demand_states(spec.task)
    drawn = draw_vectors(task, stage.documents, stage.each, stage.first, [ANSWER], spec.data_seed)
    label = drawn.labels[ANSWER]
    labels = {
        ANSWER: label,
        "shuffled": shuffled(label, stream(0, "shuffled")),
        "control": control_labels(drawn.batch.tokens, drawn.positions, label, stream(0, "control")),
    }
    sites = stage.chosen(model)
    vectors = [x.flatten(1, 2) for x in site_vectors(Members([model]), drawn.batch, sites, drawn.positions).values()]
    trained = Trained(1, CPU, lambda: [spec], lambda: [model], lambda *asked: None)
    return {
        "architecture": architecture,
        "sites": len(sites),
        "vectors": vectors[0].shape[1],
        "label_sets": len(labels),
        "penalties": len(PENALTIES),
        "probes": seconds_of(lambda: [fit_probes(moments(x, drawn.parts), labels, drawn.parts) for x in vectors]),
        "fifty_sites_solved_by": solved_by(moments(vectors[-1], drawn.parts).gram),
        "stage": seconds_of(lambda: stage.run(trained)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [{"threads": options.threads, **measured(architecture)} for architecture in ARCHITECTURES]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "probes.json").write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
