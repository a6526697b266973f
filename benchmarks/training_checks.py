"""What has to hold on a GPU before its rates mean anything: the CPU's results, and equal bits whatever runs beside."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from benchmarks.training_specs import published_spec, small_spec, with_rates
from mixerscope.interventions import interchange_cohort, make_pairs
from mixerscope.machine import Machine
from mixerscope.model import build_model, load_weights
from mixerscope.spec import RunSpec
from mixerscope.training import Member, train_cohort

IN_FLIGHT = 4
WIDTH = 64


def parity_specs(architecture: str) -> list[RunSpec]:
    spec = small_spec(architecture)
    return with_rates(spec.changed(train=spec.train.changed(steps=20)), (1e-4, 1e-3))


def of_several_lengths(architecture: str) -> list[RunSpec]:
    """Trees: batches have several lengths, each with graphs of its own; an odd number of documents in a batch."""
    train = {"steps": 80, "batch_size": 5, "documents": 1000, "eval_every": 40, "eval_documents": 8, "warmup": 0.0}
    model = {"architecture": architecture, "width": 16}
    spec = RunSpec.model_validate({"task": {"name": "atr", "max_symbols": 60}, "model": model, "train": train})
    return with_rates(spec, (1e-4, 1e-3))


def in_bfloat16(architecture: str) -> list[RunSpec]:
    return [spec.changed(train=spec.train.changed(precision="bfloat16")) for spec in parity_specs(architecture)]


def parity(specs: list[RunSpec], machine: Machine) -> float:
    """Largest difference of a weight between CPU and GPU after some steps, relative to the largest."""
    worst = 0.0
    for cpu, gpu in zip(train_cohort(specs), train_cohort(specs, machine=machine), strict=True):
        for name, weight in cpu.weights.items():
            apart = (gpu.weights[name].float() - weight.float()).abs().max()
            worst = max(worst, (apart / weight.float().abs().max().clamp(min=1e-3)).item())
    return worst


def grid_parity(architecture: str) -> float:
    """Largest difference of a likelihood between the grids of a small trained cohort on CPU and on GPU, in float32."""
    specs = with_rates(small_spec(architecture), (3e-3, 1e-2))
    models = [build_model(spec.model, spec.task.vocab_size, spec.seed).eval() for spec in specs]
    for model, member in zip(models, train_cohort(specs), strict=True):
        load_weights(model, member.weights)
    pairs = make_pairs(specs[0].task, specs[0].stages["patch"], 0)
    on_cpu = interchange_cohort(models, pairs)
    on_gpu = interchange_cohort([model.cuda() for model in models], pairs.to(torch.device("cuda")))
    worst = 0.0
    for expected, found in zip(on_cpu, on_gpu, strict=True):
        for cell, measured in expected.cells.items():
            likelihood = found.cells[cell].effects.likelihood
            worst = max(worst, (likelihood - measured.effects.likelihood).abs().max().item())
    return worst


COMPARED = {"cpu_gpu": parity_specs, "cpu_gpu_several_lengths": of_several_lengths, "cpu_gpu_bfloat16": in_bfloat16}


def with_the_cpu(architecture: str, machine: Machine) -> dict[str, float]:
    """How far CPU and GPU are apart."""
    found = {name: parity(specs(architecture), machine) for name, specs in COMPARED.items()}
    return found | {"grid_cpu_gpu": grid_parity(architecture)}


def specs_of_checks(architecture: str, precision: str) -> list[list[RunSpec]]:
    """The cohorts that the checks of an architecture train on the GPU."""
    return [with_rates(_published(architecture, precision)), *(specs(architecture) for specs in COMPARED.values())]


def same_bits(architectures: Sequence[str], machine: Machine, precision: str) -> dict[str, dict[str, Any]]:
    """Per architecture: whether a cohort ends with the same bits alone as among others, and which bits those are.

    As in a sweep: cohorts of all architectures, each in a thread and on a stream of its own, some at a time. The
    digests are for comparing with another process, or another machine of the same kind.
    """

    def train(architecture: str) -> str:
        with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
            return _digest(train_cohort(with_rates(_published(architecture, precision)), machine=machine))

    alone = [train(architecture) for architecture in architectures]
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        together = list(threads.map(train, architectures))
    return {
        architecture: {"undisturbed": one == other, "weights_sha256": one}
        for architecture, one, other in zip(architectures, alone, together, strict=True)
    }


def _published(architecture: str, precision: str) -> RunSpec:
    spec = published_spec(architecture, WIDTH, precision)
    return spec.changed(train=spec.train.changed(steps=2000, eval_every=1000))


def _digest(members: Sequence[Member]) -> str:
    """Of all weights of those that did not diverge: not-a-numbers have many bit patterns."""
    digest = hashlib.sha256()
    for member in members:
        if member.outcome != "diverged":
            for name in sorted(member.weights):
                digest.update(member.weights[name].numpy().tobytes())
    return digest.hexdigest()
