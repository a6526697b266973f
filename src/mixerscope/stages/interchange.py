"""Is the state carried on, or worked out anew at every position? Another state is written in the middle: a stage."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from mixerscope.artifacts import Artifact, Earlier, Interchanged, Interchanges
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.states import is_state
from mixerscope.interventions.tagging import demand_states
from mixerscope.interventions.transplant import (
    Means,
    answers_after,
    carried_states,
    columns,
    demand_settled,
    nearest_held,
    unwritten_mixers,
    written_boundaries,
)
from mixerscope.model import build_model
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages.base import Done, Result, Stage, Trained
from mixerscope.stages.state_pairs import (
    BOTH,
    SPARE,
    STATES,
    STREAM,
    StatePairs,
    demand_middle,
    draw_pairs,
    earliest,
    early_and_late,
    equally_long,
    following,
    middle,
    other_place,
    right_behind,
)
from mixerscope.tasks import UNSCORED, Batch, StateTask

INNER = "inner"


class InterchangeStates(Stage):
    """Where in the document the other state is written, and on how many pairs."""

    revision: ClassVar[int] = 3
    """2: what is held late is put beside what is held early. 3: which mixers may hold what could not be written, and of
    how many answers the shares by distance are."""
    artifacts: ClassVar[tuple[type[Artifact], ...]] = (Interchanges,)

    documents: PositiveInt = 2048
    """From which the means of the states are taken."""
    pairs: PositiveInt = 256
    """Documents that get another one's state."""
    position: int | None = Field(default=None, ge=1)
    """After which input; left out, the one in the middle."""
    singly: bool = True
    """Whether every boundary and every recurrent state is written alone too."""

    def check(self, spec: RunSpec) -> None:
        task = demand_states(spec.task)
        demand_middle(task, self.position)
        demand_settled(build_model(spec.model, task.vocab_size, 0), earliest(task, self.position), task.length)

    def draw(self, spec: RunSpec) -> tuple[Batch, int, Tensor]:
        """Those from which means are taken, at which other position too, and the states that are frequent at both.
        Pairs are drawn when models are there: that takes longer, and fails nowhere else."""
        task = equally_long(demand_states(spec.task))
        at = middle(task, self.position)
        known = task.sample(self.documents, stream(spec.data_seed, "interchange means"), "test")
        return known, *other_place(task.states(known)["state"], at, task.automaton.num_states)

    def run(self, trained: Trained) -> list[Result]:
        spec, members = trained.first, Members(trained.models)
        task, (known, other, usable) = equally_long(demand_states(spec.task)), self.draw(spec)
        at = middle(task, self.position)
        pairs = draw_pairs(task, self.pairs, at, usable, stream(spec.data_seed, "interchange pairs"))
        states, count = task.states(known)["state"], task.automaton.num_states
        means = {
            how: Means.over(columns(members, known, place), states[:, place].to(device_of(members.first)), count)
            for how, place in (("shift", at), ("moved", other))
        }
        clean = answers_after(members, pairs.base, at)
        asked = (pairs.base.targets != UNSCORED) & (torch.arange(pairs.base.tokens.shape[1]) >= at)
        right = ((clean == pairs.base.targets) & asked).sum((1, 2)).double() / asked.sum()
        cells: list[list[Interchanged]] = [[] for _ in trained.models]
        todo = list(self._cells(members, pairs, means, at))
        for done, (place, how, written) in enumerate(todo):
            said = answers_after(members, pairs.base, at, written)
            for own, one in zip(cells, said, strict=True):
                told = following(one, pairs, at)
                own.append(Interchanged(place, how, told.now, told.later, told.kept, told.by_distance, told.told))
            trained.progress(done + 1, len(todo))
        earlier = self._earlier(members, task, known, spec.data_seed)
        few = pairs.base.tokens.to(device_of(members.first))
        unwritten = [tuple(unwritten_mixers(model, few)) for model in trained.models]
        sha = f"{known.sha256()} {pairs.base.sha256()} {pairs.source.sha256()}"
        return [
            Done((Interchanges(at, other, len(pairs.base), accuracy, tuple(own), one, said),), documents=sha)
            for own, accuracy, one, said in zip(cells, right.tolist(), earlier, unwritten, strict=True)
        ]

    def _cells(
        self, members: Members, pairs: StatePairs, means: Mapping[str, Means], at: int
    ) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
        """Every place and way of writing, with what is written where."""
        model = members.first
        boundaries, states = written_boundaries(model), carried_states(model)  # type: ignore[arg-type]
        places = {STREAM: boundaries, **({STATES: states, BOTH: [*boundaries, *states]} if states else {})}
        if len(boundaries) > 1:
            places[INNER] = boundaries[:-1]
        if self.singly:
            places |= {site: [site] for site in [*boundaries, *states]}
        base, source = columns(members, pairs.base, at), columns(members, pairs.source, at)
        for place, sites in places.items():
            for how, mean in means.items():
                yield place, how, {site: base[site] + mean.shift(site, *pairs.states) for site in sites}
            yield place, "swap", {site: source[site] for site in sites}

    def _earlier(self, members: Members, task: StateTask, known: Batch, seed: int) -> Sequence[Earlier | None]:
        """What is held late, in place of it the nearest of what is held early. A memory that is the state, in whatever
        code, is met again and again, so answers stay right; one that holds inputs, or how many there were, is not.
        Where it is met again, behaviour at any length is that at this one."""
        nothing = [None] * len(members)
        found = early_and_late(task, known, self.pairs, stream(seed, "interchange late"))
        if found is None or not carried_states(members.first):
            return nothing
        early, late, drawn = found
        # By what is held alone: the stream has the answer in it, by which any two of one state would be near.
        of_late, of_early = (
            {site: x for site, x in columns(members, batch, at).items() if is_state(site)}
            for batch, at in ((drawn, late), (known[: SPARE * self.pairs], early))
        )
        held = nearest_held(of_late, of_early)
        said = answers_after(members, drawn, late, held)
        return [Earlier(early, late, right_behind(own, drawn, late)) for own in said]
