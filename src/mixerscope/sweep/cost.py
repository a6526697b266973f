"""How long a cohort takes, roughly: what runs first and what shares a job depend on it, results never do.

On a GPU a training step of K stacked models costs

    parts x layers x LAUNCH  +  K x parameters x PARAMETER  +  K x tokens x width x layers x ELEMENT  seconds:

kernels too short to fill the chip, memory traffic of the optimiser, and the mixers themselves. LAUNCH and ELEMENT are
fitted to what was measured on one H200 with 35 models at five widths and with seven at width 64 (associative recall,
35 tokens, batch 32, 2 layers, compiled, TF32; `training_cuda_tf32_compiled_stacks_of_35.json` and
`training_cuda_tf32_compiled_no_loops.json` in `benchmarks/results`), and foresee 0.89 to 1.13 of it. What else was
measured and what was guessed is said below.

In treecall a batch has two parts, each launched, and its longest documents have 103 tokens: where every token meets
all before it, one counts as many times as its document is longer than those of recall. Of what was measured there
(`training_cuda_tf32_compiled_stacks_of_15_treecall.json`) attention of width 128 was foreseen to 1.06, when parts had
fewer lengths and 1,406 positions on average, not 1,221; nobody timed the others since batches have parts.
Once cohorts of a sweep have been timed, `Calibration` corrects the estimate by what they took.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch

from mixerscope.machine import Machine
from mixerscope.model import parameters_of
from mixerscope.randomness import stream
from mixerscope.spec import ModelSpec, RunSpec, Spec, digest
from mixerscope.sweep.ahead import compiles_ahead
from mixerscope.sweep.cohorts import Cohort
from mixerscope.training.trainer import batches_of

PARAMETER = 2.0e-11
# Architecture: seconds per layer and step, seconds per token and channel and layer.
GPU = {
    "attention": (68e-6, 75e-12),
    "base_conv": (103e-6, 41e-12),
    "based": (114e-6, 36e-12),
    "deltanet": (181e-6, 142e-12),
    "h3": (173e-6, 66e-12),
    "hyena": (196e-6, 89e-12),
    "mamba": (171e-6, 174e-12),
}
EACH_MEETS_ALL = {"attention", "based", "h3", "hyena"}
"""Whose work grows with the square of a document's length."""
FITTED_LENGTH = 36
"""Positions of what these were fitted to: recall, rounded up as a GPU does."""
UNMEASURED = GPU["deltanet"]
"""An architecture nobody timed counts as the slowest of those that were."""
NOT_COMPILED = 2.0
"""Measured: 1.4 to 3.3."""
STRICT_FLOAT32 = 1.7
"""Measured with 35 models: 1.2 (Mamba of width 16) to 2.2 (attention of width 256)."""
PLAIN_KERNELS = 2.0
"""A guess over all architectures; for Mamba 3 to 7 was measured."""
COMPILE_SECONDS = 20.0
"""Measured alone, nothing cached: 12 to 23."""
AHEAD_SECONDS = 30.0
"""Until the first cohorts are compiled in processes of their own; the rest are while these train."""
BUILD_SECONDS = 5.0
"""Measured beside three others, compiled ahead: 3 to 7. Several built at once, as at the beginning, take 5 to 24."""
# Width: how much faster four cohorts together are than one after another; narrow models leave more of the chip idle.
# Measured for 64 (attention; `benchmarks/results/in_flight.json`), assumed for the others.
GAIN_OF_FOUR = {16: 1.8, 32: 1.5, 64: 1.33, 128: 1.2, 256: 1.1}
MOST_TOGETHER = 6
"""More at once have not been measured, and count as no gain."""

