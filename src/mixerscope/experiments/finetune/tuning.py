"""Fine-tuning on a task that tracks a state, and the stages that look at what came out of it."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch.nn import functional as F

from mixerscope.artifacts import Artifact
from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.tagging import demand_states
from mixerscope.machine import Machine
from mixerscope.randomness import construction, stream
from mixerscope.spec import ModelSpec, TrainSpec
from mixerscope.stages import Done, Stage, Trained
from mixerscope.stages.erase import EraseStates
from mixerscope.stages.interchange import InterchangeStates
from mixerscope.stages.lengths import EvaluateLengths
from mixerscope.stages.probes import ProbeStates
from mixerscope.stages.recover import RecoverAnswers
from mixerscope.stages.track import TrackStates
from mixerscope.tasks import UNSCORED, StateTask
from mixerscope.tasks.state_tracking import MOST_INPUTS
from mixerscope.training.objective import answer_correct

GATE = 0.95
"""Accuracy at the training length below which nothing is said of how a model does it."""
TIMES = (1, 2, 4)
"""Lengths of training that documents have which a model is tried on."""
CLIP = 1.0
ATTENTION = "attention"
"""A mover of information that carries no state: all it knows of earlier positions it reads from their stream."""
Tell = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """How a model is fine-tuned, and how much is measured."""

    steps: int = 3000
    batch_size: int = 64
    lr: float = 2e-5
    warmup: float = 0.1
    seed: int = 0
    documents: int = 2000
    """That probes are fitted on; erasure takes three fifths of them."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1 or self.documents < 100 or not 0 < self.lr < math.inf:
            raise UserError(f"steps, batch size and rate are above 0, and documents at least 100, got {asdict(self)}")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"a seed is 0 or more, and below 2^63, got {self.seed}")

    def stages(self) -> dict[str, Stage]:
        """Those that need nothing of a model but its boundaries."""
        fewer = self.documents * 3 // 5
        return {
            "lengths": EvaluateLengths(times=TIMES, documents=max(64, self.documents // 8)),
            "probes": ProbeStates(documents=self.documents),
            "erase": EraseStates(documents=fewer, damaged_documents=max(32, self.documents // 16), draws=5),
            "recover": RecoverAnswers(pairs=max(32, self.documents // 16)),
            "interchange": InterchangeStates(documents=self.documents, pairs=max(32, self.documents // 16)),
            "track": TrackStates(),
        }


@dataclass(frozen=True)
class Tuned:
    """What came out of it."""

    accuracy: float
    """On dev documents, at the training length."""
    losses: tuple[float, ...]
    """A tenth of the training each."""
    found: dict[str, tuple[Artifact, ...]]
    """By stage."""
    reasons: dict[str, str]
    """Why a stage gave nothing."""


@dataclass(frozen=True)
class _Spec:
    """As much of a run's spec as stages ask for; the model is a foreign one."""

    task: StateTask
    seed: int
    data_seed: int = 0
    model: ModelSpec | None = None
    train: TrainSpec | None = None


def tune(model: Adapted, task: StateTask, settings: Settings, tell: Tell) -> tuple[float, tuple[float, ...]]:
    """Trains all weights on the answers, at their own positions: no shift by one, as losses of language models have.
    Gives the accuracy on dev documents, and mean losses."""
    device, rng = device_of(model), stream(settings.seed, "fine-tuning")
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01)
    model.train()
    losses: list[float] = []
    for step in range(settings.steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * _rate(step / settings.steps, settings.warmup)
        batch = task.sample(settings.batch_size, rng, "train").to(device)
        logits = model(batch.tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=UNSCORED)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise UserError(f"training diverged at step {step + 1}; take a smaller --lr than {settings.lr}")
        if (step + 1) % max(1, settings.steps // 20) == 0:
            tell("train", step + 1, settings.steps, f"loss {losses[-1]:.3f}")
    model.eval()
    dev = task.sample(256, stream(settings.seed, "fine-tuning dev"), "dev").to(device)
    with torch.no_grad():
        right = answer_correct(model(dev.tokens), dev.targets.clamp(min=0)) & (dev.targets != UNSCORED)
    some = max(1, settings.steps // 10)
    means = [sum(part) / len(part) for part in (losses[at : at + some] for at in range(0, len(losses), some))]
    return (right.sum() / (dev.targets != UNSCORED).sum()).item(), tuple(round(mean, 5) for mean in means)


def _rate(done: float, warmup: float) -> float:
    return done / warmup if done < warmup else 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup)))


def _demand_room(model: Adapted, task: StateTask) -> None:
    """Refuses before training what would be refused behind it."""
    if max(TIMES) * task.length > MOST_INPUTS:
        raise UserError(
            f"documents {max(TIMES)} times as long as {task.length} have more than {MOST_INPUTS:,} inputs; make the"
            " task's length smaller"
        )
    longest = task.at_length(max(TIMES) * task.length).max_length
    if model.longest is not None and longest > model.longest:
        raise UserError(
            f"documents {max(TIMES)} times as long have {longest} tokens, and the model takes {model.longest}; make the"
            " task's length smaller"
        )


def tuned(
    make: Callable[[], Adapted],
    fresh: Callable[[], Adapted],
    task: StateTask,
    settings: Settings,
    machine: Machine,
    tell: Tell,
) -> Tuned:
    """A model fine-tuned and looked at; `fresh` is its shape with random weights, which probes are compared with."""
    task = demand_states(task)
    model = make().to(machine.device)
    _demand_room(model, task)
    spec = _Spec(task, settings.seed)
    for stage in settings.stages().values():
        stage.draw(spec)  # type: ignore[arg-type]
    with construction(settings.seed):  # of dropout, where a model has any
        accuracy, losses = tune(model, task, settings, tell)
    found: dict[str, tuple[Artifact, ...]] = {}
    reasons: dict[str, str] = {}
    for name, stage in settings.stages().items():
        if accuracy < GATE and name != "lengths":
            reasons[name] = f"accuracy {accuracy:.3f} is below the gate of {GATE}"
            continue
        hidden = [part.component for block in model.parts() for part in block if part.component != ATTENTION]
        if name == "track" and hidden:
            # Later answers that do not follow the stream could follow a state that nobody can write.
            reasons[name] = f"what a {hidden[0]} carries from position to position cannot be written"
            continue
        trained = Trained(
            size=1,
            machine=machine,
            parse=lambda: [spec],  # type: ignore[arg-type, return-value]
            build=lambda: [model],  # type: ignore[arg-type, return-value]
            read=lambda index, needed, artifact: next(one for one in found[needed] if isinstance(one, artifact)),
            find=lambda index, needed, artifact: next(iter(found.get(needed, ())), None),
            make_fresh=lambda: [fresh().to(machine.device)],  # type: ignore[arg-type, return-value]
            progress=lambda done, total, name=name: tell(name, done, total, ""),
        )
        [result] = stage.run(trained)
        if isinstance(result, Done):
            found[name] = result.artifacts
        else:
            reasons[name] = result.reason
    return Tuned(accuracy, losses, found, reasons)
