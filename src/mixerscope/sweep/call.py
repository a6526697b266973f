"""A sweep as people ask for it: `mixerscope sweep` and the worker are both this, and differ in how they look.

Torch is imported when there is something to compute, so that `--help` is quick.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mixerscope.errors import FAILED, FINE, Interrupted, UserError, printable
from mixerscope.signals import heeded
from mixerscope.sweep.expand import MOST_RUNS
from mixerscope.sweep.idle import IN_FLIGHT, Idle

if TYPE_CHECKING:
    from mixerscope.machine import Machine
    from mixerscope.results import Runs
    from mixerscope.sweep.listening import Listener
    from mixerscope.sweep.plan import Plan

SOURCE = "A JSON file with `base` and `vary`, the name of one that is shipped (`figure3`), or `module:function`."


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a sweep can be asked. Each field is an option of both commands, with this default and this help."""

    set: list[str] | None = field(
        default=None,
        metadata=_help(
            "path=value, such as train.precision=tf32 or model.architecture=mine.py:Mine; goes over every run; may be"
            " given several times."
        ),
    )
    out: Path = field(
        default=Path("runs"),
        metadata=_help("Every run gets a folder of its own in here; those that are finished are not made again."),
    )
    dry_run: bool = field(default=False, metadata=_help("Say what would be done, and do nothing."))
    stop_after: float | None = field(
        default=None,
        metadata=_help(
            "Seconds after which nothing is running any more; what could not be finished by then is left for the next"
            " call."
        ),
    )
    device: Literal["cpu", "cuda"] = field(default="cpu", metadata=_help("Where the models are trained and patched."))
    threads: int = field(
        default=1, metadata=_help("Cores torch may use; more than one can change the last bits of a result.")
    )
    kernels: Literal["auto", "plain"] = field(
        default="auto", metadata=_help("`plain` computes everything with PyTorch's own operations.")
    )
    compile: bool = field(
        default=False,
        metadata=_help("Pass training steps through torch.compile: on a GPU twice the speed, after half a minute."),
    )
    on: str = field(
        default="local",
        metadata=_help(
            "`local`: here, a process for each GPU; `local:3`: three processes that share the work; `slurm`: an array"
            " of jobs, `slurm:8`: at most eight; `ray`, `ray:HOST:PORT`: tasks of a Ray cluster."
        ),
    )
    slurm: list[str] | None = field(
        default=None,
        metadata=_help(
            "An option of sbatch, such as partition=gpu, time=4:00:00, gpus=1 or account=mine; may be given several"
            " times."
        ),
    )
    python: str | None = field(
        default=None, metadata=_help("The interpreter of Slurm's jobs; this one unless you say otherwise.")
    )
    shard: str | None = field(
        default=None,
        metadata=_help("i/n, such as 2/5: the second of five parts of the sweep, for machines that share no folder."),
    )
    checkpoint_every: float = field(
        default=60.0,
        metadata=_help("Seconds between two checkpoints of a training, which is what a kill loses at most."),
    )
    in_flight: int | None = field(
        default=None, metadata=_help("Cohorts at once; 4 on a GPU and 1 on a CPU unless you say otherwise.")
    )
    largest: int | None = field(
        default=None, metadata=_help("Models in one cohort at most; 35 unless you say otherwise.")
    )
    job_seconds: float | None = field(
        default=None, metadata=_help("What one job may take, as far as can be foreseen; 480 unless you say otherwise.")
    )
    keep_weights: bool = field(
        default=False, metadata=_help("Keep the trained weights in the run folders; the tables are always kept.")
    )
    use: list[str] | None = field(
        default=None,
        metadata=_help(
            "file.py:Class or pkg.module:Class of a mixer, task, stage or objective of yours, which is then known as"
            " local/Class; may be given several times."
        ),
    )
    yes: bool = field(default=False, metadata=_help(f"Make the sweep even if it has more than {MOST_RUNS:,} runs."))
    skip: list[Path] | None = field(
        default=None,
        metadata=_help(
            "Runs finished elsewhere, which are not made here: a JSON list of run ids, or a pack; may be given several"
            " times."
        ),
    )
    pack: Path | None = field(
        default=None,
        metadata=_help("One file with the results of all finished runs of the sweep, to carry elsewhere."),
    )
    pack_mib: float | None = field(
        default=None,
        metadata=_help(
            "MiB of one pack at most, where larger files cannot be carried: what does not fit into part.pack is in"
            " part-2.pack and so on."
        ),
    )


def check_call(call: Call, machine: "Machine") -> None:
    """Refuses options that could mean nothing anywhere, also where nothing is to be done."""
    from mixerscope.sweep.executors import check_place

    if call.stop_after is not None and not call.stop_after > 0:
        raise UserError(f"--stop-after {call.stop_after:g} should be a positive number of seconds")
    check_place(call.on, machine, call.slurm or (), call.python)


def carry_out(
    source: str, call: Call, following: "Callable[[Plan], AbstractContextManager[Listener]] | None" = None
) -> int:
    """Plans a sweep, executes it, prints what was found, and gives the exit code: 1 if a cohort failed.

    `following` makes the listener that shows progress; without it there are plain lines on stderr.
    """
    with closing(Idle(_compiling_here(call))) as idle:
        return _carry_out(source, call, following, idle)


