"""Comparing two models, runs or grids, or several seeds of each: what `compare` takes, turned into paired numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from mixerscope.analysis import Rules, hypotheses
from mixerscope.analysis.differences import NAMES, Comparison, Numbers, over_documents, over_paired_seeds
from mixerscope.analysis.proofs import taken_by, tested
from mixerscope.artifacts import Provenance
from mixerscope.artifacts.effects import JOINT, ORIGINAL, Cell, EffectTable, corrupted
from mixerscope.artifacts.proof import Proof
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions import (
    Adapted,
    Effects,
    Grid,
    Pairs,
    Route,
    effect_table,
    interchange,
    prove_cohort,
    unedited_effects,
)
from mixerscope.model import Model
from mixerscope.results import RunResult
from mixerscope.spec import canonical_json
from mixerscope.spec.labels import labels

ACCURACY, LIKELIHOOD = "accuracy", "likelihood"
UNEDITED = (ACCURACY, LIKELIHOOD, "gap")
"""What can be compared where nothing was edited."""
What = str | Cell | Sequence[str]
One = RunResult | Grid | Model | Adapted


def compare(
    a: One | Sequence[One] | Sequence[float],
    b: One | Sequence[One] | Sequence[float],
    what: What = ACCURACY,
    *,
    slot: str | None = None,
    pairs: Pairs | None = None,
    rules: Rules | None = None,
) -> Comparison:
    """The difference between two models, a - b, with its 95% interval, and whether it is noise.

    Two runs, two grids, or two models with the `pairs` to measure them on are compared document by document. Two lists
    of them, or of numbers, are seeds and compared seed by seed: the same seeds in both lists of runs, the same order in
    other lists. `what` is `accuracy`, `likelihood`, `gap` (of the likelihood, when `slot` is corrupted), a `Cell` (the
    share of the gap that its edit restores or breaks), or the name of a mechanism, or a route such as
    `("key", "value", "query")` (the share of the documents that take it); of numbers, what they are called:

        print(compare(mamba, attention).sentence())
        print(compare(mamba_seeds, attention_seeds, "induction").sentence())
    """
    if _is_list(a) != _is_list(b):
        raise UserError("a list of seeds is compared with a list of seeds, one model with one model")
    what = what if isinstance(what, str | Cell) else tuple(what)
    asked = _Asked(what, slot, pairs, Rules() if rules is None else rules)
    if not _is_list(a):
        return over_documents(asked.numbers(a), asked.numbers(b), _names(a, b))
    return _seeds(list(a), list(b), asked)  # pyright: ignore[reportArgumentType] - both are lists


def _is_list(side: Any) -> bool:
    return isinstance(side, Sequence) and not isinstance(side, str)


def _seeds(a: list[Any], b: list[Any], asked: "_Asked") -> Comparison:
    if not a or not b:
        raise UserError("there is nothing to compare: one of the lists of seeds is empty")
    if all(isinstance(one, int | float) for one in (*a, *b)):
        return over_paired_seeds(_said(asked.what), list(map(float, a)), list(map(float, b)), within=None)
    if all(isinstance(one, RunResult) for one in (*a, *b)):
        a, b = _by_seed(a, b)
    left, right = [asked.numbers(one) for one in a], [asked.numbers(one) for one in b]
    for one, other in zip(left, right, strict=False):
        if (one.documents, one.what) != (other.documents, other.what):
            raise UserError(
                "seeds to compare must be measured on the same documents, pair by pair: the same task, data_seed and"
                " pairs on both sides"
            )
    within = None if isinstance(asked.what, Cell) else 1.0
    values = [number.value for number in left], [number.value for number in right]
    return over_paired_seeds(left[0].what, *values, _names(a[0], b[0]), within)


def _by_seed(a: list[RunResult], b: list[RunResult]) -> tuple[list[RunResult], list[RunResult]]:
    """Both sides in the order of their seeds, which must be the same."""
    sides = []
    for runs in (a, b):
        by_seed = {(run.training["seed"], run.training["data_seed"]): run for run in runs}
        rest = [{k: v for k, v in run.record.identity.items() if k not in ("seed", "data_seed")} for run in runs]
        if len({canonical_json(identity) for identity in rest}) > 1 or len(by_seed) < len(runs):
            raise UserError("the runs of one list must differ in their seed, and in nothing else")
        sides.append(by_seed)
    if set(sides[0]) != set(sides[1]):
        first, second = (", ".join(str(seed) for seed, _ in sorted(side)) for side in sides)
        raise UserError(f"seeds {first} cannot be paired with seeds {second}; give runs of the same seeds")
    return tuple([side[seed] for seed in sorted(side)] for side in sides)  # pyright: ignore[reportReturnType] - of two


def _names(a: Any, b: Any) -> tuple[str, str]:
    """What tells two runs apart, the seed aside; others have no name."""
    if not (isinstance(a, RunResult) and isinstance(b, RunResult)):
        return NAMES
    first, second = labels([a.training, b.training], leave_out=("seed",))
    return (first, second) if first != second else NAMES


@dataclass(frozen=True)
class _Asked:
    """What is compared, of any model."""

    what: str | Cell | tuple[str, ...]
    slot: str | None
    pairs: Pairs | None
    rules: Rules

    def numbers(self, one: Any) -> Numbers:
        """Of one model, document by document."""
        if isinstance(one, RunResult):
            table = one.effects  # where nothing was patched, the error says why
            return self._of(table, one.find(Proof), one.stages["patch"].folder.read(Provenance).data_sha256)
        if isinstance(one, Grid):
            return self._of_grid(one)
        if isinstance(one, Model | Adapted):
            return self._of_model(one)
        raise UserError(f"{type(one).__name__} cannot be compared; give runs, grids, or models and their `pairs`")

    def _of_model(self, model: Model | Adapted) -> Numbers:
        if self.pairs is None:
            raise UserError("models are compared on documents: give `pairs`, as make_pairs makes them")
        if isinstance(self.what, Cell):
            return self._of_grid(interchange(model, self.pairs, [self.what]))
        if self.what in UNEDITED:
            original, others = unedited_effects(model, self.pairs)
            likelihoods = _likelihoods(original, others)
            return self._unedited(original.accuracy > 0, likelihoods, self.pairs.patched[0], self.pairs.sha256())
        table = effect_table(interchange(model, self.pairs), model)
        routes = [Route(slot, path) for slot, path in hypotheses(table, self.rules)]
        [proof] = prove_cohort([model], self.pairs, [routes], fresh_documents=0)
        return self._of(table, proof, self.pairs.sha256())

    def _of_grid(self, grid: Grid) -> Numbers:
        sha = grid.pairs.sha256()
        grid = grid.reading(grid.pairs.reads.names[0])
        likelihoods = _likelihoods(grid.original, grid.corrupted)
        if isinstance(self.what, Cell):
            if self.what not in grid.cells:
                raise UserError(f"this grid has no cell {_said(self.what)}; measure it in both models")
            measured = grid.cells[self.what]
            if measured.status == "invalid":
                raise UserError(f"the cell {_said(self.what)} is invalid: {measured.reason}")
            return self._share(self.what, measured.effects.likelihood, likelihoods, sha)
        if self.what not in UNEDITED:
            raise UserError(
                f"a grid alone does not tell which documents take {_said(self.what)}; compare runs that were proven, or"
                " models with `pairs`"
            )
        return self._unedited(grid.original.accuracy > 0, likelihoods, grid.pairs.patched[0], sha)

    def _of(self, table: EffectTable, proof: Proof | None, sha: str) -> Numbers:
        likelihoods = {name: table.likelihood(name) for name in table.unedited}
        if isinstance(self.what, Cell):
            if not table.has_documents(self.what):
                raise UserError(
                    f"this run did not keep the single documents of the cell {_said(self.what)}, only those at block"
                    " boundaries and movers; compare grids of the models, which have all"
                )
            return self._share(self.what, table.likelihood(self.what), likelihoods, sha)
        if self.what in UNEDITED:
            return self._unedited(table.correct(ORIGINAL), likelihoods, table.slots[0], sha)
        return self._taken(table, proof, sha)

    def _unedited(self, right: Tensor, likelihoods: dict[str, Tensor], first_slot: str, sha: str) -> Numbers:
        if self.what == ACCURACY:
            return Numbers(ACCURACY, sha, right, counted=True)
        if self.what == LIKELIHOOD:
            return Numbers("likelihood of the answer", sha, likelihoods[ORIGINAL])
        slot = first_slot if self.slot is None else self.slot
        lost = likelihoods[ORIGINAL] - _corrupted(likelihoods, slot)
        return Numbers(f"gap when the {slot} is corrupted", sha, lost)

    def _share(self, cell: Cell, edited: Tensor, likelihoods: dict[str, Tensor], sha: str) -> Numbers:
        clean, other = likelihoods[ORIGINAL], _corrupted(likelihoods, cell.slot)
        moved = edited - other if cell.direction == "restore" else clean - edited
        return Numbers(f"share of the gap, {_said(cell)}", sha, moved, clean - other)

    def _taken(self, table: EffectTable, proof: Proof | None, sha: str) -> Numbers:
        """The documents that count, and those of them that take the route."""
        slot, *_ = route = self._route(table)
        if proof is None:
            raise UserError("no route of this run was put to the proof; the stage `prove` finds out who takes which")
        both = tested(proof, slot, [path for of, path in hypotheses(table, self.rules) if of == slot])
        if not both:
            raise UserError(f"in one of the models no route of the {slot} was worth a proof, so no document takes any")
        counts = next(tried.gap for tried in proof.routes if (tried.slot, tried.carriers) == (slot, next(iter(both))))
        end = table.facts.read[0]  # else there were no hypotheses
        ways = {path: _collapsed((slot, *(() if table.facts.one_block else path), end)) for path in both}
        taken = taken_by(both, self.rules.carries, table, proof.unasked)
        takes = torch.zeros(len(counts), dtype=torch.bool)
        takes[counts] = torch.tensor([path is not None and ways[path] == route for path in taken], dtype=torch.bool)
        for unmoved in proof.unmoved:  # they are answered by no route of the slot
            counts = counts | unmoved.whatever(self.rules.reads) if unmoved.slot == slot else counts
        return Numbers(f"documents that take {' → '.join(route)}", sha, takes, counts, counted=True)

    def _route(self, table: EffectTable) -> tuple[str, ...]:
        named = {mechanism.name: mechanism.route for mechanism in table.facts.mechanisms}
        if isinstance(self.what, str) and self.what not in named:
            raise UnknownName("quantity or mechanism", self.what, [*UNEDITED, *named])
        route = named[self.what] if isinstance(self.what, str) else self.what
        assert isinstance(route, tuple), "cells are compared otherwise"
        if not route or route[0] not in table.slots:
            slots = ", ".join(table.slots)
            raise UserError(f"a route begins at a slot that was patched ({slots}), as key → value → query does")
        if self.slot not in (None, route[0]):
            raise UserError(f"{_said(self.what)} is a route of the {route[0]}, not of the {self.slot}")
        if table.facts.read and route[-1] != table.facts.read[0]:
            raise UserError(f"a route ends where the answer is read, at the {table.facts.read[0]}, not at {route[-1]}")
        tried = {cell.role for cell in table.cells if JOINT not in cell.role}
        for place in route[1:]:  # of another one nobody knows whether a document takes it
            if place not in tried:
                raise UnknownName("place that was tried", place, tried)
        return _collapsed(route)


def _likelihoods(original: Effects, others: Mapping[str, Effects]) -> dict[str, Tensor]:
    """As a table names them."""
    return {ORIGINAL: original.likelihood} | {corrupted(slot): effects.likelihood for slot, effects in others.items()}


def _corrupted(likelihoods: Mapping[str, Tensor], slot: str) -> Tensor:
    if corrupted(slot) not in likelihoods:
        known = [name.removeprefix(corrupted("")) for name in likelihoods if name.startswith(corrupted(""))]
        raise UnknownName("slot that was corrupted", slot, known)
    return likelihoods[corrupted(slot)]


def _collapsed(carriers: tuple[str, ...]) -> tuple[str, ...]:
    """Each place once, for as long as the information stays there."""
    return (*carriers[:1], *(after for before, after in pairwise(carriers) if before != after))


def _said(what: str | Cell | tuple[str, ...]) -> str:
    if isinstance(what, Cell):
        return f"{what.direction} {what.role} at {what.site}, {what.slot} corrupted"
    return what if isinstance(what, str) else " → ".join(what)
