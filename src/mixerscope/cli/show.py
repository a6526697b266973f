"""`mixerscope show`: everything a name stands for."""

import inspect
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import UnknownName, UserError

if TYPE_CHECKING:
    from mixerscope.mixers import Mixer
    from mixerscope.spec import Spec
    from mixerscope.tasks import Task

PROBES = (7, 11)
"""Lengths at which the shapes of sites are read: an axis that differs between the two is a position."""


def show(name: str, /, *, width: int = 64, length: int = 35, layers: int = 2) -> int:
    """Everything there is to know about a mixer, an architecture, a task, a stage or an objective.

    Parameters
    ----------
    name
        `mixerscope ls` lists the names; `file.py:Class` for one of your own.
    width
        Width at which parameters and state are counted.
    length
        Tokens after which the state is counted.
    layers
        Depth of an architecture.
    """
    from mixerscope.registry import (
        ARCHITECTURES,
        MIXERS,
        OBJECTIVES,
        REGISTRIES,
        STAGES,
        TASKS,
        looks_like_reference,
        use,
    )
    from mixerscope.spec import task_object

    for option, value in (("--width", width), ("--length", length), ("--layers", layers)):
        if value < 1:
            raise UserError(f"{option} = {value} should be at least 1")
    name = use(name) if looks_like_reference(name) else name
    task = task_object(name)["name"]
    if task not in TASKS and not any(name in registry for registry in REGISTRIES.values()):
        raise UnknownName("component", name, [n for r in REGISTRIES.values() for n in r.names()])
    console = results()
    if name in MIXERS:
        _show_mixer(console, name, MIXERS.load(name), width, length)
    if name in ARCHITECTURES or name in MIXERS:
        _show_architecture(console, name, width, layers)
    if task in TASKS:
        _show_task(console, name)
    for registry in (STAGES, OBJECTIVES):
        if name in registry:
            _show_settings(console, registry.kind, name, registry.load(name))
    return 0


def _heading(console: Console, kind: str, name: str, cls: type) -> None:
    console.print(Text(f"{kind} {name}", "bold"))
    console.print(inspect.getdoc(cls) or "", markup=False, soft_wrap=True)
    console.print()


