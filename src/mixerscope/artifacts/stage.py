"""What every stage leaves beside its own artifacts: which stage it was, and what became of it."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mixerscope.artifacts.base import SharedJson
from mixerscope.showing import Shown


@dataclass(frozen=True, repr=False)
class StageRecord(Shown, SharedJson):
    """Which stage a folder holds, with which settings. Its id is the hash of `identity`."""

    file: ClassVar[str] = "stage.json"
    identity: dict[str, Any]
    settings: dict[str, Any]
    """In full, every default written out."""

    def __post_init__(self) -> None:
        needs = self.identity.get("needs", {})
        named = isinstance(self.identity.get("stage"), str) and isinstance(self.identity.get("settings"), dict)
        if not named or not isinstance(needs, dict) or not all(isinstance(id, str) for id in needs.values()):
            raise ValueError("it names no stage")

    def sentence(self) -> str:
        """One line for people."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.identity["settings"].items())
        return f"{self.name} with {said}" if said else self.name

    @property
    def name(self) -> str:
        return self.identity["stage"]

    @property
    def needs(self) -> dict[str, str]:
        """The stages it read, by name: their ids."""
        return self.identity.get("needs", {})


@dataclass(frozen=True)
class StageOutcome(SharedJson):
    """`done`, or `impossible` with the reason: a model that cannot be measured is a result."""

    file: ClassVar[str] = "outcome.json"
    state: Literal["done", "impossible"]
    reason: str = ""
    notes: tuple[str, ...] = field(default=())
    """What a reader should know of how it was done."""
