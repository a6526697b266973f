"""The conformance suite: what every mixer and every task must satisfy, built in or not. One function a property."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mixerscope.check import forward, sites, stacked, stepping
from mixerscope.check.outcome import CheckResult, PropertyViolated, attempt
from mixerscope.check.subject import Subject
from mixerscope.check.task import TASK_PROPERTIES, check_task
from mixerscope.errors import UserError
from mixerscope.mixers.base import Mixer
from mixerscope.registry import MIXERS
from mixerscope.spec.options import resolve_options

__all__ = ["PROPERTIES", "TASK_PROPERTIES", "CheckResult", "PropertyViolated", "Subject", "check_mixer", "check_task"]

Property = Callable[[Subject], str]
"""Returns what was measured, or raises; `PropertyViolated` carries what was seen instead."""

PROPERTIES: dict[str, Property] = {
    "construction": forward.constructed,
    "shape": forward.shape,
    "initialisation": forward.initialisation,
    "causality": forward.causality,
    "documents": forward.documents,
    "determinism": forward.determinism,
    "device": forward.device,
    "gradients": forward.gradients,
    "state_dict": forward.state_dict,
    "cohort": stacked.cohort,
    "cohort_training": stacked.cohort_training,
    "sites_fire": sites.sites_fire,
    "sites_identity": sites.sites_identity,
    "sites_noise": sites.sites_noise,
    "movers": sites.movers,
    "step": stepping.step,
    "carried_state": stepping.carried_state,
    "state_size": stepping.state_size,
}
LONGEST = 100_000
NEEDS_NAME = {"cohort_training"}
"""Models find their mixers by name, so a class that is not registered cannot be trained."""


def check_mixer(
    mixer: str | type[Mixer], *, width: int = 16, options: Mapping[str, Any] | None = None, length: int | None = None
) -> list[CheckResult]:
    """Tries every property on a registered name, a class, or a reference `pkg.module:Class` or `path/file.py:Class`.

    `length` is one more length of documents to try.
    """
    if length is not None and not 1 <= length <= LONGEST:
        raise UserError(f"documents are tried at lengths from 1 to {LONGEST}, got {length}")
    subject = replace(find_subject(mixer, width, options or {}), length=length)
    built = _try("construction", subject)
    if not built.passed:
        return [built]
    names = [name for name in PROPERTIES if subject.name is not None or name not in NEEDS_NAME]
    return [built, *(_try(name, subject) for name in names if name != "construction")]


def find_subject(mixer: str | type[Mixer], width: int, options: Mapping[str, Any]) -> Subject:
    name: str | None = None
    if isinstance(mixer, str):
        # Only what a person typed comes here, so any reference may be imported, `module:Class` too.
        name = MIXERS.adopt(mixer) if ":" in mixer and mixer not in MIXERS else mixer
        mixer = MIXERS.load(name)
    if not (isinstance(mixer, type) and issubclass(mixer, Mixer)):
        raise UserError(f"{name or mixer!r} is not a mixer: it must be a subclass of mixerscope.mixers.Mixer")
    return Subject(mixer, name, width, resolve_options(mixer, dict(options)))


def _try(name: str, subject: Subject) -> CheckResult:
    # A width or option it cannot take is the caller's error, not a failed property.
    return attempt(name, PROPERTIES[name], subject, callers=(UserError,))