# All below are guesses.
CPU_FLOPS = 2e10
"""Per second and thread, of small matrices: on one core the demo's attention, Based and DeltaNet make 59, 108 and 66
steps a second, and this says 36, 122 and 105; a Mamba of width 32 makes 33, and this says 38."""
SLOWER_ON_CPU = {"mamba": 3.0, "h3": 3.0, "gla": 3.0, "gated_deltanet": 15.0, "rwkv7": 40.0}
"""Recurrences take longer than their products; from steps a second at width 32 beside other work, so roughly."""
CPU_LAYER = 1.5e-3
"""Seconds per layer, step and model that are spent outside matrix products."""
LOAD_SECONDS = 0.1
"""To read models that were trained before."""
FORWARD = 1 / 3
"""Of a training step's cost, for the same documents."""
SITES_PER_LAYER, ROLES, DIRECTIONS = 8, 5, 2
OF_STATES: dict[str, dict[tuple[str, ...], int]] = {
    "lengths": {("documents",): 1500},
    "probes": {("documents",): 2000},
    "erase": {
        ("documents",): 400,
        ("stream_documents",): 250,
        ("damaged_documents",): 500,
        ("damaged_documents", "draws"): 2850,
    },
    "interchange": {("documents",): 600, ("pairs",): 900},
    "align": {("documents",): 200, ("pairs",): 150, ("steps",): 1150},
    "recover": {("pairs",): 1500},
}
"""Stages about tracked states: parts of each by the settings whose product they go with, as they are by default, in
training steps of the same models that take as long. Of whole stages guesses, after the progress of one call that was
cut short; their parts after seconds of two models of width 64 with four layers on a CPU."""
LEFT_OUT = {"stream_documents": "documents"}
"""The setting that stands for another one which is left out."""
LENGTH_BATCHES = 16
"""Drawn to see how long a batch is."""
RESUMED = 0.5
"""Share of a forward pass that an intervention needs on average: it resumes from the edited site."""


@dataclass(frozen=True)
class Seconds:
    """An estimate, by what the time goes into."""

    build: float
    train: float
    stages: float

    @property
    def total(self) -> float:
        return self.build + self.train + self.stages


def estimate(cohort: Cohort, machine: Machine) -> Seconds:
    """What a cohort takes with the machine to itself."""
    spec, train, members = cohort.first, cohort.first.train, len(cohort)
    step = _step_on_gpu(spec, members, machine) if machine.device == "cuda" else _step_on_cpu(spec, members, machine)
    per_document = FORWARD * step / train.batch_size
    stages = _patched_documents(spec) * per_document + _of_states(spec) * step
    if cohort.trained:
        return Seconds(LOAD_SECONDS, 0.0, stages)
    evaluations = 1 + math.ceil(train.steps / train.eval_every)
    build = BUILD_SECONDS if machine.device == "cuda" else 0.1
    if machine.compile and not compiles_ahead(machine):
        build += COMPILE_SECONDS
    return Seconds(build, train.steps * step + evaluations * train.eval_documents * per_document, stages)


def _patched_documents(spec: RunSpec) -> float:
    """Forward passes of one document that the stages of a run need; of stages nobody timed nothing is known."""
    cells = SITES_PER_LAYER * spec.model.layers * ROLES * DIRECTIONS * RESUMED
    emergence = spec.stages.get("emergence")
    grids = [(1, spec.stages[name]) for name in ("patch", "patch_dev") if name in spec.stages]
    grids += [] if emergence is None else [(emergence.looks, emergence)]
    return sum(times * cells * max(1, len(grid.slots)) * grid.documents for times, grid in grids)


def _of_states(spec: RunSpec) -> float:
    """Training steps that take as long as the stages about tracked states; of other stages nothing is known."""
    asked = {name: stage for name, stage in spec.stages.items() if name in OF_STATES}
    return sum(
        steps * math.prod(_times_usual(stage, setting) for setting in settings)
        for name, stage in asked.items()
        for settings, steps in OF_STATES[name].items()
    )


def _times_usual(stage: Spec, setting: str) -> float:
    """A setting, in those that the stage has by default."""
    other = LEFT_OUT.get(setting, setting)
    own, usual = (getattr(one, setting) or getattr(one, other) for one in (stage, type(stage)()))
    return own / usual


def shares_to_compile(cohort: Cohort) -> int:
    """Processes that can compile a cohort at the same time: where documents differ in length, parts of batches do."""
    return _work(cohort.first, "cuda").shares


def before_the_first(machine: Machine) -> float:
    """Seconds of a call in which nothing is trained yet."""
    return AHEAD_SECONDS if compiles_ahead(machine) else 0.0


