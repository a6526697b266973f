"""Reference pages out of the code: commands with their options, spec fields with their defaults, public names."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

import mixerscope
from mixerscope.cli import VERBS, make_app
from mixerscope.cli.fields import type_name
from mixerscope.registry import ARCHITECTURES, MIXERS, OBJECTIVES, OURS, STAGES, TASKS, Registry
from mixerscope.spec import LayerSpec, ModelSpec, RunSpec, TrainSpec
from mixerscope.spec.options import options_model

NOTE = "*Written from the code of version {version} by `make docs`.*"


def reference_pages() -> dict[str, str]:
    """Path below the docs to Markdown."""
    return {
        "reference/cli.md": commands_page(),
        "reference/spec.md": spec_page(),
        "reference/components.md": components_page(),
        "reference/api.md": api_page(),
    }


def _page(title: str, about: str, parts: Iterator[str]) -> str:
    note = NOTE.format(version=mixerscope.__version__)
    return "\n\n".join([f"# {title}", about, *parts, note]) + "\n"


# Commands


def commands_page() -> str:
    about = (
        "`mixerscope COMMAND --help` prints the same. Exit codes: 0 fine, 1 a run failed or a file is damaged, 2 the"
        " input is wrong; results go to stdout, progress and complaints to stderr."
    )
    return _page("Commands", about, _commands())


def _commands() -> Iterator[str]:
    app = make_app()
    for verb, (_, summary, example) in VERBS.items():
        yield f"## mixerscope {verb}"
        yield f"{summary}\n\nExample: `{example}`"
        inner = [name for name in app[verb] if not name.startswith("-")]
        if not inner:
            yield _options(app[verb])
        for name in inner:
            yield f"### mixerscope {verb} {name}"
            yield _first_paragraph(app[verb][name].default_command)
            yield _options(app[verb][name])


def _options(command: Any) -> str:
    rows = []
    for argument in arguments(command):
        usual = "required" if argument.required else _default(argument.field_info.default)
        rows.append((f"`{argument.names[0]}`", type_name(argument.hint), usual, argument.parameter.help or ""))
    return _table(("option", "type", "default", "meaning"), rows) if rows else "No options."


def arguments(command: Any) -> list[Any]:
    """What a command takes; a group of options that others share is taken apart."""
    return [found for found in command.assemble_argument_collection(parse_docstring=True) if found.names != ("*",)]


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value is None:
        return "–"
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{json.dumps(value, default=str)}`" if value != "" else "–"


# Specs


def spec_page() -> str:
    about = (
        "A run is a spec: JSON, or `ms.RunSpec` in Python. Every path below can be set on the command line, as in"
        " `--set train.lr=3e-3`. An unknown key is an error. `mixerscope new spec` writes one out in full. Tasks,"
        " stages and mixers have fields of their own: [components](components.md)."
    )
    return _page("Spec fields", about, _specs())


def _specs() -> Iterator[str]:
    for cls, path in (
        (RunSpec, ""),
        (ModelSpec, "model."),
        (TrainSpec, "train."),
        (LayerSpec, "model.options.layers[]."),
        (mixerscope.Sweep, ""),
    ):
        yield f"## {cls.__name__}"
        yield _first_paragraph(cls)
        yield _fields(cls, path)
    for cls, what in (
        (mixerscope.PairSettings, "`stages.patch` takes these too"),
        (mixerscope.Rules, "`stages.judge.rules.`"),
    ):
        yield f"## {cls.__name__}"
        yield f"{_first_paragraph(cls)} ({what})"
        yield _fields(cls, "")


def components_page() -> str:
    about = (
        "Everything that can be named in a spec, with its own fields. `mixerscope show NAME` says more of each:"
        " equation, sites, parameters, state, guessing baselines. Your own ones: [a mixer](../howto/own-mixer.md),"
        " [a task](../howto/own-task.md)."
    )
    return _page("Components", about, _components())


def _components() -> Iterator[str]:
    kinds: tuple[tuple[str, Registry, str], ...] = (
        ("Tasks", TASKS, "task."),
        ("Mixers", MIXERS, "model.options."),
        ("Layer patterns", ARCHITECTURES, "model.options."),
        ("Stages", STAGES, "stages.{name}."),
        ("Objectives", OBJECTIVES, "train.objective."),
    )
    for title, registry, path in kinds:
        yield f"## {title}"
        for entry in registry.entries():
            if entry.origin != OURS:
                continue
            cls = registry.load(entry.name)
            yield f"### {entry.name}"
            yield f"{entry.summary[0].upper()}{entry.summary[1:]}."
            yield _fields(options_model(cls) if registry is MIXERS else cls, path.format(name=entry.name))


def _fields(cls: type[BaseModel], path: str) -> str:
    rows = []
    for name, field in cls.model_fields.items():
        usual = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        rows.append((f"`{path}{name}`", type_name(field.annotation), usual, field.description or ""))
    return _table(("field", "type", "default", "meaning"), rows) if rows else "No fields."


# Python


def api_page() -> str:
    about = (
        "Everything that `import mixerscope as ms` offers. Names that are not here may change without notice. Classes"
        " with fields of a spec are in [spec fields](spec.md)."
    )
    return _page("Python names", about, _names())


def _names() -> Iterator[str]:
    for name in sorted({*dir(mixerscope)} - {"__version__"}):
        found = getattr(mixerscope, name)
        yield f"## {name}"
        if not callable(found):
            yield f"`{name} = {found!r}`"
            continue
        yield f"```text\n{_signature(name, found)}\n```"
        yield _prose(inspect.getdoc(found) or "")
        if inspect.isclass(found):
            yield from _members(found)


def _signature(name: str, found: Callable[..., Any]) -> str:
    if inspect.isclass(found) and issubclass(found, BaseModel):
        return f"{name}(...)  # its fields: {', '.join(found.model_fields)}"
    try:
        signature = inspect.signature(found)
    except ValueError:
        return name
    text = _short(f"{name}{signature}")
    if len(text) <= 100:
        return text
    parts = [
        re.sub(r"\b(?:[a-z_0-9]+\.)+([A-Za-z])", r"\1", str(p)).replace("'", "") for p in signature.parameters.values()
    ]
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def _short(text: str) -> str:
    """Types without the modules they are in."""
    return re.sub(r"\b(?:[a-z_0-9]+\.)+([A-Za-z])", r"\1", text).replace("'", "")


def _members(cls: type) -> Iterator[str]:
    """Methods and properties that the class itself defines and says something of."""
    rows = []
    for name, member in vars(cls).items():
        member = getattr(member, "__func__", member)
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        said = _first_paragraph(member)
        if said:
            rows.append((f"`{name}`", said))
    if rows:
        yield _table(("of it", "meaning"), rows)


def _first_paragraph(found: Any) -> str:
    return _prose((inspect.getdoc(found) or "").partition("\n\n")[0])


def _prose(text: str) -> str:
    """Lines of a paragraph joined; what could be taken for a tag is none."""
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", re.sub(r"(?<=\S)\n(?=\S)", " ", text))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
