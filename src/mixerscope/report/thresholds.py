"""What a test needed, and the values with which the verdicts of a page were reached."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mixerscope.artifacts.verdicts import Test
from mixerscope.report.data import ModelResult

READS = "reads the "


class Needed(NamedTuple):
    """A threshold, and how much of the interval must lie above it."""

    value: float
    some: bool
    """Any of it is enough: what a model surely does not do is asked, not what it surely does."""


def needed(test: Test, model: ModelResult) -> Needed | None:
    """None where nothing could be asked. A slot is read unless surely fewer answers than the rule says are lost."""
    if test.needed is not None:
        return Needed(test.needed, some=False)
    if test.value is not None and test.name.startswith(READS) and "reads" in model.rules:
        return Needed(model.rules["reads"], some=True)
    return None


def thresholds(models: Sequence[ModelResult]) -> dict[str, list[Any]]:
    """By name, the values with which the verdicts of the page were reached: one, unless runs were judged otherwise."""
    return _distinct([model.rules for model in models])


def state_thresholds(models: Sequence[ModelResult]) -> dict[str, list[Any]]:
    """The same of verdicts on tracked states."""
    return _distinct([m.tracked.rules.model_dump() for m in models if m.tracked and m.tracked.verdict])


def _distinct(rules: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for one in rules:
        for name, value in one.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return found
