"""`mixerscope judge`: verdicts of finished runs again, from stored effects, with other rules if asked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mixerscope.cli.console import remarks, results
from mixerscope.errors import FAILED, FINE

if TYPE_CHECKING:
    from mixerscope.stages import Stage
    from mixerscope.stages.judge import Judge

TRACK = "stages.track."
"""How settings begin that are of verdicts on tracked states."""


def judge(
    folder: Path,
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    fresh: Annotated[bool, Parameter(negative=())] = False,
    strict: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Name the mechanisms of finished runs again, from what their stages stored: no model is built, nothing is trained.

    Verdicts by other rules are kept beside the others, each under an id of its own. Tracked states are judged too.

    Parameters
    ----------
    folder
        A run's folder, or one that holds run folders.
    set_
        path=value, such as rules.carries=0.7, or stages.track.rules.follows=0.8 for tracked states; may be given
        several times.
    fresh
        Judge again even if a verdict by these rules is there.
    strict
        Refuse a folder in which a run is damaged; else it is named and left out, and the exit code is 1.
    """
    from mixerscope.cli.damage import sound_runs
    from mixerscope.cli.verdicts import verdict_table
    from mixerscope.results import RunResult
    from mixerscope.runs import redo

    stages = _stages_of(set_)
    found: list[RunResult] = []
    without: list[str] = []
    runs, left_out = sound_runs(folder, strict)
    for result in runs:
        known = {name: stage for name, stage in stages.items() if all(need in result.stages for need in stage.needs)}
        again = result
        for name, stage in known.items():
            again = redo(again, name, stage, fresh)
        if known:
            found.append(again)
        else:
            without.append(result.folder.path.name)
    if found:
        results().print(verdict_table(found))
    for name in without:
        said = f"{name} was not patched, nor looked at for a state, so there is nothing to judge"
        remarks().print(said, markup=False, soft_wrap=True)
    results().print(f"judged {len(found)} run{'s' if len(found) != 1 else ''}", markup=False)
    return FAILED if left_out else FINE


def _stages_of(words: list[str] | None) -> "dict[str, Stage]":
    """Both kinds of verdict, by their stages, with the rules that a person typed for each."""
    from mixerscope.spec import parse, parse_settings
    from mixerscope.stages.track import TrackStates

    of_states: dict[str, Any] = {}
    others: list[str] = []
    for word in words or ():
        if word.startswith(TRACK):
            for path, value in parse_settings([word.removeprefix(TRACK)]).items():
                _put(of_states, path, value)
        else:
            others.append(word)
    return {"judge": judge_of(others), "track": parse(TrackStates, of_states)}


def judge_of(words: list[str] | None) -> "Judge":
    """The stage with the rules that a person typed."""
    from mixerscope.spec import parse, parse_settings
    from mixerscope.stages.judge import Judge

    settings: dict[str, Any] = {}
    for path, value in parse_settings(words).items():
        _put(settings, path, value)
    return parse(Judge, settings)


def _put(settings: dict[str, Any], path: str, value: Any) -> None:
    """`rules.carries` into nested settings; whether they exist is for the spec to say."""
    from mixerscope.errors import UserError

    path = path.removeprefix("stages.judge.")
    *parents, last = (path if path.startswith("rules") else f"rules.{path}").split(".")
    here = settings
    for part in parents:
        here = here.setdefault(part, {})
        if not isinstance(here, dict):
            raise UserError(f"cannot set {path}: {part} is no object")
    here[last] = value
