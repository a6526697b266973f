"""Finished runs in somebody's tracker. All is read from the run folders: while training nothing of this is imported.

A tracker is a module here with one function, `send(runs, out, project)`, and a line in `TRACKERS`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mixerscope.artifacts import Emergence, Scores, Verdicts
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.errors import UnknownName, UserError
from mixerscope.export.huggingface import refuse_taken
from mixerscope.results import RunResult
from mixerscope.spec import canonical_json
from mixerscope.spec.labels import flat, labels

TRACKERS = {
    "tensorboard": "tensorboard --logdir {out}",
    "wandb": "wandb sync {out}/wandb/offline-run-*",
    "trackio": "TRACKIO_DIR={out} trackio show --project {project}",
}
"""By the name of the package, which is the name of the extra too: how to look at what was sent."""


@dataclass(frozen=True)
class Tracked:
    """A run as trackers see it."""

    name: str
    """Of its folder: no other run has it."""
    label: str
    """For people."""
    run_id: str
    config: dict[str, str | int | float | bool]
    """Settings by path, and how large the model is."""
    series: tuple[tuple[int, dict[str, float]], ...]
    """By step: learning curve and emergence."""
    final: dict[str, float]
    """Scores of the trained model on fresh documents."""
    texts: dict[str, str]
    """Verdicts, or why there is none."""


def track(runs: Sequence[RunResult], to: str, out: Path, project: str = "mixerscope") -> str:
    """Sends finished runs to a tracker's files in a new folder; gives the command that shows them."""
    if to not in TRACKERS:
        raise UnknownName("tracker", to, TRACKERS)
    found = find_spec(to)
    if found is None or found.origin is None:  # a folder of that name, such as we write, is no package
        raise UserError(f"{to} is not installed here; `pip install 'mixerscope[{to}]'` installs it")
    refuse_taken(out)
    names = labels([run.training for run in runs], always=("model.width",))
    sent = [tracked(run, name) for run, name in zip(runs, names, strict=True)]
    import_module(f"mixerscope.export.trackers.{to}").send(sent, out, project)
    return TRACKERS[to].format(out=out, project=project)


def tracked(run: RunResult, label: str) -> Tracked:
    """What there is to say of a run."""
    verdicts, state = run.find(Verdicts), run.find(StateVerdict)
    texts = {f"verdict/{verdict.slot}": verdict.sentence() for verdict in verdicts or ()}
    if state is not None:
        texts["verdict/state"] = state.sentence()
    config = {path: _plain(value) for path, value in flat(run.training).items()}
    status = run.status
    config |= {"parameters": status.parameters, "state_size": status.state_size, "outcome": status.outcome}
    return Tracked(
        name=run.folder.path.resolve().name,
        label=label,
        run_id=run.run_id,
        config=config,
        series=_series(run),
        final=_final(run),
        texts=texts or {"verdict": f"none: {run.reason or 'nobody asked for one'}"},
    )


def _series(run: RunResult) -> tuple[tuple[int, dict[str, float]], ...]:
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for point in run.curve.points:
        by_step[point.step] |= {"dev/accuracy": point.accuracy, "dev/likelihood": point.likelihood}
        if point.loss is not None:
            by_step[point.step]["train/loss"] = point.loss
    emergence = run.find(Emergence)
    for look in emergence.points if emergence else ():
        if look.share is not None:  # else there was nothing to restore yet
            by_step[look.step][f"emergence/{look.slot}/{look.site}/{look.role}"] = look.share
    return tuple((step, by_step[step]) for step in sorted(by_step))


def _final(run: RunResult) -> dict[str, float]:
    scores = run.find(Scores)
    final: dict[str, float] = {}
    for name, estimate in scores.estimates.items() if scores else ():
        final |= {f"final/{name}": estimate.value}
        final |= {f"final/{name}.low": estimate.low, f"final/{name}.high": estimate.high}
    for verdict in run.find(Verdicts) or ():
        if verdict.share is not None:
            final[f"final/share.{verdict.slot}"] = verdict.share.value
        if verdict.guessing is not None:
            final["final/guessing"] = verdict.guessing
    return final


def _plain(value: Any) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else canonical_json(value)