def _compiling_here(call: Call) -> int:
    """How many processes will compile the first cohorts, as far as can be said before torch is imported."""
    if call.dry_run or call.device != "cuda" or not call.compile or call.on not in ("local", "local:1"):
        return 0
    in_flight = max(1, call.in_flight or IN_FLIGHT)
    return max(1, min(in_flight, (os.cpu_count() or 1) - in_flight))


def _carry_out(
    source: str,
    call: Call,
    following: "Callable[[Plan], AbstractContextManager[Listener]] | None",
    idle: Idle,
) -> int:
    from mixerscope.analysis import false_names
    from mixerscope.artifacts import Verdicts
    from mixerscope.listing import keep_listing
    from mixerscope.machine import Machine
    from mixerscope.spec.reading import typed_settings, use_all
    from mixerscope.sweep.best import best_lines, best_runs, finished_runs
    from mixerscope.sweep.executors import executor_of, is_elsewhere
    from mixerscope.sweep.items import Item
    from mixerscope.sweep.listening import All, SweepOutcome
    from mixerscope.sweep.packing import Packing
    from mixerscope.sweep.plan import Imagined, make_plan
    from mixerscope.sweep.seeds import seed_lines
    from mixerscope.sweep.source import load_runs
    from mixerscope.sweep.table import read_rows
    from mixerscope.sweep.text import Lines, outcome_lines, plan_lines

    imagined = call.dry_run or is_elsewhere(call.on)
    machine = (Imagined if imagined else Machine)(
        call.device, call.threads, call.kernels, call.compile, checkpoint_seconds=call.checkpoint_every
    )
    check_call(call, machine)
    _check_pack(call.pack, call.pack_mib)
    use_all(call.use)
    shard, skip = _shard(call.shard), _finished_elsewhere(call.skip)
    executor = None if call.dry_run else executor_of(call.on, machine, call.slurm or (), call.python, idle)
    runs = load_runs(source, typed_settings(call.set), None if call.yes else MOST_RUNS)
    sizes = {"in_flight": call.in_flight, "largest": call.largest}
    plan = make_plan(runs, call.out, machine, **sizes, job_seconds=call.job_seconds, skip=skip, shard=shard)
    if executor is None:
        _print(plan_lines(plan))
        return FINE
    item = Item.of(
        runs,
        call.out,
        machine,
        **sizes,
        shard=shard,
        skip=skip,
        keep_weights=call.keep_weights,
        stop_after=call.stop_after,
    )
    drawn = following(plan) if following and not executor.own_lines else nullcontext(Lines())

    packing = None
    if call.pack is not None:
        packing = Packing(call.pack, call.pack_mib, call.out, ahead=machine.device == "cuda" and not imagined)

    def pack(found: "Runs | None" = None) -> None:
        if packing is not None:
            _print(packing.pack(finished_runs(plan.sound, call.out) if found is None else found))

    with nullcontext() if packing is None else closing(packing):
        try:
            with heeded(pack), drawn as listener:  # whoever ends this call may take the machine away
                if not plan.jobs:
                    listener.sweep_started(plan)
                told = listener if packing is None else All(listener, packing)
                outcome = executor.execute(plan, item, told) if plan.jobs else SweepOutcome()
        except (Interrupted, KeyboardInterrupt):
            pack()
            raise
        found = finished_runs(plan.sound, call.out)
        best = best_runs(found)
        judged = {result.run_id: tuple(result.find(Verdicts) or ()) for result in found}
        together = seed_lines([(result, judged[result.run_id]) for result in best], tuned=True)
        verdicts = [verdict for own in judged.values() for verdict in own]
        naming = [false_names(verdicts).sentence()] if verdicts else []
        seconds = outcome_lines(outcome, read_rows(call.out))
        keep_listing(call.out, len(found))
        _print([*best_lines(best), *together, *naming, *plan.damaged.values(), *seconds])
        pack(found)
    unmade = outcome.left if call.stop_after is None else []
    return FAILED if outcome.failed or plan.damaged or unmade else FINE


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()) or not 1 <= int(number) <= int(count):
        raise UserError(f"--shard takes i/n with i from 1 to n, such as 2/5, got {text!r}")
    return int(number), int(count)


def _finished_elsewhere(files: Sequence[Path] | None) -> dict[str, list[str] | None]:
    """The runs in files that a person named with `--skip`: lists of ids, or packs, which also say what was asked."""
    if not files:
        return {}
    from mixerscope.packs import finished_analyses

    found = {run_id: stages for file in files for run_id, stages in finished_analyses(file).items()}
    return {run_id: None if stages is None else sorted(stages) for run_id, stages in found.items()}


def _check_pack(file: Path | None, most: float | None) -> None:
    """Refuses, before anything is trained, a pack that could not be written in the end."""
    if most is not None and not (file is not None and most > 0):
        raise UserError(f"--pack-mib {most:g} is a positive number of MiB, for what --pack FILE writes")
    if file is None:
        return
    if file.is_dir() or not file.parent.is_dir():
        raise UserError(f"cannot write the pack to {file}: it should be a file in a folder that exists")
    from mixerscope.packs import claim_pack

    claim_pack(file)


def _print(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()
