"""What Slurm's controller is asked, by the commands that every cluster has."""

import os
import subprocess
from dataclasses import dataclass

from mixerscope.errors import UserError

ANSWERS_WITHIN = 10.0
"""Seconds."""
OVER = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States of a job that will not run any more."""
GONE = "invalid job id"
"""What is said of a job that ended so long ago that it was forgotten."""


@dataclass(frozen=True)
class Task:
    """One job of an array."""

    state: str
    reason: str
    """Why it waits, where it does."""
    node: str

    @property
    def over(self) -> bool:
        return self.state in OVER

    def __str__(self) -> str:
        return f"pending ({self.reason})" if self.state == "PENDING" else self.state.lower().replace("_", " ")


def ask(*words: str, told: str = "") -> str:
    """What a command answers; what it refuses is the user's to mend."""
    try:
        done = subprocess.run(
            words,
            input=told,
            capture_output=True,
            text=True,
            timeout=ANSWERS_WITHIN,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"Slurm did not answer `{words[0]}` within {ANSWERS_WITHIN:.0f} s; is it up?") from error
    except OSError as error:
        raise UserError(f"`{words[0]}` cannot be called: {error.strerror}") from error
    if done.returncode:
        raise UserError(f"Slurm refuses: {' '.join(done.stderr.split()) or f'{words[0]} ended with {done.returncode}'}")
    return done.stdout


def tasks(array: str) -> dict[str, Task] | None:
    """The jobs of an array by number, those that have ended too; none if it was forgotten, None if nobody answers."""
    try:
        said = ask("squeue", "--noheader", "--array", "--states=all", f"--jobs={array}", "--format=%K|%T|%r|%N")
    except UserError as error:
        return {} if GONE in str(error).lower() else None
    lines = [line.split("|") for line in said.splitlines() if line.count("|") == 3]
    return {number: Task(state, reason, node) for number, state, reason, node in lines}


def configuration() -> dict[str, str]:
    """How the cluster is set up."""
    pairs = (line.partition("=") for line in ask("scontrol", "show", "config").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value}
