"""One of the measured pairs of documents, made again. It is shown only where it is what was measured."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from mixerscope.artifacts import Provenance
from mixerscope.artifacts.effects import ORIGINAL, corrupted
from mixerscope.errors import UserError
from mixerscope.interventions import Pairs, make_pairs
from mixerscope.results import RunResult
from mixerscope.spec import RunSpec
from mixerscope.tasks import Task

SHORT = 28
"""Tokens that are shown without a gap."""
NEARLY = 0.9
"""Of what the costliest pair costs: from here on a clearer one is preferred."""


@dataclass(frozen=True)
class Token:
    text: str
    roles: tuple[str, ...]
    """More than one where roles coincide: what follows the last pair is next key and divider."""
    changed: bool


@dataclass(frozen=True)
class Example:
    """A document, the same with a token changed, by slot, and what each model made of them."""

    tokens: tuple[Token, ...]
    corrupted: dict[str, tuple[Token, ...]]
    answer: str
    asked_at: int
    likelihoods: list[tuple[str, float, dict[str, float]]]
    """Model, likelihood of the answer, and the same with each slot corrupted."""
    among: int
    """Documents among which it was chosen."""

    @property
    def columns(self) -> list[int | None]:
        """Positions that are shown: of a long document those with a role and their neighbours; None for a gap."""
        length = len(self.tokens)
        if length <= SHORT:
            return [*range(length)]
        marked = [i for i, token in enumerate(self.tokens) if token.roles] + [self.asked_at]
        near = sorted({i + by for i in [0, *marked] for by in (-1, 0, 1) if 0 <= i + by < length})
        found: list[int | None] = []
        for before, at in zip([-1, *near], [*near, length]):
            found += [None] * (at > before + 1) + [at] * (at < length)
        return found


class Patched(Protocol):
    """What is known of a model that may have been patched."""

    @property
    def run(self) -> RunResult: ...
    @property
    def label(self) -> str: ...
    @property
    def first(self) -> Mapping[str, Sequence[float]]: ...


def example_of(models: Iterable[Patched]) -> Example | None:
    """A pair that the first of the patched models saw whose documents this code still makes, else None. Of the first
    pairs, one on which corrupting costs the models much, as on others some model may lose nothing, and whose roles
    stand apart, as where two of them coincide the picture of a route cannot show which one it goes by."""
    patched = [(model, _measured(model.run)) for model in models if model.first]
    no_longer: set[str] = {""}
    for model, sha256 in patched:
        spec = known_spec(model.run) if sha256 not in no_longer else None
        if spec is None:
            continue
        pairs = make_pairs(spec.task, spec.stages["patch"], spec.data_seed)
        if pairs.sha256() == sha256:
            saw_it = [(other.label, other.first) for other, theirs in patched if theirs == sha256]
            return _example(spec.task.single_query(), pairs, saw_it)
        no_longer.add(sha256)
    return None


def _measured(run: RunResult) -> str:
    """Hash of the documents that were patched; empty where that is not known."""
    patch = run.stages.get("patch")
    return patch.folder.read(Provenance).data_sha256 if patch and patch.folder.holds(Provenance) else ""


def known_spec(run: RunResult) -> RunSpec | None:
    """None where the code of some component is not at hand, or is not what it was."""
    try:
        return run.spec
    except (UserError, ImportError):
        return None


def _example(task: Task, pairs: Pairs, saw_it: Sequence[tuple[str, Mapping[str, Sequence[float]]]]) -> Example:
    batch = pairs.original
    count = min(len(values) for _, first in saw_it for values in first.values())
    costs = [sum(_costs(first, slot, i) for _, first in saw_it for slot in pairs.patched) for i in range(count)]
    enough = max(costs) - (1 - NEARLY) * abs(max(costs))
    apart = [len({int(at[i]) for at in batch.roles.values()}) for i in range(count)]
    one = max((i for i in range(count) if costs[i] >= enough), key=lambda i: (apart[i], costs[i]))
    roles: dict[int, list[str]] = defaultdict(list)
    for name, at in batch.roles.items():
        roles[int(at[one])].append(name)
    original = batch.tokens[one].tolist()

    def tokens(ids: list[int]) -> tuple[Token, ...]:
        return tuple(Token(task.symbol(t), tuple(roles[i]), t != original[i]) for i, t in enumerate(ids))

    read, answer = pairs.reads.positions[:, 0], pairs.reads.targets[:, 0]  # what likelihoods are those of
    return Example(
        tokens=tokens(original),
        corrupted={slot: tokens(pairs.corrupted[slot].tokens[one].tolist()) for slot in pairs.patched},
        answer=task.symbol(int(answer[one])),
        asked_at=int(read[one]),
        likelihoods=[
            (label, first[ORIGINAL][one], {slot: first[corrupted(slot)][one] for slot in pairs.patched})
            for label, first in saw_it
        ],
        among=count,
    )


def _costs(first: Mapping[str, Sequence[float]], slot: str, document: int) -> float:
    lost = first[ORIGINAL][document] - first[corrupted(slot)][document]
    return lost if isfinite(lost) else 0.0
