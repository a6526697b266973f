"""Compares what a component does now with the record of it."""

import math
from collections.abc import Iterator
from typing import Any

from tests.golden.pins import Pinned, Revision

TOLERANCE = 1e-9
"""Relative. Kinds of CPU differ by at most 1e-12 in these float64 numbers."""
NOTHING = 1e-12
"""Numbers this close are the same: what should be zero is rounding, and no two CPUs round alike."""
RECORD = "record it with python -m tests.golden.record"

Recorded = dict[str, Any]
"""`revision` and `cases` as `Pinned` has them."""


def differences(recorded: Any, found: Any, path: str = "") -> Iterator[str]:
    """A clause for each number, text or key that is not what it was."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in [*recorded, *(key for key in found if key not in recorded)]:
            inner = f"{path}.{key}" if path else key
            if key not in found:
                yield f"{inner} is gone"
            elif key not in recorded:
                yield f"{inner} is new"
            else:
                yield from differences(recorded[key], found[key], inner)
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for index, (before, now) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(before, now, f"{path}[{index}]")
    elif not same(recorded, found):
        yield f"{path + ' ' if path else ''}was {recorded!r}, is {found!r}"


def same(recorded: Any, found: Any) -> bool:
    if isinstance(recorded, float) and isinstance(found, float):
        return math.isclose(recorded, found, rel_tol=TOLERANCE, abs_tol=NOTHING)
    # True == 1 == 1.0 in Python, but not in the JSON that run ids hash.
    return type(recorded) is type(found) and recorded == found


def silent_changes(recorded: Recorded | None, found: Pinned) -> list[str]:
    """What changed though the revision says that nothing did; the recorder refuses these."""
    if recorded is None:
        return []
    if is_behind(found.revision, recorded["revision"]):
        return [f"{found.what}: `revision` fell from {recorded['revision']} to {found.revision}; it only rises"]
    if found.revision != recorded["revision"]:
        return []
    complaints = []
    for case, before in recorded["cases"].items():
        if case not in found.cases:
            changed = ["is gone"]
        else:
            changed = list(differences(before, found.cases[case]))
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            complaints.append(
                f"{found.what}, {case}: {changed[0]}{more}; raise `revision` of {found.owners} and {RECORD}"
            )
    return complaints


def unrecorded(recorded: Recorded | None, found: Pinned) -> list[str]:
    """What the next recording adds, where a test cannot do without it."""
    if recorded is None:
        return [f"{found.what} is not recorded; {RECORD}"]
    if found.revision != recorded["revision"]:
        return [f"{found.what} has revision {found.revision}, its record {recorded['revision']}; {RECORD}"]
    if found.new_cases_pass:
        return []
    return [f"{found.what}, {case} is not recorded; {RECORD}" for case in found.cases if case not in recorded["cases"]]


def complaints(recorded: Recorded | None, found: Pinned) -> list[str]:
    return silent_changes(recorded, found) or unrecorded(recorded, found)


def is_behind(now: Revision, before: Revision) -> bool:
    if isinstance(now, dict) and isinstance(before, dict):
        return any(now[part] < before[part] for part in now.keys() & before.keys())
    return isinstance(now, int) and isinstance(before, int) and now < before
