"""The vectors that probes and erasure look at: a few positions of many documents, with what is true there."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.tagging import demand_states
from mixerscope.probing.ridge import Parts, balanced_share, both_parts_by_document
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.tasks import UNSCORED, Batch, StateTask
from mixerscope.tasks.state_tracking import MOST_INPUTS
from mixerscope.training.objective import answer_correct

ANSWER = "answer"
"""The label that the task asks for."""
MOST_CLASSES = 64
"""Of labels that are probed without being asked for."""


@dataclass(frozen=True)
class Vectors:
    """Positions of documents; [m] runs over documents, and over the positions of each."""

    batch: Batch
    positions: Tensor
    """[n, p]"""
    labels: Mapping[str, Tensor]
    """Name to [m]."""
    answers: Tensor
    """[m] the label that is asked for, whether it is among these or not."""
    hard: Tensor
    """[m] whether the last token alone does not tell the answer."""
    parts: Parts
    """Only positions that are asked about are in any."""
    unseen: Parts
    """Of those to which no erasure is fitted: for a fresh probe of what it leaves."""

    def right(self, logits: Tensor) -> Tensor:
        """[k, m] whether answers are right, by the logits [k, n, p, v] at these positions; where nothing is asked, no
        answer is."""
        targets = self.batch.targets.gather(1, self.positions).to(logits.device).expand(logits.shape[:-1])
        return (answer_correct(logits, targets.clamp(min=0)) & (targets >= 0)).flatten(1).cpu()

    def ceiling(self, right: Tensor, scored: Tensor) -> list[float]:
        """Balanced accuracy of the models' own answers, on the judging vectors where `scored` [m] holds."""
        judged = self.parts.judge & scored
        return balanced_share(right[:, judged].double(), self.answers[judged]).tolist()


def label_names(task: StateTask, asked: tuple[str, ...] = ()) -> list[str]:
    """The labels to look at: those asked for, else the answer and all that have few classes."""
    sizes = {name: int(label.max()) + 1 for name, label in task.automaton.labels.items()}
    known = [ANSWER, "state", *sizes]
    for name in asked:
        if name not in known:
            raise UnknownName(f"label of {type(task).__name__}", name, known)
    if asked:
        return list(asked)
    others = {"state": task.automaton.num_states, **sizes}
    same = [name for name in others if torch.equal(label_of_states(task, name), task.automaton.answer)]
    return [ANSWER, *(name for name, size in others.items() if size <= MOST_CLASSES and name not in same)]


def label_of_states(task: StateTask, name: str) -> Tensor:
    """[s] a label of every state."""
    automaton = task.automaton
    every = torch.arange(automaton.num_states)
    return {ANSWER: automaton.answer, "state": every, **automaton.labels}[name]


def demand_first(task: StateTask, first: int | None) -> None:
    """Refuses to look behind the end of documents."""
    if first is not None and first > task.length:
        raise UserError(f"first = {first} leaves no position to look at in documents of {task.length}")


def demand_places(spec: RunSpec, times: int, setting: str) -> None:
    """Refuses documents that have more positions than a model can learn, before it is trained."""
    task = demand_states(spec.task)
    if times * task.length > MOST_INPUTS:
        raise UserError(
            f"documents {times} times as long have {times * task.length:,} inputs, of {MOST_INPUTS:,} at most; make"
            f" {setting} smaller"
        )
    longest = task.at_length(times * task.length).max_length
    if spec.model.positions == "learned" and longest > spec.model.max_length:
        raise UserError(
            f"documents {times} times as long have {longest} tokens, and the model learns positions for"
            f" {spec.model.max_length}; make model.max_length larger, or {setting} smaller"
        )


def draw_vectors(
    task: StateTask, documents: int, each: int, first: int | None, names: list[str], data_seed: int
) -> Vectors:
    """`each` random positions of each document that are asked about, from input `first` on."""
    first = task.length // 2 if first is None else first
    drawn = _draw(task, documents, each, slice(first, None), names, stream(data_seed, "vectors"))
    if not all(bool(part.any()) for part in vars(drawn.parts).values()):
        raise UserError(
            f"{documents} documents of {task.length} inputs are too few different ones, or too seldom asked about from"
            f" input {first} on, to fit, choose and judge probes with; {_help(task, documents)}"
        )
    return drawn


def _help(task: StateTask, documents: int) -> str:
    """What to do about too few different documents."""
    most = len(task.automaton.inputs) ** task.length
    return "make them longer" if most <= documents else "take more, or make them longer"


def draw_vectors_at(task: StateTask, documents: int, at: int, names: list[str], data_seed: int) -> Vectors:
    """The position behind one input of each document; those where nothing is asked are in no part."""
    return _draw(task, documents, 1, slice(at, at + 1), names, stream(data_seed, "vectors", str(at)))


def _draw(task: StateTask, documents: int, each: int, within: slice, names: list[str], rng: torch.Generator) -> Vectors:
    task = task.at_length(task.length).changed(only_last=False)
    each = min(each, task.max_length)
    batch = task.sample(documents, rng, "test")
    asked = torch.zeros_like(batch.targets, dtype=torch.bool)
    asked[:, within] = batch.targets[:, within] != UNSCORED
    order = (torch.rand(asked.shape, generator=rng) + asked).argsort(1, descending=True)
    positions = order[:, :each].sort(1).values
    states = task.states(batch)["state"].gather(1, positions).flatten()
    valid = asked.gather(1, positions).flatten()
    parts, unseen = (
        Parts(one.fit & valid, one.choose & valid, one.judge & valid)
        for one in both_parts_by_document(batch.tokens, each, rng)
    )
    hard = task.hard(task.inputs_of(batch.tokens)).gather(1, positions).flatten()
    labels = {name: label_of_states(task, name)[states] for name in names}
    return Vectors(batch, positions, labels, label_of_states(task, ANSWER)[states], hard, parts, unseen)
