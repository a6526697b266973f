"""Where a sweep is made. Every way gives processes the same item, and they share its cohorts; ways differ in who starts
the processes, and each is a small file here.
"""

from collections.abc import Sequence

from mixerscope.errors import UserError
from mixerscope.machine import Machine
from mixerscope.sweep.executors.base import Executor
from mixerscope.sweep.executors.local import LOCAL, Here, Processes, processes_of
from mixerscope.sweep.idle import Idle

RAY, SLURM = "ray", "slurm"


def is_elsewhere(on: str) -> bool:
    """Whether `--on` names other machines, so that this one need not have their devices."""
    return on.partition(":")[0] in (RAY, SLURM)


def check_place(on: str, machine: Machine, options: Sequence[str] = (), python: str | None = None) -> None:
    """Refuses what `--on` and its options can nowhere mean, whatever this machine has."""
    name, colon, rest = on.partition(":")
    if options and name != SLURM:
        raise UserError(f"--slurm {options[0]} says how jobs are queued, which is for --on {SLURM}, not for {on!r}")
    if python and name != SLURM:
        raise UserError(f"--python is the interpreter of jobs, for --on {SLURM}, not for {on!r}")
    if name == SLURM:
        from mixerscope.sweep.executors.slurm import jobs_of, words_of

        jobs_of(rest if colon else None)
        words_of(options, machine)
    elif name == LOCAL:
        processes_of(on, machine)
    elif name != RAY:
        raise UserError(f"--on is {LOCAL!r}, {LOCAL}:N, {SLURM!r}, {SLURM}:N, {RAY!r} or {RAY}:ADDRESS, got {on!r}")


def executor_of(
    on: str, machine: Machine, options: Sequence[str] = (), python: str | None = None, idle: Idle | None = None
) -> Executor:
    """Who makes a sweep, by what `--on` says; refused where that cannot be had. Writes nothing."""
    check_place(on, machine, options, python)
    name, colon, rest = on.partition(":")
    if name == SLURM:
        from mixerscope.sweep.executors.slurm import Slurm

        return Slurm.of(rest if colon else None, machine, options, python)
    if name == RAY:
        from mixerscope.sweep.executors.ray import Ray

        return Ray.of(rest, machine)
    count = processes_of(on, machine)
    if count == 1:
        return Here(machine, idle)
    if idle is not None:
        idle.close()  # each process starts its own
    return Processes(count)
