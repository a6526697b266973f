"""Where the training of a cohort stands between two steps, and the same as a header and tensors, to be written down."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from torch import Tensor

from mixerscope.artifacts.training import Evaluation, Outcome
from mixerscope.showing import Shown
from mixerscope.spec import RunSpec


@dataclass(repr=False)
class Member(Shown):
    """One model of a cohort: where it started and what became of it."""

    spec: RunSpec
    outcome: Outcome | None = None
    steps: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[Evaluation] = field(default_factory=list)
    data_sha256: str = ""
    """Of the training documents, which all members share."""
    build_seconds: float = 0.0
    """Of the member's stack: making documents and models, compiling, capturing."""
    train_seconds: float = 0.0
    """Of the member's stack: steps and evaluations."""
    stack_size: int = 0
    """Members of its stack at the start: the cohort, or a part of it where that did not fit."""
    stack_steps: int = 0
    """Of the member's stack: more than its own where it left early."""

    def sentence(self) -> str:
        """One line for people."""
        model = f"{self.spec.model.architecture} d={self.spec.model.width} seed={self.spec.seed}"
        accuracy = f", accuracy {self.history[-1].accuracy:.3f}" if self.history else ""
        return f"{model}, {self.outcome or 'in training'} after {self.steps} steps{accuracy}"

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return (asdict(point) for point in self.history)


PLAIN = ("outcome", "steps", "data_sha256", "build_seconds", "train_seconds", "stack_size", "stack_steps")
"""Of a member: what is written as it is."""


@dataclass
class Point:
    """Where a stack stands."""

    done: int
    losses_since: int
    """Steps whose losses are in `loss_sum`."""
    slots: dict[int, int]
    """Which member is in which slot of the stack; without those that are done."""
    build_seconds: float
    train_seconds: float
    """Spent so far."""
    tensors: Mapping[str, Tensor]
    """What the stack itself keeps, by name."""


@dataclass
class Kept:
    """Where a cohort stands: all that it takes to go on as if nothing had happened."""

    members: list[Member]
    waiting: list[list[int]]
    """Parts of the cohort that are not done, the first of them begun if there is a `point`."""
    point: Point | None = None

    @property
    def complete(self) -> bool:
        return not self.waiting

    def written(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """As JSON and tensors."""
        members = [
            {
                **{name: getattr(member, name) for name in PLAIN},
                "history": [asdict(evaluation) for evaluation in member.history],
                "weights": sorted(member.weights),
            }
            for member in self.members
        ]
        tensors = {f"{i}.{name}": t for i, member in enumerate(self.members) for name, t in member.weights.items()}
        header: dict[str, Any] = {"members": members, "waiting": self.waiting, "point": None}
        if self.point is not None:
            header["point"] = {
                "done": self.point.done,
                "losses_since": self.point.losses_since,
                "slots": sorted(self.point.slots.items()),
                "build_seconds": self.point.build_seconds,
                "train_seconds": self.point.train_seconds,
                "tensors": sorted(self.point.tensors),
            }
            tensors |= {f"stack.{name}": tensor for name, tensor in self.point.tensors.items()}
        return header, tensors

    @staticmethod
    def read(specs: Sequence[RunSpec], header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Kept":
        """What `written` gave; `specs` of all members."""
        members = [
            Member(
                spec,
                history=[Evaluation(**evaluation) for evaluation in own["history"]],
                weights={name: tensors[f"{i}.{name}"] for name in own["weights"]},
                **{name: own[name] for name in PLAIN},
            )
            for i, (spec, own) in enumerate(zip(specs, header["members"], strict=True))
        ]
        point = header["point"]
        if point is not None:
            own = {name: tensors[f"stack.{name}"] for name in point["tensors"]}
            slots = dict(point["slots"])
            point = Point(**{**point, "slots": slots, "tensors": own})
        return Kept(members, [list(part) for part in header["waiting"]], point)


class Keeper(Protocol):
    """Writes down where a training stands, so that a kill loses little of it."""

    def due(self) -> bool:
        """Whether it is time again; asked after every few steps, so it must cost nothing."""
        ...

    def keep(self, kept: Kept) -> None: ...
