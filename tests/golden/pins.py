"""What is pinned of each mixer, model, task and set of defaults; `pipeline.py` has the trainer and the stages."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from torch import Tensor, nn

from mixerscope.analysis import Rules
from mixerscope.check.subject import Subject
from mixerscope.errors import UserError
from mixerscope.model import build_model
from mixerscope.registry import ARCHITECTURES, MIXERS, OBJECTIVES, STAGES, TASKS, Entry, Registry, architecture_entries
from mixerscope.sites import named_sites, record
from mixerscope.spec import ModelSpec, TrainSpec
from mixerscope.spec.base import Spec
from mixerscope.spec.options import options_model
from mixerscope.tasks.base import SPLITS, SYMBOLS, Batch, Task

Revision = int | dict[str, int]

WIDTH, VOCABULARY, MODEL_SEED = 16, 16, 3
COORDINATES = ((0, 0, 0), (0, 3, 5), (0, 8, 15), (1, 1, 7), (1, 5, 2), (1, 8, 11))
"""Document, position and channel (or token) of the numbers that are kept."""
DOCUMENTS = 200
LATER = ("query",)
"""Slots that tasks got when others were on record: cases of their own, as a recorded case takes no new keys."""
DEFAULTS = "defaults"
"""The case of a component as it is when nothing is set."""
NEEDED = "(no default)"

MIXER_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "attention": [{"heads": 4}, {"relative": "rope"}, {"heads": 4, "relative": "alibi"}],
    "base_conv": [
        {"kernel": 1},
        {"kernel": "long"},
        {"kernel": "long", "filter_length": 32, "train_time_features": False},
    ],
    "deltanet": [{"heads": 4}, {"d_conv": 0}, {"d_conv": 2}, {"negative_eigenvalues": True}],
    "h3": [{"head_dim": 4}, {"d_state": 8}],
    "hyena": [
        {"filter_skip": True},
        {"kernel": 1, "filter_order": 8, "filter_length": 32},
        {"train_time_features": False},
    ],
    "linear_attention": [{"feature_dim": 3}],
    "mamba": [{"d_conv": 0}, {"d_conv": 2}, {"d_state": 4, "expand": 1}, {"signed": True}],
    "sliding_window": [{"heads": 4}, {"window": 3}],
    "mamba2": [{"heads": 4}, {"d_conv": 0}, {"d_state": 8, "expand": 1}],
    "gla": [{"heads": 2}, {"gate_rank": 4}],
    "gated_deltanet": [{"heads": 4}, {"d_conv": 0}, {"expand_v": 1}, {"negative_eigenvalues": True}],
    "deltaproduct": [{"heads": 4}, {"d_conv": 0}, {"factors": 3}, {"negative_eigenvalues": False}],
    "retnet": [{"heads": 2}, {"expand_v": 1}, {"rotary": False}],
    "rwkv7": [{"heads": 4}, {"rank": 4}],
    "lstm": [{"forget_bias": 0.0}],
    "gru": [{"reset_after": True}],
}
"""Options to try beside the defaults; each option of a mixer stands in one of them."""

SOME_LAYERS = [{"mixer": "attention", "short_conv": 4}, {"mixer": "mamba", "mlp": True, "norm": "layer"}]
PATTERN_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "pattern": [
        {"layers": SOME_LAYERS},
        {"layers": [{"mixer": "gru"}]},
        {"layers": [{"mixer": "gru", "residual": False, "norm": "none", "mlp": False}]},
    ],
    "base_conv": [{}, {"kernels": ["long"]}, {"kernels": [2], "filter_length": 32}, {"train_time_features": False}],
    "based": [{}, {"kernel": "long", "filter_length": 32, "train_time_features": False}, {"feature_dim": 4}],
}
"""Options of each layer pattern; `pattern` has no defaults to try."""


@dataclass(frozen=True)
class Pinned:
    """What a component does now, under its revision."""

    what: str
    """`mixer attention`"""
    owners: str
    """The classes of which one gets a new revision when a case changes."""
    revision: Revision
    """For a model, that of each of its parts."""
    cases: dict[str, Any]
    """Name of a setting to what is found there, as JSON."""
    new_cases_pass: bool = False
    """Whether a case that is not recorded yet is fine: what it does without the new field is pinned elsewhere."""


def built_in(entries: list[Entry]) -> list[str]:
    return [entry.name for entry in entries if entry.origin == "mixerscope"]


@contextmanager
def double_precision() -> Iterator[None]:
    """Draws weights in float64. Torch's float32 normals differ in their last bits between kinds of CPU, by far more
    than any tolerance that is worth having; float64 ones differ by 1e-15."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def mean_abs(values: Tensor) -> float:
    return values.detach().abs().mean().item()