def gain(cohort: Cohort, machine: Machine, in_flight: int) -> float:
    """How many times faster `in_flight` such cohorts at once are than one after another."""
    if in_flight == 1:
        return 1.0
    if machine.device == "cpu":
        return float(in_flight)  # a core each
    nearest = min(GAIN_OF_FOUR, key=lambda width: abs(math.log(width / cohort.first.model.width)))
    return 1 + (GAIN_OF_FOUR[nearest] - 1) * math.log(min(in_flight, MOST_TOGETHER), 4)


def _step_on_gpu(spec: RunSpec, members: int, machine: Machine) -> float:
    launch, element = GPU.get(spec.model.architecture, UNMEASURED)
    work = _work(spec, "cuda")
    tokens = work.beside_all if spec.model.architecture in EACH_MEETS_ALL else work.positions
    seconds = work.parts * spec.model.layers * launch + members * (
        _parameters(spec.model, spec.task.vocab_size) * PARAMETER
        + tokens * spec.model.width * spec.model.layers * element
    )
    for applies, factor in (
        (not machine.compile, NOT_COMPILED),
        (spec.train.precision == "float32", STRICT_FLOAT32),
        (machine.kernels == "plain", PLAIN_KERNELS),
    ):
        if applies:
            seconds *= factor
    return seconds


def _step_on_cpu(spec: RunSpec, members: int, machine: Machine) -> float:
    head = spec.task.vocab_size * spec.model.width
    inner = _parameters(spec.model, spec.task.vocab_size) - head
    if spec.model.positions == "learned":  # a table that is looked up
        inner -= spec.model.max_length * spec.model.width
    flops = 6 * (_work(spec, "cpu").positions * inner + spec.train.batch_size * head)
    slower = SLOWER_ON_CPU.get(spec.model.architecture, 1.0)
    return members * slower * (flops / (CPU_FLOPS * machine.threads) + spec.model.layers * CPU_LAYER)


@dataclass(frozen=True)
class _Work:
    """What a step computes of the documents of a batch, on average."""

    parts: int
    positions: float
    shares: int
    """In how many what a step needs can be compiled."""
    beside_all: float
    """The same, those of long documents counted as often as these are longer than those of recall."""


def _work(spec: RunSpec, device: str) -> _Work:
    key = (digest(spec.training()["task"]), spec.train.batch_size, device)
    if key not in _WORK:
        train = spec.train.changed(steps=LENGTH_BATCHES)
        sample = spec.task.sample(LENGTH_BATCHES * train.batch_size, stream(0, "lengths"))
        batches = batches_of(sample, train, torch.device("cpu"), like=device)
        parts = [part for lengths in batches.lengths for part in zip(batches.sizes, lengths, strict=True)]
        beside_all = sum(size * length * max(1.0, length / FITTED_LENGTH) for size, length in parts) / batches.count
        _WORK[key] = _Work(len(batches.sizes), batches.positions, len(batches.covering), beside_all)
    return _WORK[key]


_WORK: dict[tuple[str, int, str], _Work] = {}


@lru_cache(maxsize=1024)
def _parameters_of(model: str, vocab_size: int) -> int:
    return parameters_of(ModelSpec.model_validate_json(model), vocab_size)


def _parameters(model: ModelSpec, vocab_size: int) -> int:
    return _parameters_of(model.model_dump_json(), vocab_size)


@dataclass(frozen=True)
class Timed:
    """A cohort that was timed: what was expected of it and what it took."""

    architecture: str
    expected: float
    took: float


class Calibration:
    """Factors on the estimate, from cohorts already timed on the same machine in the same way."""

    def __init__(self, timed: Iterable[Timed] = ()) -> None:
        self.timed = [one for one in timed if one.expected > 0]

    def add(self, timed: Timed) -> None:
        self.timed.append(timed)

    def factor(self, architecture: str) -> float:
        """The median over the same architecture, else over all, else 1."""
        same = [one.took / one.expected for one in self.timed if one.architecture == architecture]
        factors = same or [one.took / one.expected for one in self.timed]
        return statistics.median(factors) if factors else 1.0
