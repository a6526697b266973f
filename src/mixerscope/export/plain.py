"""A model as one file of plain PyTorch: its classes and functions, copied from where they stand, no import of ours.

What a class needs is found by name, from `Model` and the mixers on. Kernels, registries and specs are left out, and a
few lines stand in for them: operators run their plain bodies, which are the definitions.
"""

import ast
import importlib
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mixerscope.errors import MixerscopeError
from mixerscope.loading import import_place
from mixerscope.randomness import construction

if TYPE_CHECKING:
    from mixerscope.model import Model

OURS = "mixerscope"
Place = tuple[str, str]
"""A module, and a name in it."""
STAND_INS: Mapping[Place, str] = {
    ("mixerscope.kernels.choice", "body"): "def body(name, inputs, plain, **_):\n    return plain",
    ("mixerscope.kernels.choice", "few_documents"): "def few_documents(*tensors):\n    return tensors",
    ("mixerscope.kernels.choice", "wanted"): "def wanted():\n    return False",
    ("mixerscope.model.residual_mlp", "fits"): "def fits(x):\n    return False",
    ("mixerscope.model.residual_mlp", "residual_mlp"): "residual_mlp = None",
    ("mixerscope.mixers.ops.residual_attention", "residual_attention"): "residual_attention = None",
    ("mixerscope.spec.run", "ModelSpec"): "ModelSpec = SimpleNamespace",
    ("mixerscope.spec.architectures", "LayerSpec"): "LayerSpec = SimpleNamespace",
}
"""In place of what chooses kernels, of shortcuts that only training on a GPU takes, and of what reads specs."""
BUILD = '''def build(config):
    """The model that a `config.json` describes, in evaluation mode; `load_state_dict` gives it its weights."""
    settings = config["model"]
    blocks = [SimpleNamespace(**block) for block in settings["blocks"]]
    return Model(SimpleNamespace(**settings, layer_specs=lambda: blocks), config["vocab_size"]).eval()'''


class NoPlainSource(MixerscopeError):
    """The model's code cannot be copied into one file; the message says what is in the way."""


def plain_source(model: "Model", run_id: str) -> str:
    """The text of a module whose `build(config)` gives the model without weights; it needs torch and what outside
    mixers import. Tried before it is returned: with the weights of `model` it gives the same logits, bit by bit."""
    from mixerscope.mixers.ops.short_conv import ShortConv

    mixers = {
        layer.mixer: type(block.mixer) for layer, block in zip(model.spec.layer_specs(), model.layers(), strict=True)
    }
    bundle = _Bundle({OURS, *(cls.__module__.partition(".")[0] for cls in mixers.values())}, dict(STAND_INS))
    # Operators have names that all of torch sees: those of this file are not those of the package, nor of another file.
    bundle.stand_ins["mixerscope.mixers.ops.operator", "NAMESPACE"] = f'NAMESPACE = "model_{run_id}"'
    if not any(isinstance(part, ShortConv) for part in model.modules()):
        bundle.stand_ins["mixerscope.mixers.ops.short_conv", "ShortConv"] = "ShortConv = None"
    named = {name: bundle.add(cls.__module__, cls.__qualname__) for name, cls in mixers.items()}
    table = ", ".join(f"{name!r}: {out}" for name, out in named.items())
    bundle.stand_ins["mixerscope.registry", "MIXERS"] = f"MIXERS = SimpleNamespace(load={{{table}}}.__getitem__)"
    bundle.add("mixerscope.model.backbone", "Model")
    about = (
        f'"""{", ".join(mixers)} of run {run_id}, written out of mixerscope by `mixerscope export`: plain PyTorch."""'
    )
    bundle.imports.add(("types", "SimpleNamespace"))
    text = "\n\n\n".join([f"{about}\n\n{_statements(bundle.imports)}", *bundle.written, BUILD]) + "\n"
    _try(text, model)
    return text


def plain_settings(model: "Model") -> dict[str, Any]:
    """What `build` reads: every option written out."""
    spec = model.spec
    wanted = {"width": spec.width, "positions": spec.positions, "max_length": spec.max_length, "init": spec.init}
    return {**wanted, "blocks": [layer.model_dump() for layer in spec.layer_specs()]}


def _statements(imports: set[tuple[str, str]]) -> str:
    """As import statements. What nobody else can import is refused."""
    tops = {module.split(".")[0].split(" ")[0] for module, _ in imports} - {*sys.stdlib_module_names, "torch"}
    if tops and (missing := tops - {*packages_distributions()}):
        raise NoPlainSource(f"it imports {', '.join(sorted(missing))}, which is no installed package")
    by_module: dict[str, list[str]] = {}
    for module, name in sorted(imports):
        by_module.setdefault(module, []).append(name)
    whole = [f"import {module}" for module, names in by_module.items() if "" in names]
    parts = {module: ", ".join(filter(None, names)) for module, names in by_module.items()}
    return "\n".join([*whole, *(f"from {module} import {names}" for module, names in parts.items() if names)])


def _try(text: str, model: "Model") -> None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "modeling.py"
            path.write_text(text, encoding="utf-8")
            module, _ = import_place(str(path))
        del sys.modules[module.__name__]
        vocabulary = model.token_embedding.num_embeddings
        with construction(0):
            copied = module.build({"model": plain_settings(model), "vocab_size": vocabulary})
        copied.load_state_dict(model.state_dict())
        tokens = torch.arange(2 * min(12, model.spec.max_length)).remainder(vocabulary).view(2, -1)
        with torch.no_grad():
            same = torch.allclose(copied(tokens), model(tokens), rtol=0, atol=0, equal_nan=True)
    except Exception as error:  # somebody's mixer may do anything at all
        raise NoPlainSource(
            f"copied into one file it fails: {' '.join(f'{type(error).__name__}: {error}'.split())}"
        ) from error
    if not same:
        raise NoPlainSource("copied into one file it gives other logits")


