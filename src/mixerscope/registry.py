"""Names of components, and where their classes live. Nothing here imports torch or a component.

Five kinds: mixers, architectures (layer patterns), tasks, stages (what is done with a trained model) and objectives;
and kernels of operators, which are functions.
A built-in is one line in a table below. Another package adds its own through an entry point in the group
`mixerscope.mixers`, `mixerscope.architectures` and so on, and is then known as `<distribution>/<name>`. A class in a
notebook is added with `register`, one in a file or module outside with `adopt`. Which code a name stands for, when it
is not ours, is told by `code`.
"""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from mixerscope.code import code_identity
from mixerscope.errors import UnknownName, UserError
from mixerscope.loading import import_place, is_defined_in, source_digest

C = TypeVar("C", bound=type)
OURS = "mixerscope"


@dataclass(frozen=True)
class Entry:
    name: str
    target: str
    """`module:Class`, imported on first use."""
    summary: str
    origin: str
    """The distribution that provides it, or `local`."""


class Registry:
    """Names of one kind of component, resolved to classes on first use."""

    def __init__(self, kind: str, builtin: dict[str, tuple[str, str]]) -> None:
        self.kind = kind
        self.group = f"mixerscope.{kind}s"
        self._entries = {name: Entry(name, target, summary, OURS) for name, (target, summary) in builtin.items()}
        self._loaded: dict[str, type] = {}
        self._adopted: dict[str, Path] = {}
        self._codes: dict[str, dict[str, str] | None] = {}
        """What tells the code of classes from files from other code, noted when they were loaded."""
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

    def entry(self, name: str) -> Entry:
        """What is known of a name, without importing anything."""
        if name not in self:
            raise UnknownName(self.kind, name, self._entries)
        return self._entries[name]

    def load(self, name: str) -> Any:
        """The class behind a name."""
        self.entry(name)
        if name not in self._loaded:
            module, _, attribute = self._entries[name].target.partition(":")
            self._loaded[name] = getattr(importlib.import_module(module), attribute)
            self._note_code(name)
        return self._loaded[name]

    def code(self, name: str) -> dict[str, str] | None:
        """What tells the code behind a name from other code; None for a built-in, without importing it."""
        if self.entry(name).origin == OURS:
            return None
        cls = self.load(name)
        return self._codes[name] if name in self._codes else code_identity(cls)

    def _note_code(self, name: str) -> None:
        """What a file held when its class was loaded is what runs; a notebook's cell uses what stands there now."""
        self._codes.pop(name, None)
        cls = self._loaded[name]
        if self._entries[name].origin != OURS and getattr(sys.modules.get(cls.__module__), "__file__", None):
            self._codes[name] = code_identity(cls)
        if name in self._adopted and not is_defined_in(cls, self._adopted[name]):
            # A class that another file made, and this one named, or changed: both are its code.
            made = json.dumps([code_identity(cls), source_digest(self._adopted[name])], sort_keys=True)
            self._codes[name] = {"sha256": hashlib.sha256(made.encode()).hexdigest()}

    def name_of(self, cls: type) -> str:
        """The name under which a class was loaded or registered."""
        for name, loaded in self._loaded.items():
            if loaded is cls:
                return name
        for entry in self.entries():
            if entry.target == _target(cls):
                return entry.name
        raise UserError(f"{cls.__qualname__} is not a registered {self.kind}; use register('{self.kind}', 'name')")

    def register(self, name: str, summary: str = "") -> Callable[[C], C]:
        """Class decorator that adds a component under `name`.

        A name is taken once, but a cell or script that is run again puts the new class in place of the old one.
        """

        def add(cls: C) -> C:
            if name in self and (self._entries[name].origin == OURS or self._target(name) != _target(cls)):
                raise UserError(f"a {self.kind} named {name!r} exists already")
            self._entries[name] = Entry(name, _target(cls), summary or _first_line(cls), "local")
            self._loaded[name] = cls
            self._adopted.pop(name, None)
            self._note_code(name)
            return cls

        return add

    def adopt(self, reference: str) -> str:
        """Imports `pkg.module:Class` or `path/file.py:Class` and registers the class; returns its name `local/Class`.

        The same reference again gives the class as it is now: what was edited since is imported anew.
        Only what a person typed comes here, never a name read from a file: importing runs code.
        """
        place, _, attribute = reference.rpartition(":")
        module, source = import_place(place)
        cls = getattr(module, attribute, None)
        if not isinstance(cls, type):
            classes = [name for name, value in vars(module).items() if isinstance(value, type)]
            raise UnknownName(f"class in {place}", attribute, classes)
        name = f"local/{attribute}"
        if name in self and self._adopted.get(name) != source and self._target(name) != _target(cls):
            taken = self._adopted.get(name, self._entries[name].target)
            raise UserError(f"{name} is already the class in {taken}, so the one in {source} needs another class name")
        self._entries[name] = Entry(name, reference, _first_line(cls), "local")
        self._loaded[name] = cls
        self._adopted[name] = source
        self._note_code(name)
        return name

    def _target(self, name: str) -> str:
        return _target(self._loaded[name]) if name in self._loaded else self._entries[name].target

    def _scan_entry_points(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        for point in entry_points(group=self.group):
            origin = point.dist.name if point.dist else "unknown"
            name = f"{origin}/{point.name}"
            self._entries.setdefault(name, Entry(name, point.value, f"from {origin}", origin))


def looks_like_reference(text: str) -> bool:
    """Whether this is `path/file.py:Class` or `pkg.module:Class`; the preset of a task, `atr:paper`, is not."""
    place, _, attribute = text.rpartition(":")
    dotted = "." in place and all(part.isidentifier() for part in place.split("."))
    return attribute.isidentifier() and (place.endswith(".py") or dotted)


def _target(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


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
        "deltaproduct": (
            "mixerscope.mixers.deltaproduct:DeltaProduct",
            "several delta-rule updates a position, whose transitions multiply",
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
        "parity": ("mixerscope.tasks.words:Parity", "whether the ones so far are odd in number, at every position"),
        "group": ("mixerscope.tasks.words:GroupWord", "the product of the group elements so far: S3, Z6, A5, S5, ..."),
        "dyck": ("mixerscope.tasks.dyck:Dyck", "brackets of several types, nested up to a depth: which is innermost"),
        "flip_flop": ("mixerscope.tasks.flip_flop:FlipFlop", "what was written last, among inputs to ignore"),
    },
)
STAGES = Registry(
    "stage",
    {
        "patch": ("mixerscope.stages.patch:Patch", "activation patching at every site and role"),
        "patch_dev": ("mixerscope.stages.patch:PatchDev", "the same on dev documents, for tasks that hold pairs out"),
        "prove": ("mixerscope.stages.prove:Prove", "puts the routes that patching proposes to the proof"),
        "judge": ("mixerscope.stages.judge:Judge", "names the route from stored effects and proofs"),
        "emergence": ("mixerscope.stages.emergence:Emergence", "patching at the block boundaries while training"),
        "patterns": ("mixerscope.stages.patterns:RecordPatterns", "what heads attend to, and how large states are"),
        "lengths": ("mixerscope.stages.lengths:EvaluateLengths", "accuracy by length and position, of tracked states"),
        "erase": (
            "mixerscope.stages.erase:EraseStates",
            "what is lost when the state is erased",
        ),
        "interchange": (
            "mixerscope.stages.interchange:InterchangeStates",
            "puts another state in the middle of documents: do later answers go on from it",
        ),
        "align": (
            "mixerscope.stages.align:AlignStates",
            "exchanges parts between documents along learned and other subspaces: which part is the state",
        ),
        "recover": (
            "mixerscope.stages.recover:RecoverAnswers",
            "which activation brings an answer back after an input was changed, by boundary and position",
        ),
        "track": (
            "mixerscope.stages.track:TrackStates",
            "names how the state is tracked, from stored results",
        ),
        "probes": (
            "mixerscope.stages.probes:ProbeStates",
            "how well the state can be read at every site",
        ),
    },
)
OBJECTIVES = Registry(
    "objective",
    {"answer": ("mixerscope.training.objective:Answer", "cross-entropy at the scored positions")},
)
_KERNELS = {
    "decay_attention": "decay_attention:forward",
    "decay_attention_backward": "decay_attention:backward",
    "delta_rule": "delta_rule:forward",
    "delta_rule_backward": "delta_rule:backward",
    "diagonal_kernel": "diagonal_ssm:forward",
    "diagonal_kernel_backward": "diagonal_ssm:backward",
    "direct_conv": "direct_conv:forward",
    "direct_conv_backward": "direct_conv:backward",
    "direct_correlation": "direct_correlation:forward",
    "direct_correlation_backward": "direct_correlation:backward",
    "gru": "recurrent_cells:gru",
    "gru_backward": "recurrent_cells:gru_backward",
    "lstm": "recurrent_cells:lstm",
    "lstm_backward": "recurrent_cells:lstm_backward",
    "selective_scan": "selective_scan:forward",
    "selective_scan_backward": "selective_scan:backward",
    "residual_attention": "residual_attention:forward",
    "residual_attention_backward": "residual_attention:backward",
    "residual_mlp": "residual_mlp:forward",
    "residual_mlp_backward": "residual_mlp:backward",
    "look_up": "update:look_up",
    "add_rows": "update:add_rows",
    "adamw": "update:adamw",
    "head_loss": "head:forward",
    "head_loss_backward": "head:backward",
    "product": "stacked_product:product",
}
"""Operator to module and function in `mixerscope.kernels`; the modules import Triton, so nobody imports them early."""
KERNELS = Registry(
    "kernel", {name: (f"mixerscope.kernels.{place}", "a Triton kernel") for name, place in _KERNELS.items()}
)
REGISTRIES = {registry.kind: registry for registry in (MIXERS, ARCHITECTURES, TASKS, STAGES, OBJECTIVES)}


def register(kind: str, name: str, summary: str = "") -> Callable[[C], C]:
    """Class decorator: `@register("mixer", "mine")`."""
    if kind not in REGISTRIES:
        raise UnknownName("kind of component", kind, REGISTRIES)
    return REGISTRIES[kind].register(name, summary)


BASES = {
    "mixerscope.mixers.base:Mixer": MIXERS,
    "mixerscope.spec.architectures:Architecture": ARCHITECTURES,
    "mixerscope.tasks.base:Task": TASKS,
    "mixerscope.stages.base:Stage": STAGES,
    "mixerscope.training.objective:Objective": OBJECTIVES,
}
"""Which registry a class belongs to, by the class it is derived from."""


def use(reference: str) -> str:
    """Makes the class in `path/file.py:Class` or `pkg.module:Class` known, whatever kind it is; returns its name.

    Only for what a person typed: importing runs code.
    """
    return registry_of(reference).adopt(reference)


def registry_of(reference: str) -> Registry:
    """The registry that a class belongs to, named as for `use` and imported for it."""
    place, colon, attribute = reference.rpartition(":")
    if not colon or not attribute.isidentifier():
        raise UserError(f"{reference!r} names no class; write path/file.py:Class or pkg.module:Class")
    module, _ = import_place(place)
    cls = getattr(module, attribute, None)
    if not isinstance(cls, type):
        raise UnknownName(f"class in {place}", attribute, [k for k, v in vars(module).items() if isinstance(v, type)])
    for base in cls.__mro__[1:]:
        if _target(base) in BASES:
            return BASES[_target(base)]
    kinds = ", ".join(target.rpartition(":")[2] for target in BASES)
    raise UserError(f"{attribute} in {place} is derived from none of {kinds}, so it cannot be used here")


def architecture_entries() -> list[Entry]:
    """Everything that can stand as `model.architecture`: the patterns, then each mixer in every layer."""
    patterns = ARCHITECTURES.entries()
    taken = {entry.name for entry in patterns}
    return patterns + [entry for entry in MIXERS.entries() if entry.name not in taken]
