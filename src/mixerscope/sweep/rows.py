"""An attempt at a cohort as a row of the table of seconds."""

import traceback
from collections.abc import Sequence
from pathlib import Path

from mixerscope.artifacts import Timing
from mixerscope.errors import MixerscopeError
from mixerscope.results import load_run, run_folder
from mixerscope.runs import seems_finished
from mixerscope.sweep.forecast import Running
from mixerscope.sweep.plan import Estimator, Job
from mixerscope.sweep.table import CohortRow, Ending, describe


def cohort_row(job: Job, running: Running, ending: Ending, reason: str, estimator: Estimator, root: Path) -> CohortRow:
    """What an attempt at a cohort came to, and what it took."""
    cohort, spent = running.cohort, sum(running.seconds.values())
    alone = None
    build, train, rate = running.seconds["build"], running.seconds["train"], None
    if ending == "finished" and not cohort.trained:
        alone = None if running.resumed or not train else running.work
        build, train, rate = _timed([run_folder(run, root).path for run in cohort.runs])
    elif running.stage == "train" and (rate := running.rate()) is not None and ending == "out of time":
        # As if all of training went on like this; it is nearly all there is.
        alone = running.work * (spent - train + train * running.total / running.done) / spent
    there = [run for run in cohort.runs if seems_finished(run, root)]
    found = [load_run(run_folder(run, root).path, stages=run) for run in there]
    trained = [result for result in found if result.status.outcome != "diverged"]
    return CohortRow(
        job=job.number,
        **describe(cohort),
        ending=ending,
        reason=reason,
        finished=len(trained),
        diverged=len(found) - len(trained),
        unpatched=sum(bool(result.reason) for result in trained),
        expected_s=estimator.uncorrected(cohort).total,
        alone_s=alone,
        build_s=build,
        train_s=train,
        stages_s=max(0.0, spent - build - train),
        wall_s=spent,
        steps_per_s=rate,
        by_stage={name: round(own, 2) for name, own in running.seconds.items() if name not in ("build", "train")},
    )


def reason_of(error: BaseException) -> str:
    """In a sentence; with its place, where nobody raised it on purpose."""
    if isinstance(error, MixerscopeError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"


def _timed(folders: Sequence[Path]) -> tuple[float, float, float | None]:
    """Seconds to build and to train, and steps a second, of a cohort that was trained in one stack or in several."""
    timings = [Timing.from_bytes((folder / Timing.file).read_bytes()) for folder in folders]
    # Members of a stack were built at once; the first of each speaks for it.
    stacks = {timing.build_seconds: timing.seconds for timing in reversed(timings)}
    return sum(stacks), sum(stacks.values()) - sum(stacks), timings[0].steps_per_second
