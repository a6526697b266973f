"""What tells one training, or one analysis, from every other: the things that are hashed into an id.

An id holds names, revisions and settings that differ from the defaults of that revision, and the source of code from
outside. So a new field or option whose default keeps the old behaviour changes no id; a changed default, or changed
behaviour, raises the revision of its own component and moves the ids of what uses it, and no others.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mixerscope.registry import ARCHITECTURES, MIXERS, OBJECTIVES, STAGES, TASKS, Registry
from mixerscope.spec.architectures import LayerSpec, Pattern
from mixerscope.spec.base import Spec, digest
from mixerscope.spec.options import options_model

if TYPE_CHECKING:
    from mixerscope.spec.run import ModelSpec, RunSpec

LENGTH = 12
"""Hexadecimal digits of an id: two of a million runs share one with a chance of 1 in 500."""


def id_of(identity: Mapping[str, Any]) -> str:
    """The id of what this identity names."""
    return digest(identity)[:LENGTH]


def training_identity(spec: "RunSpec") -> dict[str, Any]:
    """Of a training: the task, the model, how it is trained, the seeds. What is done with the model has its own."""
    train = _without_defaults(spec.train, leave_out=("objective",))
    if spec.train.objective is not None:
        train["objective"] = _component(OBJECTIVES, spec.train.objective)
    identity: dict[str, Any] = {
        "task": _component(TASKS, spec.task),
        "model": _model(spec.model),
        "train": {"revision": spec.train.revision, "settings": train},
    }
    seeds = {name: seed for name in ("seed", "data_seed") if (seed := getattr(spec, name))}
    return {**identity, **seeds}


def stage_identity(name: str, stage: Spec, needs: Mapping[str, str]) -> dict[str, Any]:
    """Of an analysis: the stage, its settings, and the ids of the stages whose results it reads."""
    component = _component(STAGES, stage)
    del component["name"]
    identity = {"stage": name, **component}
    return {**identity, "needs": dict(needs)} if needs else identity


def outside_code(spec: "RunSpec") -> dict[str, dict[str, str]]:
    """Components of a run that are not ours, and what says which code they are."""
    named = [(TASKS, TASKS.name_of(type(spec.task))), *((MIXERS, name) for name in _mixers(spec.model))]
    if spec.model.architecture in ARCHITECTURES:
        named.append((ARCHITECTURES, spec.model.architecture))
    if spec.train.objective is not None:
        named.append((OBJECTIVES, OBJECTIVES.name_of(type(spec.train.objective))))
    found = {f"{registry.kind} {name}": registry.code(name) for registry, name in named}
    return {name: code for name, code in found.items() if code is not None}


def _component(registry: Registry, value: Any) -> dict[str, Any]:
    name = registry.name_of(type(value))
    return {"name": name, **_version(registry, name), "settings": _without_defaults(value)}


def _version(registry: Registry, name: str) -> dict[str, Any]:
    code = registry.code(name)
    return {"revision": registry.load(name).revision, **({} if code is None else {"code": code})}


def _model(model: "ModelSpec") -> dict[str, Any]:
    settings = _without_defaults(model)
    for implied in ("architecture", "options"):
        settings.pop(implied, None)
    settings.pop("positions", None)
    if model.positions != model.usual_positions:
        settings["positions"] = model.positions
    name = model.architecture
    if name in ARCHITECTURES:
        pattern = ARCHITECTURES.load(name)
        own = _without_defaults(pattern.model_validate(model.options))
        if issubclass(pattern, Pattern):
            own["layers"] = [_layer(layer) for layer in pattern.model_validate(model.options).layers]
        architecture = {"name": name, **_version(ARCHITECTURES, name), "settings": own}
    else:
        architecture = {"name": name, "settings": options_without_defaults(name, model.options)}
    return {
        "revision": model.revision,
        "architecture": architecture,
        "mixers": {mixer: _version(MIXERS, mixer) for mixer in _mixers(model)},
        "settings": settings,
    }


def _mixers(model: "ModelSpec") -> list[str]:
    return sorted({layer.mixer for layer in model.layer_specs()})


def _layer(layer: LayerSpec) -> dict[str, Any]:
    """A block as someone would write it who relies on the mixer's own defaults."""
    mixer = MIXERS.load(layer.mixer)
    found: dict[str, Any] = {"mixer": layer.mixer}
    if options := options_without_defaults(layer.mixer, layer.options):
        found["options"] = options
    usual = {"mlp": mixer.block_mlp, "norm": mixer.block_norm}
    rest = _without_defaults(layer)
    return found | {
        name: value
        for name, value in rest.items()
        if name not in ("mixer", "options") and not (name in usual and usual[name] == value)
    }


def options_without_defaults(mixer: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a mixer that are not what its class would take anyway."""
    model = options_model(MIXERS.load(mixer))
    return model.model_validate(dict(options)).model_dump(mode="json", exclude_defaults=True)


def _without_defaults(value: Spec, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude_defaults=True, exclude=set(leave_out))