def numbers(output: Tensor) -> dict[str, Any]:
    return {"at": [output[at].item() for at in COORDINATES], "mean_abs": mean_abs(output)}


def weights(module: nn.Module) -> dict[str, float]:
    return {name: mean_abs(parameter) for name, parameter in module.named_parameters()}


def case_name(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items()) or DEFAULTS


def mixer_pins(name: str) -> Pinned:
    cls = MIXERS.load(name)
    cases = {}
    with double_precision(), torch.no_grad():
        for options in [{}, *MIXER_VARIANTS.get(name, [])]:
            subject = Subject(cls, name, WIDTH, options)
            documents = subject.documents(2, 9)
            fresh, stirred = subject.fresh(), subject.build()
            # Interventions read and write at sites, so what stands there belongs to what a mixer computes.
            with record(stirred, named_sites(stirred)) as activations:
                output = stirred(documents)
            cases[case_name(options)] = {
                "output": numbers(output),
                "fresh_output": numbers(fresh(documents)),
                "fresh_weights": weights(fresh),
                "sites": {site: mean_abs(values) for site, values in activations.items()},
                "moves": {mover.component: mover.site for mover in stirred.movers},
            }
    return Pinned(f"mixer {name}", cls.__name__, cls.revision, cases)


def model_pins(name: str) -> Pinned:
    rows, columns = torch.arange(2)[:, None], torch.arange(9)
    tokens = (5 * rows + 3 * columns + columns**2) % VOCABULARY
    cases: dict[str, Any] = {}
    parts: dict[str, int] = {"backbone": ModelSpec.revision}
    owners: dict[str, None] = {ModelSpec.__name__: None}
    if name in ARCHITECTURES:
        pattern = ARCHITECTURES.load(name)
        parts[f"architecture {name}"], owners[pattern.__name__] = pattern.revision, None
    for options in PATTERN_VARIANTS.get(name, [{}]):
        for init in ("reference", "small_model"):
            settings = {"architecture": name, "width": WIDTH, "max_length": 9, "options": options, "init": init}
            spec = ModelSpec.model_validate(settings)
            for layer in spec.layer_specs():
                mixer = MIXERS.load(layer.mixer)
                parts[f"mixer {layer.mixer}"], owners[mixer.__name__] = mixer.revision, None
            with double_precision(), torch.no_grad():
                model = build_model(spec, VOCABULARY, MODEL_SEED).double()
                cases[case_name({**options, "init": init})] = {
                    "logits": numbers(model(tokens)),
                    "fresh_weights": weights(model),
                }
    return Pinned(f"model {name}", " or ".join(owners), parts, cases)


def task_pins(name: str) -> Pinned:
    cls = TASKS.load(name)
    cases: dict[str, Any] = {}
    tasks = {DEFAULTS: cls()} | {f"preset {preset}": cls.preset(preset) for preset in cls.presets}
    for case, task in tasks.items():
        cases[case] = documents_of(task)
        cases |= {f"{case}, {slot} corrupted": corrupted_at(task, slot) for slot in task.slots if slot in LATER}
        for kind in task.single_query().counterfactuals:
            cases[f"{case}, counterfactual {kind}"] = counterfactual_of(task, kind)
    return Pinned(f"task {name}", cls.__name__, cls.revision, cases)


