"""`python -m mixerscope.sweep.worker`: a sweep where only torch, numpy, pydantic and safetensors are installed.

The same as `mixerscope sweep`, in plain lines: for cluster jobs and for GPUs that are lent for minutes.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mixerscope.errors import FAILED, FINE, MixerscopeError, complain
from mixerscope.machine import Machine
from mixerscope.progress import duration
from mixerscope.spec.reading import typed_settings, use_all
from mixerscope.sweep.call import check_pack, finished_elsewhere, found_lines, pack_lines
from mixerscope.sweep.cohorts import LARGEST, Cohort
from mixerscope.sweep.execute import Listener, execute
from mixerscope.sweep.plan import JOB_SECONDS, Imagined, Job, Plan, make_plan
from mixerscope.sweep.source import load_runs
from mixerscope.sweep.table import CohortRow
from mixerscope.sweep.text import ended_line, plan_lines, summary

QUIET_SECONDS = 20.0
"""Between two lines about one cohort."""


class Lines(Listener):
    """A line when something starts or ends, and one now and then in between."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.said: dict[str, float] = {}

    def sweep_started(self, plan: Plan) -> None:
        self.say(summary(plan))

    def job_started(self, job: Job) -> None:
        self.say(f"job {job.number}: {len(job.cohorts)} cohorts, about {duration(job.seconds)}")

    def cohort_started(self, cohort: Cohort) -> None:
        self.said[cohort.id] = time.monotonic()
        self.say(f"{cohort}: started")

    def progress(self, cohort: Cohort, stage: str, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if now - self.said[cohort.id] >= QUIET_SECONDS:
            self.said[cohort.id] = now
            self.say(f"{cohort}: {stage} {done}/{total} {note}")

    def cohort_ended(self, cohort: Cohort, row: CohortRow) -> None:
        self.say(ended_line(row))

    def remark(self, text: str) -> None:
        self.say(text)

    def say(self, line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.began:7.1f} s  {line}\n")
        sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sweep and returns its exit code: 0 fine, 1 some cohort failed, 2 wrong input, 130 interrupted."""
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except (MixerscopeError, KeyboardInterrupt) as error:
        return complain(error)


def _run(options: argparse.Namespace) -> int:
    kind = Imagined if options.dry_run else Machine
    machine = kind(options.device, options.threads, options.kernels, options.compile)
    check_pack(options.pack)
    use_all(options.use)
    plan = make_plan(
        load_runs(options.sweep, typed_settings(options.set)),
        options.root,
        machine,
        in_flight=options.in_flight,
        largest=options.largest,
        job_seconds=options.job_seconds,
        skip=finished_elsewhere(options.skip),
    )
    if options.dry_run:
        _print(plan_lines(plan))
        return FINE
    outcome = execute(
        plan,
        options.root,
        machine,
        stop_after=options.stop_after,
        keep_weights=options.keep_weights,
        listener=Lines(),
    )
    _print(found_lines(plan, outcome, options.root))
    _print(pack_lines(plan, options.root, options.pack))
    return FAILED if outcome.failed or plan.damaged else FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mixerscope.sweep.worker", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("sweep", help="a sweep file, the name of a shipped one (figure3), or module:function")
    add("--root", type=Path, required=True, help="folder of the run folders")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--threads", type=int, default=1, help="of the CPU")
    add("--kernels", choices=["auto", "plain"], default="auto")
    add("--compile", action="store_true")
    add("--in-flight", type=int, help="cohorts at once; 4 on a GPU, 1 on a CPU")
    add("--largest", type=int, default=LARGEST, help="models in one cohort at most")
    add("--job-seconds", type=float, default=JOB_SECONDS, help="what one job may take, as far as can be foreseen")
    add("--stop-after", type=float, help="seconds")
    add("--set", action="append", metavar="PATH=VALUE", help="goes over every run; may be given several times")
    add("--use", action="append", metavar="REF", help="file.py:Class of a mixer, task, stage or objective of yours")
    add("--skip", action="append", metavar="FILE", type=Path, help="run ids, or a pack of runs, finished elsewhere")
    add("--pack", metavar="FILE", type=Path, help="one file with the results of all finished runs of the sweep")
    add("--keep-weights", action="store_true")
    add("--dry-run", action="store_true", help="say what would be done")
    return parser


def _print(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
