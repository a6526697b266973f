"""By which rules recorded verdicts were reached."""

from typing import Any

from mixerscope.stages.judge import Judge
from mixerscope.stages.patch import Patch
from mixerscope.stages.prove import Prove

JUDGED_BY = {"patch": Patch.revision, "prove": Prove.revision, "judge": Judge.revision}
"""Revisions: what was judged by others is not by today's rules."""


def of_today(row: dict[str, Any] | None) -> bool:
    """Whether a recorded row was judged by the rules of today."""
    return row is not None and row.get("judged_by") == JUDGED_BY
