"""What runs that differ in their seed alone say together, in a line each."""

import copy
from collections.abc import Sequence
from typing import Any

from mixerscope.analysis import over_seeds
from mixerscope.artifacts import Verdict
from mixerscope.results import RunResult
from mixerscope.spec import id_of
from mixerscope.spec.labels import labels


def seed_lines(judged: Sequence[tuple[RunResult, Sequence[Verdict]]], tuned: bool = False) -> list[str]:
    """For every training of which there are several seeds, and every slot, the verdicts of all of them together.

    A run without verdicts counts as a seed without one, a run that is there twice as one. `tuned`: each seed has the
    learning rate that was best for it.
    """
    by_training: dict[str, dict[int, Sequence[Verdict]]] = {}
    trainings: dict[str, dict[str, Any]] = {}
    for run, verdicts in judged:
        key = _without_seed(run, tuned)
        by_training.setdefault(key, {})[run.training["seed"]] = verdicts
        trainings[key] = run.training
    lines: list[str] = []
    for name, seeds in zip(labels(list(trainings.values()), leave_out=_left_out(tuned)), by_training.values()):
        slots = list(dict.fromkeys(verdict.slot for verdicts in seeds.values() for verdict in verdicts))
        for slot in slots if len(seeds) > 1 else ():
            found = [next((v for v in verdicts if v.slot == slot), None) for verdicts in seeds.values()]
            which = f", {slot} corrupted" if len(slots) > 1 else ""
            lines.append(f"{name}{which}: {over_seeds(found).sentence()}")
    return lines


def _left_out(tuned: bool) -> tuple[str, ...]:
    return ("seed", "train.lr") if tuned else ("seed",)


def _without_seed(run: RunResult, tuned: bool) -> str:
    identity = copy.deepcopy(run.record.identity)
    identity.pop("seed", None)
    if tuned:
        identity["train"]["settings"].pop("lr", None)
    return id_of(identity)