def _facts(console: Console, facts: dict[str, str]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(Text(name, "dim"), Text(value))
    console.print(table)
    console.print()


def _show_mixer(console: Console, name: str, cls: type["Mixer"], width: int, length: int) -> None:
    from mixerscope.cli.fields import fields_table
    from mixerscope.model import parameter_count
    from mixerscope.spec.options import options_model

    _heading(console, "mixer", name, cls)
    block = f"{cls.block_norm} norm, {'an MLP' if cls.block_mlp else 'no MLP'}, "
    block += "learned positions" if cls.wants_positions else "no positions"
    facts = {"equation": cls.equation, "paper": cls.paper, "its block": block}
    options = options_model(cls)
    missing = [option for option, field in options.model_fields.items() if field.is_required()]
    if missing:
        _facts(console, {**facts, "sizes": f"not known without a value for {', '.join(missing)}"})
        console.print(fields_table(options, "option"))
        return
    mixer = _build(cls, width)
    facts |= {
        f"parameters at width {width}": f"{parameter_count(mixer):,}",
        f"state after {length} tokens": f"{mixer.state_size(length):,} numbers",
    }
    if cls.movers:
        facts["moves information"] = ", ".join(f"{mover.component} (site {mover.site})" for mover in cls.movers)
    _facts(console, {key: value for key, value in facts.items() if value})
    if options.model_fields:
        console.print(fields_table(options, "option"))
        console.print(f"set one with --set model.options.{next(iter(options.model_fields))}=...", markup=False)
        console.print()
    sites = plain_table("site", f"shape at width {width}")
    for site, shape in _site_shapes(mixer, width).items():
        sites.add_row(f"blocks.i.mixer.{site}", Text(shape))
    console.print(sites)
    console.print()


def _show_settings(console: Console, kind: str, name: str, cls: "type[Spec]") -> None:
    from mixerscope.cli.fields import fields_table

    _heading(console, kind, name, cls)
    console.print(fields_table(cls, "setting"))
    if kind == "stage" and cls.model_fields:
        console.print(f"set one with --set stages.{name}.{next(iter(cls.model_fields))}=...", markup=False)
    for field, value in cls.model_fields.items():
        if isinstance(value.annotation, type) and hasattr(value.annotation, "model_fields"):
            console.print()
            console.print(fields_table(value.annotation, f"{field}."))
    console.print()


def _build(cls: type["Mixer"], width: int) -> "Mixer":
    from mixerscope.mixers import InitRule
    from mixerscope.randomness import construction, stream

    with construction(0):
        mixer = cls(width)
    mixer.init_weights(stream(0, "show"), InitRule(depth=1))
    return mixer.eval()


def _site_shapes(mixer: "Mixer", width: int) -> dict[str, str]:
    """Of each site: b for documents, t for positions, numbers for the rest."""
    import torch

    from mixerscope.sites import named_sites, record

    shapes: list[dict[str, tuple[int, ...]]] = []
    for length in PROBES:
        with torch.no_grad(), record(mixer, named_sites(mixer)) as found:
            mixer(torch.zeros(1, length, width))
        shapes.append({site: tuple(value.shape) for site, value in found.items()})

    def words(short: tuple[int, ...], long: tuple[int, ...]) -> str:
        axes = [str(a) if a == b else "t" for a, b in zip(short, long, strict=True)]
        return f"[{', '.join(['b', *axes[1:]])}]"

    return {site: words(shape, shapes[1][site]) for site, shape in shapes[0].items()}


def _show_architecture(console: Console, name: str, width: int, layers: int) -> None:
    from mixerscope.cli.fields import fields_table
    from mixerscope.registry import ARCHITECTURES, MIXERS
    from mixerscope.spec import ModelSpec, parse
    from mixerscope.spec.options import options_model

    if name in ARCHITECTURES:
        cls = ARCHITECTURES.load(name)
        _heading(console, "architecture", name, cls)
        console.print(fields_table(cls, "option"))
        console.print()
        options = cls
    else:
        options = options_model(MIXERS.load(name))
        console.print(Text(f"architecture {name}", "bold"))
    if any(field.is_required() for field in options.model_fields.values()):
        return
    spec: ModelSpec = parse(ModelSpec, {"architecture": name, "width": width, "layers": layers})
    console.print(f"{layers} layers, positions: {spec.positions}")
    table = plain_table("layer", "mixer", "options", "MLP", "norm")
    for index, layer in enumerate(spec.layer_specs()):
        options = ", ".join(f"{key}={value}" for key, value in layer.options.items())
        table.add_row(str(index), layer.mixer, Text(options), "yes" if layer.mlp else "no", str(layer.norm))
    console.print(table)
    console.print()


def _show_task(console: Console, name: str) -> None:
    """A task and one of its settings: the defaults, or the preset behind a colon."""
    from mixerscope.cli.documents import document_text, legend
    from mixerscope.cli.fields import fields_table
    from mixerscope.cli.settings import parse_task
    from mixerscope.randomness import stream
    from mixerscope.registry import TASKS
    from mixerscope.spec import task_object

    named = task_object(name)
    cls = TASKS.load(named["name"])
    if "preset" not in named and any(field.is_required() for field in cls.model_fields.values()):
        _heading(console, "task", name, cls)
        console.print(fields_table(cls, "field"))
        return
    task = parse_task(name, {})
    _heading(console, "task", name, cls)
    console.print(fields_table(cls, "field"))
    console.print()
    if cls.presets:
        presets = plain_table("preset", "what it sets")
        for preset, fields in cls.presets.items():
            presets.add_row(f"{named['name']}:{preset}", Text(", ".join(f"{k}={v}" for k, v in fields.items())))
        console.print(presets)
        console.print()
    batch = task.sample(1, stream(0, "show"))
    facts = {
        "vocabulary": f"{task.vocab_size:,} tokens",
        "longest document": f"{task.max_length} tokens",
        "slots that can be corrupted": ", ".join(task.slots),
        "counterfactuals with a known answer": ", ".join(task.single_query().counterfactuals),
        "roles": ", ".join(batch.roles),
        "labels": ", ".join(batch.labels),
    }
    _facts(console, {key: value for key, value in facts.items() if value})
    _show_guessing(console, task)
    console.print(f"one document, with {'the preset' if 'preset' in named else 'the defaults'}:")
    console.print(document_text(task, batch, 0))
    console.print(legend(batch))


def _show_guessing(console: Console, task: "Task") -> None:
    """What accuracy means nothing, and what accuracy nobody can have."""
    from mixerscope.tasks.baselines import ceiling, guessing_baselines

    guesses = plain_table("guessing by", "rule", "accuracy")
    for guess in guessing_baselines(task):
        guesses.add_row(guess.name, Text(guess.rule), f"{guess.accuracy:.1%}")
    console.print(guesses)
    console.print(f"documents that mean one answer only: {ceiling(task):.1%}")
    console.print()
