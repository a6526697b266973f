"""What a sweep found: of runs that differ in their learning rate alone, the one that learned best.

All of it is read from stored results; no model is built, and none of the components need be at hand.
"""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path

from mixerscope.artifacts import Scores, Verdicts
from mixerscope.results import RunResult, Runs, load_run, run_folder
from mixerscope.runs import seems_finished
from mixerscope.spec import RunSpec, id_of
from mixerscope.spec.labels import columns
from mixerscope.sweep.text import aligned

OWN_COLUMNS = ("seed", "train.lr")
"""Settings that the table of best runs has columns for anyway."""


def best_runs(results: Iterable[RunResult]) -> Runs:
    """Per training without its learning rate, in order: the run with the highest accuracy on dev documents.

    Ties go to the likelihood there and then to the lower rate. Whether a model could be patched does not matter here.
    Where all runs diverged there is none.
    """
    tuned: dict[str, list[RunResult]] = {}
    for result in results:
        if result.status.outcome != "diverged":
            tuned.setdefault(_without_rate(result), []).append(result)
    return Runs(max(candidates, key=_merit) for candidates in tuned.values())


def finished_runs(runs: Iterable[RunSpec], root: Path) -> Runs:
    """Those of the runs that have been made with all their stages, in order."""
    return Runs(load_run(run_folder(run, root).path, stages=run) for run in runs if seems_finished(run, root))


def _without_rate(result: RunResult) -> str:
    """The id of a training whose learning rate is nobody's business."""
    identity = copy.deepcopy(result.record.identity)
    identity["train"]["settings"].pop("lr", None)
    return id_of(identity)


def _merit(result: RunResult) -> tuple[float, float, float]:
    last = result.curve.last
    assert last is not None, "training that does not diverge is evaluated"
    return last.accuracy, last.likelihood, -result.training["train"]["lr"]


def best_lines(results: Sequence[RunResult]) -> list[str]:
    """The mechanism of each, as measured on test documents; below them, why some could not be measured."""
    if not results:
        return []
    settings = columns([result.training for result in results], ("model.width",), OWN_COLUMNS)
    header = ("architecture", *settings[0], "seed", "best lr", "accuracy", "likelihood", "mechanism", "route")
    rows = [_row(result, told.values()) for result, told in zip(results, settings, strict=True)]
    reasons = [f"{result.folder.path.name}: {' '.join(result.reason.split())}" for result in results if result.reason]
    return [*aligned([header, *rows]), *reasons]


def _row(result: RunResult, settings: Iterable[str]) -> tuple[str, ...]:
    training, scores, verdicts = result.training, result.find(Scores), result.find(Verdicts)
    measured = ("–", "–") if scores is None else (f"{scores.accuracy.value:.1%}", f"{scores.likelihood.value:.1%}")
    verdict = next(iter(verdicts), None) if verdicts is not None else None
    state = result.state_verdict.name if result.state_verdict else ""
    return (
        training["model"]["architecture"],
        *settings,
        str(training["seed"]),
        f"{training['train']['lr']:g}",
        *measured,
        # What comes after the colon is for the line below the table.
        verdict.mechanism if verdict is not None else state or result.reason.partition(":")[0] or "not judged",
        " -> ".join(verdict.route) if verdict is not None else "",
    )
