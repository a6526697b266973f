"""A sweep as one job array of Slurm: each job makes what the others leave of it, and ends when all the rest is others'.

Jobs are Slurm's own. They go on when the call that queued them ends, in whatever way, and the same call follows them.
"""

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mixerscope.errors import Interrupted, UserError, remark
from mixerscope.machine import Machine
from mixerscope.signals import refuse_signals
from mixerscope.store import locked
from mixerscope.store.upkeep import SUBMITTING
from mixerscope.sweep.executors.base import Executor, Following, logs_of, pause, remove_item, remove_logs
from mixerscope.sweep.executors.controller import Task, ask, configuration, tasks
from mixerscope.sweep.executors.queued import Queued, all_queued
from mixerscope.sweep.items import Item
from mixerscope.sweep.listening import Listener, SweepOutcome
from mixerscope.sweep.plan import Plan

LOOKED_EVERY = 5.0
"""Seconds between two questions to the controller, whom others ask too."""
SIGNALLED = "--signal=B:TERM@30"
"""Seconds before a job's time is over: there is a checkpoint to write."""
MOST = 10_000
OWN = frozenset(["array", "chdir", "error", "open-mode", "output", "parsable", "signal", "test-only", "wait", "wrap"])
"""Options of sbatch that are ours to set."""
GPUS = frozenset(["gpus", "gres", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task"])
SCRIPT = """#!/bin/sh
# A shared file system may show a new file late.
for _ in $(seq 60); do [ -e {item} ] && break; sleep 1; done
exec {python} -m mixerscope.work {item}
"""


@dataclass(frozen=True)
class Slurm(Executor):
    """At most so many jobs at a time."""

    most: int
    options: tuple[str, ...]
    """Of sbatch."""
    python: str
    own_lines = True

    @classmethod
    def of(cls, most: str | None, machine: Machine, options: Sequence[str], python: str | None) -> Self:
        """Refuses what the controller would refuse, while nothing is written."""
        jobs, words = jobs_of(most), words_of(options, machine)
        if shutil.which("sbatch") is None:
            raise UserError("Slurm is not installed here (no `sbatch`); call this on a login node, or use --on local")
        ask("sbatch", "--test-only", *words, "--wrap=true")
        return cls(jobs, words, python or sys.executable)

    def execute(self, plan: Plan, item: Item, listener: Listener) -> SweepOutcome:
        listener.sweep_started(plan)
        item = item.model_copy(update={"leave": True})
        root = Path(item.root)
        try:
            with locked(root, [SUBMITTING], True, refuse_signals):
                queued = _found(item, listener) or self._submit(plan, item, listener)
        except UserError:
            with suppress(OSError):  # made for the lock; nothing else is in it then
                root.rmdir()
            raise
        following = Following(plan, root, queued.call, listener)
        try:
            ended = _wait(queued.array, following)
            if not item.stop_after and all(task.state == "COMPLETED" for task in ended.values()):
                following.wait_for_files()
        except Interrupted:
            remark(f"jobs {queued.array} go on; the same call follows them, and `scancel {queued.array}` ends them")
            raise
        outcome = following.outcome()
        whole = not outcome.left and not outcome.failed
        if not whole:
            _mourn(queued, ended, listener)
        queued.forget(with_logs=whole)
        return outcome

    def _submit(self, plan: Plan, item: Item, listener: Listener) -> Queued:
        cluster = configuration()
        count = min(len(plan.cohorts), self.most, max(1, int(cluster.get("MaxArraySize", "1001")) - 1))
        path, logs = item.write(), logs_of(item.root, item.call)
        log = f"{str(logs).replace('%', '%%')}/%a.log"
        words = (f"--array=1-{count}", f"--output={log}", "--open-mode=append", SIGNALLED, "--parsable")
        script = SCRIPT.format(item=shlex.quote(str(path)), python=shlex.quote(self.python))
        try:
            logs.mkdir(parents=True)
            array = ask("sbatch", "--job-name=mixerscope", "--requeue", *self.options, *words, told=script)
            queued = Queued.note(item, array.strip().partition(";")[0], cluster.get("ClusterName", ""))
        except BaseException:
            remove_logs(logs)
            remove_item(path)
            raise
        listener.remark(f"{count} job{'' if count == 1 else 's'} queued as {queued.array}; logs are in {logs}")
        return queued


def jobs_of(most: str | None) -> int:
    """How many at a time `--on` asks for."""
    if most is not None and not (most.isdecimal() and 1 <= int(most) <= MOST):
        raise UserError(f"--on slurm:N takes a number of jobs from 1 to {MOST:,}, got {most!r}")
    return int(most or MOST)


def words_of(options: Sequence[str], machine: Machine) -> tuple[str, ...]:
    """Options of sbatch out of what was typed, and those that the machine asks for where nobody said otherwise."""
    words: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not name.replace("-", "").isalnum() or name.startswith("-") or (equals and not value):
            raise UserError(f"--slurm takes an option of sbatch, such as partition=gpu or exclusive, got {option!r}")
        if name in OWN:
            raise UserError(f"--slurm {name} is set by mixerscope; use another option of sbatch")
        words[name] = f"--{option}"
    if machine.device == "cuda" and not GPUS & words.keys():
        words["gres"] = "--gres=gpu:1"
    if "cpus-per-task" not in words:
        words["cpus-per-task"] = f"--cpus-per-task={machine.threads}"
    return tuple(words.values())


def _found(item: Item, listener: Listener) -> Queued | None:
    """The jobs of an earlier call for the same item, if some are still to end."""
    root = Path(item.root)
    for queued in all_queued(root, configuration().get("ClusterName", "")):
        found = tasks(queued.array)
        if found is not None and all(task.over for task in found.values()):
            queued.forget(with_logs=True)
        elif queued.asks == item.asks:
            when = time.strftime("%H:%M:%S", time.localtime(queued.since))
            listener.remark(f"jobs {queued.array}, queued at {when}, are at it already: following them")
            return queued
    return None


def _wait(array: str, following: Following) -> dict[str, Task]:
    """Until no job is left that could do something; gives what was last known of each."""
    known: dict[str, Task] = {}
    said = ""
    withdrawn = False
    while True:
        found = tasks(array)
        following.look()
        if found is not None:
            known |= found
            active = [task for task in found.values() if not task.over]
            if not active:
                return known
            counts = Counter(str(task) for task in active)
            now = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        else:
            now = "Slurm does not answer; asking on"
        if now != said:
            following.listener.remark(f"jobs {array}: {now}")
            said = now
        if found and not withdrawn and not following.left():
            withdrawn = True  # what is queued would find nothing to do
            with suppress(UserError):
                ask("scancel", "--state=PENDING", array)
        pause(LOOKED_EVERY)


def _mourn(queued: Queued, ended: Mapping[str, Task], listener: Listener) -> None:
    """Says how jobs ended that did not end well, and what the first of them said last."""
    bad = {number: task for number, task in ended.items() if task.state != "COMPLETED"}
    if not bad:
        return
    counts = Counter(str(task) for task in bad.values())
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    listener.remark(f"of {len(ended)} jobs: {states}; logs are in {queued.logs}")
    for number, task in sorted(bad.items()):
        with suppress(OSError):
            lines = (queued.logs / f"{number}.log").read_text(errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            listener.remark(f"job {queued.array}_{number}, {task}, said last: {last.strip()[:300]}")
            return
