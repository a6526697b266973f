"""What training leaves: which run it was, what became of it, how it learned, its weights, and what made it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from mixerscope.artifacts.base import Frames, JsonArtifact, SharedJson
from mixerscope.errors import CorruptFile
from mixerscope.showing import Shown, counted

if TYPE_CHECKING:  # listing runs reads JSON only and should not wait for torch
    from torch import Tensor

Outcome = Literal["finished", "reached", "diverged"]


@dataclass(frozen=True, repr=False)
class Record(Shown, JsonArtifact):
    """Which training a folder holds. Its id is the hash of `identity`, which anyone can check without any code."""

    file: ClassVar[str] = "spec.json"
    identity: dict[str, Any]
    """What tells this training from any other: names, revisions, settings that are not the default, outside code."""
    spec: dict[str, Any]
    """The training in full, every default written out."""

    def __post_init__(self) -> None:
        for part, name in (("task", "name"), ("model", "architecture")):
            found = self.spec.get(part)
            if not isinstance(found, dict) or not isinstance(found.get(name), str):
                raise ValueError("it describes no training")

    def sentence(self) -> str:
        """One line for people."""
        model, train = self.spec["model"], self.spec["train"]
        return f"{model['architecture']} d={model['width']} on {self.spec['task']['name']}, {train['steps']} steps"


@dataclass(frozen=True)
class Status(SharedJson):
    """What became of a training, and how large the model is."""

    file: ClassVar[str] = "status.json"
    outcome: Outcome
    steps: int
    """It was trained for so many."""
    parameters: int
    state_size: int
    """Numbers the model carries from one position to the next at the end of a measured document."""


@dataclass(frozen=True)
class Evaluation:
    """A member's scores on the dev set at one step, and its mean training loss since the evaluation before."""

    step: int
    loss: float | None
    accuracy: float
    likelihood: float


@dataclass(frozen=True, repr=False)
class Curve(Frames, JsonArtifact):
    """The learning curve."""

    file: ClassVar[str] = "curve.json"
    points: tuple[Evaluation, ...]

    def sentence(self) -> str:
        """One line for people."""
        if self.last is None:
            return "never evaluated"
        return f"{counted(len(self.points), 'evaluation')}, accuracy {self.last.accuracy:.3f} at step {self.last.step}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row per evaluation."""
        return (dict(vars(point)) for point in self.points)

    @property
    def last(self) -> Evaluation | None:
        """None where training diverged before it was evaluated."""
        return self.points[-1] if self.points else None


@dataclass(frozen=True, repr=False)
class Provenance(Shown, JsonArtifact):
    """What made a result: versions, code, machine, documents. It depends on this run and its stack alone."""

    file: ClassVar[str] = "provenance.json"
    packages: dict[str, str]
    python: str
    platform: str
    device: str
    threads: int
    kernels: str
    compiled: bool
    git: dict[str, Any]
    precision: str
    """Of matrix products."""
    repeatable: bool
    """Whether the same spec and cohort give the same bits again there."""
    data_sha256: str
    """Of the documents that were trained on, or measured."""
    stack: int
    """Models that were computed together: the last bits may depend on it."""
    kernels_used: dict[str, str] = field(default_factory=dict)
    """What each operator ran as, on a GPU."""
    code: dict[str, dict[str, str]] = field(default_factory=dict)
    """Components from outside: source hash, or distribution and version."""

    def sentence(self) -> str:
        """One line for people."""
        versions = ", ".join(
            f"{name} {self.packages[name]}" for name in ("mixerscope", "torch") if name in self.packages
        )
        return f"{versions} on {self.device}, {self.precision}, {counted(self.stack, 'model')} at once"

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return ({"what": name, "value": value} for name, value in vars(self).items())


@dataclass(frozen=True, repr=False)
class Weights(Shown):
    """The parameters and buffers of a trained model, by name."""

    file: ClassVar[str] = "weights.safetensors"
    tensors: Mapping[str, "Tensor"]

    def sentence(self) -> str:
        """One line for people."""
        numbers = sum(tensor.numel() for tensor in self.tensors.values())
        return f"{counted(len(self.tensors), 'tensor')}, {counted(numbers, 'number')}"

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return ({"name": name, "shape": list(tensor.shape)} for name, tensor in self.tensors.items())

    def to_bytes(self) -> bytes:
        import safetensors.torch

        return safetensors.torch.save({name: tensor.contiguous() for name, tensor in self.tensors.items()})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        import safetensors
        import safetensors.torch

        try:
            return cls(safetensors.torch.load(data))
        except safetensors.SafetensorError as error:
            raise CorruptFile(f"this is no safetensors file: {error}") from error


@dataclass(frozen=True)
class Timing(JsonArtifact):
    """Seconds, which differ from run to run: kept beside the result, not part of it."""

    file: ClassVar[str] = "timing.json"
    models: int
    """Computed together in this time."""
    seconds: float
    build_seconds: float = 0.0
    """Of these: making documents and models, compiling, capturing."""
    steps_per_second: float | None = None
    finished: float = 0.0
    """Seconds since 1970."""