@dataclass
class _Module:
    """The top level of a module: what it defines, and what it imports under which name."""

    text: str
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    imported: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str) -> "_Module":
        try:
            module = sys.modules.get(name) or importlib.import_module(name)
            made = cls(inspect.getsource(module))
        except (OSError, TypeError, ImportError) as error:
            raise NoPlainSource(f"the source of {name} is not at hand") from error
        package = module.__package__ or ""
        for statement in ast.parse(made.text).body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                made.defined[statement.name] = statement
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                found = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
                made.defined |= {target.id: statement for target in found}
            elif isinstance(statement, ast.Import):
                made.imported |= {(a.asname or a.name.partition(".")[0]): (a.name, None) for a in statement.names}
            elif isinstance(statement, ast.ImportFrom):
                whole = importlib.util.resolve_name("." * statement.level + (statement.module or ""), package)
                made.imported |= {(a.asname or a.name): (whole, a.name) for a in statement.names}
        return made

    def segment(self, statement: ast.stmt) -> tuple[list[str], int]:
        """Its lines, decorators included, and the number of the first."""
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
        return self.text.splitlines()[first - 1 : statement.end_lineno], first


@dataclass
class _Bundle:
    """Definitions in an order in which they can be run, each under a name of its own."""

    ours: set[str]
    """Top packages whose code is copied; others are imported."""
    stand_ins: dict[Place, str]
    written: list[str] = field(default_factory=list)
    imports: set[tuple[str, str]] = field(default_factory=set)
    """Modules, and what is taken from each: a name, `name as another`, or nothing, for the module itself."""
    names: dict[Place, str] = field(default_factory=dict)
    modules: dict[str, _Module] = field(default_factory=dict)

    def add(self, module: str, name: str) -> str:
        """Copies a definition, and first all that it needs; what it is called in the file."""
        place = (module, name)
        if place in self.names:
            return self.names[place]
        if place in self.stand_ins or module == "mixerscope.errors":
            self.names[place] = name
            self.written.append(self.stand_ins.get(place, f"class {name}(ValueError):\n    pass"))
            return name
        source = self._module(module)
        if name in source.imported:
            return self._imported(source.imported[name], name)
        if name not in source.defined:  # a package that looks names up when they are asked for
            found = getattr(importlib.import_module(module), name, None)
            if getattr(found, "__module__", module) == module:
                raise NoPlainSource(f"nobody knows where {module}.{name} is defined")
            return self.add(found.__module__, getattr(found, "__qualname__", name))
        self._define(module, source, source.defined[name])
        return self.names[place]

    def _module(self, name: str) -> _Module:
        if name not in self.modules:
            self.modules[name] = _Module.read(name)
        return self.modules[name]

    def _imported(self, target: tuple[str, str | None], alias: str) -> str:
        module, name = target
        if module.partition(".")[0] in self.ours and name is not None:
            return self.add(module, name)
        if name is None:
            self.imports.add((module if alias == module.partition(".")[0] else f"{module} as {alias}", ""))
        else:
            self.imports.add((module, name if alias == name else f"{name} as {alias}"))
        return alias

    def _define(self, module: str, source: _Module, statement: ast.stmt) -> None:
        for name in [name for name, at in source.defined.items() if at is statement]:
            taken = set(self.names.values())
            self.names[module, name] = name if name not in taken else f"{name}_{module.rpartition('.')[2]}"
        lines, first = source.segment(statement)
        changes: list[tuple[int, int, int, str]] = []
        for node in ast.walk(statement):
            if (new := self._renamed(module, source, node)) is not None:
                assert isinstance(node, ast.expr)
                assert node.end_col_offset is not None
                changes.append((node.lineno - first, node.col_offset, node.end_col_offset, new))
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            line = lines[statement.lineno - first]
            at = line.index(statement.name, line.index(" "))
            changes.append((statement.lineno - first, at, at + len(statement.name), self.names[module, statement.name]))
        for line, start, end, new in sorted(set(changes), reverse=True):
            text = lines[line].encode()
            lines[line] = (text[:start] + new.encode() + text[end:]).decode()
        self.written.append("\n".join(lines))

    def _renamed(self, module: str, source: _Module, node: ast.AST) -> str | None:
        """What a name, or a name of a module of ours, is called in the file; None for what is not of the top level."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            target = source.imported.get(node.value.id)
            whole = _module_of(target) if target else None
            return self.add(whole, node.attr) if whole and whole.partition(".")[0] in self.ours else None
        if not isinstance(node, ast.Name) or (node.id not in source.defined and node.id not in source.imported):
            return None
        target = source.imported.get(node.id)
        if target and (whole := _module_of(target)) and whole.partition(".")[0] in self.ours:
            return None  # a module of ours: what is taken from it is copied
        return self.add(module, node.id)


def _module_of(target: tuple[str, str | None]) -> str | None:
    """The module that an import binds, if it binds one."""
    module, name = target
    whole = module if name is None else f"{module}.{name}"
    try:
        found = importlib.util.find_spec(whole)
    except (ImportError, AttributeError, ValueError):
        return None
    return whole if found else None
