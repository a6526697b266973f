"""What a sweep found: of runs that differ in their learning rate alone, the one that learned best."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from mixerscope.runs import RunResult, load_run, run_folder
from mixerscope.spec import RunSpec
from mixerscope.sweep.text import aligned


def best_runs(results: Iterable[RunResult]) -> list[RunResult]:
    """Per spec without its learning rate, in order: the run with the highest accuracy on dev documents.

    Ties go to the likelihood there and then to the lower rate. Where all runs diverged there is none.
    """
    tuned: dict[str, list[RunResult]] = {}
    for result in results:
        if result.json("status")["outcome"] != "diverged":
            spec = result.spec
            tuned.setdefault(spec.changed(train=spec.train.changed(lr=1.0)).run_id, []).append(result)
    return [max(rivals, key=_merit) for rivals in tuned.values()]


def finished_runs(runs: Iterable[RunSpec], root: Path) -> list[RunResult]:
    """Those of the runs that have been made, in order."""
    folders = [run_folder(run, root) for run in runs]
    return [load_run(folder.path) for folder in folders if folder.finished]


def _merit(result: RunResult) -> tuple[float, float, float]:
    last = result.curve()[-1]
    return last["accuracy"], last["likelihood"], -result.spec.train.lr


def best_lines(results: Sequence[RunResult]) -> list[str]:
    """The mechanism of each, as measured on test documents."""
    if not results:
        return []
    header = ("architecture", "d", "seed", "best lr", "accuracy", "likelihood", "mechanism", "route")
    return aligned([header, *(_row(result) for result in results)])


def _row(result: RunResult) -> tuple[str, ...]:
    spec, scores = result.spec, result.json("evaluation")["estimates"]
    verdict = next(iter(result.json("verdicts").values()))
    return (
        spec.model.architecture,
        str(spec.model.width),
        str(spec.seed),
        f"{spec.train.lr:g}",
        *(f"{scores[f'original.{metric}']['value']:.1%}" for metric in ("accuracy", "likelihood")),
        verdict["mechanism"],
        " -> ".join(verdict["route"]),
    )