def documents_of(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {"vocab_size": task.vocab_size, "max_length": task.max_length}
    for split in SPLITS:
        batch = task.sample(DOCUMENTS, generator(0), split)
        found[split] = batch.sha256()
        # `sha256` leaves labels out, by which results are grouped and trees are read.
        found[f"{split} labels"] = replace(batch, roles=batch.labels).sha256()
        found[f"{split} answers"] = hash_of(task.solve(batch))
    single = task.single_query()
    batch = single.sample(DOCUMENTS, generator(0))
    found["single query"] = batch.sha256()
    for slot in single.slots:
        if slot not in LATER:
            found |= corrupted_at(task, slot)
    return found


def corrupted_at(task: Task, slot: str) -> dict[str, Any]:
    single, found = task.single_query(), {}
    batch = single.sample(DOCUMENTS, generator(0))
    for symbols in SYMBOLS:
        other = single.corrupt(batch, slot, generator(1), symbols)
        found[f"corrupt {slot} {symbols}"] = other.sha256()
        found[f"corrupt {slot} {symbols} answers"] = hash_of(single.read_answers(other))
    plain = single.corrupt(batch, slot, generator(1))
    some = batch[single.answer_changes(plain)]  # in others no symbol may be able to
    found[f"corrupt {slot} change_answer"] = single.corrupt(some, slot, generator(2), change_answer=True).sha256()
    found[f"corrupt {slot} avoid_present"] = corrupted_or_refused(single, batch, slot)
    return found


def counterfactual_of(task: Task, kind: str) -> dict[str, Any]:
    single = task.single_query()
    made = single.counterfactual(kind, single.sample(DOCUMENTS, generator(0)), generator(1))
    return {"documents": made.sha256(), "changed": int(made.labels["changed"].sum())}


def corrupted_or_refused(task: Task, batch: Batch, slot: str) -> str:
    try:
        return task.corrupt(batch, slot, generator(1), avoid_present=True).sha256()
    except UserError:  # with few symbols, some documents hold them all
        return "refused"


def hash_of(answers: Tensor) -> str:
    return Batch(answers, answers).sha256()


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def default_pins(kind: str, name: str) -> Pinned:
    cls = REGISTRY_OF[kind].load(name)
    found = defaults_of(f"{kind} {name}", cls, options_model(cls) if kind == "mixer" else cls)
    for spec in READS.get((kind, name), ()):
        found.cases.update(defaults(spec, f"{spec.__name__}."))
    return found


def defaults_of(what: str, cls: Any, fields: type[BaseModel]) -> Pinned:
    """The defaults that the model `fields` has for the component `cls`; a field that came since is no change."""
    return Pinned(f"defaults of {what}", cls.__name__, cls.revision, dict(defaults(fields)), new_cases_pass=True)


def defaults(cls: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each field and its default, and the same of the specs that can stand in it."""
    for name, field in cls.model_fields.items():
        value = NEEDED if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, Spec):
            # What differs from its class only: a field that is new there is no change of this default.
            value = {type(value).__name__: value.model_dump(mode="json", exclude_defaults=True)}
        yield f"{prefix}{name}", to_jsonable_python(value)
        for inner in specs_in(field.annotation):
            yield from defaults(inner, f"{prefix}{name}[{inner.__name__}].")


def specs_in(annotation: Any) -> list[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [spec for part in get_args(annotation) for spec in specs_in(part)]


REGISTRY_OF: dict[str, Registry] = {
    "mixer": MIXERS,
    "architecture": ARCHITECTURES,
    "task": TASKS,
    "stage": STAGES,
    "objective": OBJECTIVES,
}
READS: dict[tuple[str, str], tuple[type[Spec], ...]] = {("stage", "emergence"): (Rules,)}
"""Specs whose defaults a component uses though none of its fields holds one."""

Maker = Callable[[], Pinned]


def component_makers() -> dict[str, dict[str, Maker]]:
    """File to component to what makes its pins, so that a test can make one at a time."""

    def each(names: list[str], pins: Callable[[str], Pinned]) -> dict[str, Maker]:
        return {name: lambda name=name: pins(name) for name in names}

    specs = {"model": ModelSpec, "train": TrainSpec}
    return {
        "mixers": each(built_in(MIXERS.entries()), mixer_pins),
        "models": each(built_in(architecture_entries()), model_pins),
        "tasks": each(built_in(TASKS.entries()), task_pins),
        "defaults": {
            f"{kind} {name}": lambda kind=kind, name=name: default_pins(kind, name)
            for kind, registry in REGISTRY_OF.items()
            for name in built_in(registry.entries())
        }
        | {what: lambda what=what, cls=cls: defaults_of(what, cls, cls) for what, cls in specs.items()},
    }
