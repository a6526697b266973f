"""Names of components, and where their classes live. Nothing here imports torch or a component.

Three kinds: mixers, architectures (layer patterns) and tasks. A built-in is one line in a table below. Another
package adds its own through an entry point in the group `mixerscope.mixers`, `mixerscope.architectures` or
`mixerscope.tasks` and is then known as `<distribution>/<name>`. A class in a notebook is added with `register`, one
in a file or module outside with `adopt`, which also keeps the hash of its source.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from mixerscope.errors import UnknownName, UserError

C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class Entry:
    name: str
    target: str
    """`module:Class`, imported on first use."""
    summary: str
    origin: str
    """The distribution that provides it."""
    source_sha256: str | None = None
    """Hash of the source file, for a class from outside: its name alone does not say which code it is."""


class Registry:
    """Names of one kind of component, resolved to classes on first use."""

    def __init__(self, kind: str, builtin: dict[str, tuple[str, str]]) -> None:
        self.kind = kind
        self.group = f"mixerscope.{kind}s"
        self._entries = {
            name: Entry(name, target, summary, "mixerscope") for name, (target, summary) in builtin.items()
        }
        self._loaded: dict[str, type] = {}
        self._scanned = False

    def entries(self) -> list[Entry]:
        """All known components, built-ins first, without importing any."""
        self._scan_entry_points()
        return list(self._entries.values())

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries()]

    def __contains__(self, name: str) -> bool:
        if name not in self._entries:
            self._scan_entry_points()
        return name in self._entries

    def load(self, name: str) -> Any:
        """The class behind a name."""
        if name not in self:
            raise UnknownName(self.kind, name, self._entries)
        if name not in self._loaded:
            module, _, attribute = self._entries[name].target.partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
        return self._loaded[name]

    def name_of(self, cls: type) -> str:
        """The name under which a class was loaded or registered."""
        for name, loaded in self._loaded.items():
            if loaded is cls:
                return name
        target = f"{cls.__module__}:{cls.__qualname__}"
        for entry in self.entries():
            if entry.target == target:
                return entry.name
        raise UserError(f"{cls.__qualname__} is not a registered {self.kind}; use register('{self.kind}', 'name')")

    def register(self, name: str, summary: str = "") -> Callable[[C], C]:
        """Class decorator that adds a component under `name`; a name is taken once."""

        def add(cls: C) -> C:
            if name in self and self._loaded.get(name) is not cls:
                raise UserError(f"a {self.kind} named {name!r} exists already")
            doc = (cls.__doc__ or "").strip().partition("\n")[0]
            self._entries[name] = Entry(name, f"{cls.__module__}:{cls.__qualname__}", summary or doc, "local")
            self._loaded[name] = cls
            return cls

        return add

    def adopt(self, reference: str) -> str:
        """Imports `pkg.module:Class` or `path/file.py:Class` and registers the class; returns its name `local/Class`.

        Only what a person typed comes here, never a name read from a file: importing runs code.
        """
        place, _, attribute = reference.rpartition(":")
        module, source = import_place(place)
        cls = getattr(module, attribute, None)
        if not isinstance(cls, type):
            classes = [name for name, value in vars(module).items() if isinstance(value, type)]
            raise UnknownName(f"class in {place}", attribute, classes)
        name, sha = f"local/{attribute}", hashlib.sha256(source.read_bytes()).hexdigest()
        known = self._entries.get(name)
        if known is not None and known.source_sha256 != sha:
            raise UserError(f"{name} was already taken from another source, {known.target}")
        if known is None:
            doc = (cls.__doc__ or "").strip().partition("\n")[0]
            self._entries[name] = Entry(name, reference, doc, "local", sha)
            self._loaded[name] = cls
        return name

    def _scan_entry_points(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        for point in entry_points(group=self.group):
            origin = point.dist.name if point.dist else "unknown"
            name = f"{origin}/{point.name}"
            self._entries.setdefault(name, Entry(name, point.value, f"from {origin}", origin))


def import_place(place: str) -> tuple[ModuleType, Path]:
    """The module `pkg.module` or `path/file.py` and its source. For what a person typed: importing runs code."""
    return _module_from_file(Path(place)) if place.endswith(".py") else _module_by_name(place)


def _module_from_file(path: Path) -> tuple[ModuleType, Path]:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    # The name holds the whole path, so two files called mixer.py do not meet in sys.modules.
    name = "mixerscope_local_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a person's file raises is theirs to mend
        raise UserError(f"cannot import {path}: {type(error).__name__}: {error}") from error
    return module, path


def _module_by_name(name: str) -> tuple[ModuleType, Path]:
    # Like `python -m`: what lies in the current folder can be named.
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever a person's module raises is theirs to mend
        raise UserError(f"cannot import module {name!r}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if module.__file__ is None:
        raise UserError(f"module {name!r} has no source file")
    return module, Path(module.__file__)


MIXERS = Registry(
    "mixer",
    {
        "attention": ("mixerscope.mixers.attention:Attention", "causal softmax attention"),
        "base_conv": ("mixerscope.mixers.base_conv:BaseConv", "gated convolution, short or long kernel"),
        "deltanet": ("mixerscope.mixers.deltanet:DeltaNet", "linear attention with the delta rule"),
        "h3": ("mixerscope.mixers.h3:H3", "shift and diagonal state space models, multiplied"),
        "hyena": ("mixerscope.mixers.hyena:Hyena", "gates around an implicit long convolution"),
        "linear_attention": (
            "mixerscope.mixers.linear_attention:LinearAttention",
            "linear attention with second-order Taylor features",
        ),
        "mamba": ("mixerscope.mixers.mamba:Mamba", "selective state space model behind a short convolution"),
        "sliding_window": (
            "mixerscope.mixers.sliding_window:SlidingWindow",
            "causal softmax attention over the latest positions",
        ),
        "mamba2": ("mixerscope.mixers.mamba2:Mamba2", "state space model with one decay per head"),
        "gla": ("mixerscope.mixers.gla:GLA", "linear attention with an input-dependent decay per key channel"),
        "gated_deltanet": (
            "mixerscope.mixers.gated_deltanet:GatedDeltaNet",
            "delta rule on a memory that decays, behind a short convolution",
        ),
        "retnet": ("mixerscope.mixers.retnet:RetNet", "linear attention with fixed decays and a rotation"),
        "rwkv7": ("mixerscope.mixers.rwkv7:RWKV7", "token shift and a delta rule with a decay per channel"),
        "lstm": ("mixerscope.mixers.lstm:LSTM", "long short-term memory with forget gates"),
        "gru": ("mixerscope.mixers.gru:GRU", "gated recurrent unit"),
    },
)
ARCHITECTURES = Registry(
    "architecture",
    {
        "pattern": (
            "mixerscope.spec.architectures:Pattern",
            "any layers you list, again and again: hybrids, or one mixer with other blocks",
        ),
        "base_conv": (
            "mixerscope.spec.architectures:AlternatingBaseConv",
            "gated convolutions, short and long kernels alternating",
        ),
        "based": (
            "mixerscope.spec.architectures:Based",
            "short gated convolution and Taylor linear attention, alternating",
        ),
    },
)
TASKS = Registry(
    "task",
    {
        "ar": ("mixerscope.tasks.ar:AR", "associative recall: key-value pairs, then a query"),
        "atr": ("mixerscope.tasks.atr:ATR", "associative treecall: a string with a hidden tree, then a query about it"),
        "mqar": ("mixerscope.tasks.mqar:MQAR", "associative recall with many queries among fillers"),
        "ngram": ("mixerscope.tasks.ngram:NGram", "what followed these symbols the last time they stood in the text"),
        "selective_copy": (
            "mixerscope.tasks.selective_copy:SelectiveCopy",
            "copy the few symbols that are scattered among fillers",
        ),
    },
)
REGISTRIES = {registry.kind: registry for registry in (MIXERS, ARCHITECTURES, TASKS)}


def register(kind: str, name: str, summary: str = "") -> Callable[[C], C]:
    """Class decorator: `@register("mixer", "mine")`."""
    if kind not in REGISTRIES:
        raise UnknownName("kind of component", kind, REGISTRIES)
    return REGISTRIES[kind].register(name, summary)


def architecture_entries() -> list[Entry]:
    """Everything that can stand as `model.architecture`: the patterns, then each mixer in every layer."""
    patterns = ARCHITECTURES.entries()
    taken = {entry.name for entry in patterns}
    return patterns + [entry for entry in MIXERS.entries() if entry.name not in taken]
