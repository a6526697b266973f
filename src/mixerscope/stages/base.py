"""What a stage is: one thing that is done with trained models, whose fields are its settings.

A stage registers under a name as mixers and tasks do, from outside too. It gets trained models of one shape
and gives, for each, the artifacts it declares, or says why there are none. It knows neither folders nor other stages.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from torch import Tensor

from mixerscope.artifacts import Artifact
from mixerscope.errors import UserError
from mixerscope.machine import Machine
from mixerscope.model import Model, build_model
from mixerscope.spec import RunSpec, Spec
from mixerscope.tasks import Task
from mixerscope.training import Observer

A = TypeVar("A", bound=Artifact)
StageProgress = Callable[[int, int], None]
"""Called with the work done and the work in all."""


@dataclass(frozen=True)
class Impossible:
    """What a stage gives in place of artifacts: a model that cannot be measured is a result, and this says why."""

    reason: str
    artifacts: tuple[Artifact, ...] = ()
    """What could be had all the same."""
    documents: str = ""
    """As in `Done`."""


@dataclass(frozen=True)
class Done:
    """What a stage gives for one model."""

    artifacts: tuple[Artifact, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know of how it was done."""
    documents: str = ""
    """Hash of what was measured, for the provenance."""


Result = Done | Impossible


@dataclass
class Trained:
    """Trained models of one shape, as a stage sees them."""

    size: int
    machine: Machine
    parse: Callable[[], Sequence[RunSpec]]
    """Makes the specs; called once, and only if a stage wants them: components need not be at hand otherwise."""
    build: Callable[[], list[Model]]
    """Makes the models; called once, and only if a stage wants them."""
    read: Callable[[int, str, type[Any]], Any]
    """A member's artifact of an earlier stage, by the member's number, the stage's name and the artifact's class."""
    find: Callable[[int, str, type[Any]], Any] = field(default=lambda index, stage, artifact: None)
    """The same of a stage that need not be there, or may have been impossible: None then."""
    make_fresh: Callable[[], list[Model]] | None = None
    """Makes the same models with weights that nobody trained; left out, as their specs say."""
    progress: StageProgress = field(default=lambda done, total: None)

    def fresh(self) -> list[Model]:
        """Models of the same shapes as nobody trained them, where the trained ones are."""
        if self.make_fresh is not None:
            return self.make_fresh()
        made = [build_model(one.model, one.task.vocab_size, one.seed) for one in self.specs]
        return [model.to(self.machine.device).eval() for model in made]

    def __len__(self) -> int:
        return self.size

    @cached_property
    def specs(self) -> Sequence[RunSpec]:
        """Of the members, in order."""
        return self.parse()

    @property
    def first(self) -> RunSpec:
        """What all members have in common can be read off any of them."""
        return self.specs[0]

    @cached_property
    def models(self) -> list[Model]:
        """The trained models, where they are to be computed."""
        return self.build()


class Watch:
    """Looks into models while they train; see `Stage.watch`."""

    steps: tuple[int, ...]
    """After how many steps."""

    @abstractmethod
    def look(self, step: int, weights: Mapping[int, dict[str, Tensor]]) -> None:
        """Called with the steps done and the weights, by member, of those still in training."""

    @abstractmethod
    def results(self, ended: Sequence[tuple[int, Mapping[str, Tensor]]]) -> list[Result]:
        """What was found, member by member, given the steps each was trained for and its last weights."""

    def kept(self) -> Any:
        """What was seen so far, as JSON, for a checkpoint of the training; None where that cannot be said, and then an
        interrupted training begins anew."""
        return None

    def restore(self, kept: Any) -> None:
        """Goes on from what `kept` gave."""
        raise NotImplementedError(f"{type(self).__name__} says what it has seen and has no `restore`")

    def observer(self) -> Observer:
        return Observer(self.steps, self.look)


class Stage(Spec):
    """Base of all stages. Fields are settings; each has a default, and an unknown one is an error."""

    revision: ClassVar[int] = 1
    """Raised when what the stage computes or a default changes, so that results of before keep their ids."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of stages whose artifacts it reads."""
    may_need: ClassVar[tuple[str, ...]] = ()
    """The same of stages that it can do without."""
    uses_model: ClassVar[bool] = True
    """Whether it looks at the model itself; without that, stored results can be worked on again anywhere."""
    watches: ClassVar[bool] = False
    """Whether it looks into training (`watch`) and not at what came out of it (`run`)."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = ()
    """What it writes."""

    def for_task(self, task: Task) -> Self:
        """The same settings in the one way of writing them that this task has, or `UserError` if they do not fit."""
        return self

    def check(self, spec: RunSpec) -> None:
        """Refuses what could only fail after training."""

    def draw(self, spec: RunSpec) -> Any:
        """The documents that it looks at, or `UserError` where they cannot be had, which is asked before training."""
        return None

    def run(self, trained: Trained) -> list[Result]:
        """What is found, member by member."""
        raise NotImplementedError(f"{type(self).__name__} has no `run`")

    def watch(self, spec: RunSpec, machine: Machine) -> Watch:
        """Something that looks into the training of a cohort whose members are like `spec` but for seed and rate."""
        raise UserError(f"{type(self).__name__} does not watch training")
