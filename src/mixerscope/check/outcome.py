"""What trying a property gives: that it holds and what was measured, or what was seen instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mixerscope.errors import MixerscopeError

S = TypeVar("S")


class PropertyViolated(MixerscopeError):
    """What is under test does not have the property; the message says what was seen."""


@dataclass(frozen=True)
class CheckResult:
    """One property of one mixer or task."""

    name: str
    passed: bool
    detail: str
    """What was measured, or what went wrong."""


def demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PropertyViolated(otherwise)


def attempt(name: str, holds: Callable[[S], str], subject: S, callers: tuple[type[Exception], ...] = ()) -> CheckResult:
    """The outcome of one property; errors of the kinds `callers` are not the subject's fault and go on."""
    try:
        return CheckResult(name, True, holds(subject))
    except PropertyViolated as violated:
        return CheckResult(name, False, str(violated))
    except callers:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code under test may raise anything, and any of it is a refusal
        first_line = str(error).strip().partition("\n")[0]
        return CheckResult(name, False, f"{type(error).__name__}: {first_line}")
