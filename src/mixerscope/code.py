"""Which code a class from outside the package is, so that results of different code are never taken for one another.

A class of an installed distribution is told by its version. Anything else (a file, a script, an editable install, a
notebook cell) is told by a hash over its source and over the local sources it imports, found by reading import
statements, never by running them. Modules imported by a computed name and files of data are not seen.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import linecache
import os
import re
import symtable
import sys
import sysconfig
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from mixerscope.errors import UserError
from mixerscope.values import is_simple, told

ROOT = ""
"""Stands for the name of a file that was loaded by its path, so that the path is no part of the identity."""
LOCAL = "mixerscope_local_"
"""Start of the private names under which files are loaded by their path."""

_OWN = Path(__file__).resolve().parent
_STDLIB = {Path(sysconfig.get_path("stdlib")).resolve(), Path(os.__file__).resolve().parent}
_SITES = {"site-packages", "dist-packages"}


def code_identity(cls: type) -> dict[str, str] | None:
    """What tells the code of a class from other code: `distribution` and `version`, or `sha256`; None for our own."""
    if cls.__module__.partition(".")[0] == "mixerscope":
        return None
    module = sys.modules.get(cls.__module__)
    file = _file_of(cls, module)
    if module is None or file is None:
        return {"sha256": _digest(_Cell(cls).parts)}
    if file.is_relative_to(_OWN):
        return None
    return _distribution(file) or {"sha256": _digest({"class": cls.__qualname__, **_file_parts(cls.__module__, file)})}


# Code in files.


@dataclass(frozen=True)
class _Place:
    file: Path | None
    inside: tuple[str, ...] = ()
    """Folders in which submodules are looked for."""

    @property
    def local(self) -> bool:
        return self.file is not None and self.file.suffix == ".py" and self.file.is_file() and not _shipped(self.file)

    @property
    def foreign(self) -> bool:
        """Built in, or from a file of an installed distribution; a namespace package is neither local nor foreign."""
        return not self.inside if self.file is None else not self.local


class Sources:
    """Sources of local modules by name, found by following import statements at any depth of the text.

    `beside` is a folder to search besides `sys.path`. With `beside_first` it comes before what is loaded, as for a
    script: two files may each have their own helper.py beside them, and only one can be in `sys.modules`.
    """

    def __init__(self, beside: Path | None = None, *, beside_first: bool = False) -> None:
        self.texts: dict[str, str] = {}
        self.files: dict[str, Path] = {}
        self._beside = [] if beside is None else [str(beside)]
        self._beside_first = beside_first and beside is not None
        self._needs: dict[str, set[str]] = {}
        self._places: dict[str, _Place | None] = {}
        importlib.invalidate_caches()  # a file written a moment ago counts

    def add_file(self, file: Path) -> None:
        """Adds a file as `ROOT`, and what it imports."""
        self._take(ROOT, file)
        self.follow(self._needs[ROOT])

    def follow(self, names: Iterable[str]) -> None:
        """Adds the modules of these names that are local, the packages they lie in, and what they import."""
        pending = sorted(_with_packages(names))
        while pending:
            name = pending.pop()
            if name in self.texts:
                continue
            place = self._locate(name)
            if place is None or place.file is None or not place.local or place.file == self.files.get(ROOT):
                continue
            self._take(name, place.file)
            pending.extend(self._needs[name])

    def digest(self, name: str) -> str:
        """A hash over everything that an import of `name` reads."""
        reached, pending = {name}, [name]
        while pending:
            fresh = {need for need in self._needs[pending.pop()] if need in self.texts} - reached
            reached |= fresh
            pending.extend(fresh)
        return _digest({each: self.texts[each] for each in reached})

    def parts(self, root: str | None = None) -> dict[str, str]:
        """Names and texts to be hashed. The root goes by the stand-in whether it was loaded by name or by path."""
        shown = {name: LOCAL + self.files[name].name if name.startswith(LOCAL) else name for name in self.texts}
        return {f"module {ROOT if name == root else shown[name]}": text for name, text in self.texts.items()}

    def _take(self, name: str, file: Path) -> None:
        self.texts[name], self.files[name] = _read(file), file
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        tree = _parse(self.texts[name])
        self._needs[name] = _with_packages({name, *_imported(tree, package)}) - {name, ROOT}

    def _locate(self, name: str) -> _Place | None:
        if name not in self._places:
            self._places[name] = None if name == "__main__" else self._search(name)
        return self._places[name]

    def _search(self, name: str) -> _Place | None:
        loaded = _place_of_module(sys.modules.get(name))
        if loaded is not None and (loaded.foreign or not self._beside_first):
            return loaded
        parent = name.rpartition(".")[0]
        if parent:
            above = self._locate(parent)
            return None if above is None or above.foreign else _find(name, above.inside) or loaded
        beside = _find(name, self._beside)
        if self._beside_first and beside is not None and beside.file is not None:
            return beside
        return loaded or _find(name) or beside


def _file_of(cls: type, module: ModuleType | None) -> Path | None:
    """The file in which a class is defined; None for a class in a notebook cell or without a module."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    code = next(_codes_of_body(cls), None)
    # `%run script.py` leaves a __file__ in a notebook's __main__, whose cells are not in that file.
    in_cell = cls.__module__ == "__main__" and code is not None and Path(code.co_filename).name != Path(file).name
    return None if in_cell else _absolute(Path(file))


def _file_parts(name: str, file: Path) -> dict[str, str]:
    if name == "__main__":  # with `python -m lab.script` it has a proper name as well, with `python script.py` not
        name = getattr(sys.modules[name].__spec__, "name", ROOT)
    if name == ROOT or name.startswith(LOCAL):
        sources = Sources(file.parent, beside_first=True)
        sources.add_file(file)
        return sources.parts(ROOT)
    depth = name.count(".") + (file.name == "__init__.py")
    sources = Sources(file.parents[min(depth, len(file.parents) - 1)])
    sources.follow([name])
    if name not in sources.texts:  # a stray file in site-packages, or a compiled module
        return {f"module {ROOT}": _read(file), **sources.parts()}
    return sources.parts(name)


def _distribution(file: Path) -> dict[str, str] | None:
    """Name and version of the distribution that installed a file, None for one that did not or is editable."""
    site = next((folder for folder in file.parents if folder.name in _SITES), None)
    if site is None:
        return None
    inside = file.relative_to(site)
    for distribution in distributions(path=[str(site)]):
        if not _holds(distribution, inside):
            continue
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if not origin.get("dir_info", {}).get("editable", False):
            return {"distribution": distribution.name, "version": distribution.version}
    return None


def _holds(distribution: Distribution, file: Path) -> bool:
    record = distribution.read_text("RECORD")
    if record:
        return re.search(rf'^"?{re.escape(file.as_posix())}"?,', record, re.MULTILINE) is not None
    # Packages of Linux distributions come without a list of files.
    return file.parts[0].removesuffix(".py") in (distribution.read_text("top_level.txt") or "").split()


def _absolute(file: Path) -> Path:
    # The file itself may be a link into a package manager's cache; the folder says where it is installed.
    return file.parent.resolve() / file.name


def _shipped(file: Path) -> bool:
    file = _absolute(file)
    return bool(_SITES & set(file.parts)) or any(file.is_relative_to(folder) for folder in (*_STDLIB, _OWN))


def _place_of_module(module: Any) -> _Place | None:
    if module is None:
        return None
    try:  # what lies in sys.modules need not be a module
        file, inside = getattr(module, "__file__", None), tuple(map(str, getattr(module, "__path__", ())))
    except Exception:  # noqa: BLE001 - a stand-in may raise anything, and is then nothing local
        return _Place(None)
    return _Place(_absolute(Path(file)) if isinstance(file, str) else None, inside)


def _find(name: str, folders: Iterable[str] | None = None) -> _Place | None:
    """Where a module lies, in these folders or by all finders, without importing it."""
    try:
        spec: ModuleSpec | None
        spec = importlib.util.find_spec(name) if folders is None else PathFinder.find_spec(name, list(folders))
        if spec is None:
            return None
        file = _absolute(Path(spec.origin)) if spec.has_location and spec.origin else None
        return _Place(file, tuple(spec.submodule_search_locations or ()))
    except Exception:  # noqa: BLE001 - other people's finders may raise anything; what nobody finds is not hashed
        return None


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Names of the modules that a text may import; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: max(0, package.count(".") + 2 - node.level)] if node.level else []
            if node.level and not any(above):
                continue  # goes beyond the topmost package, so it would fail
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _with_packages(names: Iterable[str]) -> set[str]:
    """a.b.c, a.b and a: importing the first runs them all."""
    return {".".join(parts[: i + 1]) for parts in (name.split(".") for name in names) for i in range(len(parts))}


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}, whose code is part of a run's identity: {error.strerror}") from error
    try:
        return importlib.util.decode_source(data)
    except (SyntaxError, UnicodeDecodeError):
        return data.decode("latin-1")


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # Python has warned about this text when it was imported
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])  # it cannot be imported either, so it imports nothing


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()


# Code in notebook cells.


class _Cell:
    """Texts of a class that lies in no file, and of everything in its module that it refers to by name."""

    def __init__(self, cls: type) -> None:
        self._module = cls.__module__
        self._names: Mapping[str, Any] = vars(sys.modules[self._module]) if self._module in sys.modules else {}
        self._sources = Sources()
        self._texts: dict[str, str] = {}
        self._visit("class", cls, ())
        self.parts = {**self._texts, **self._sources.parts()}

    def _visit(self, name: str, value: Any, trail: tuple[int, ...]) -> None:
        """Adds a value under a name that does not depend on the order of visits; `trail` is how it was reached."""
        if name in self._texts or id(value) in trail:
            return
        if isinstance(getattr(value, "__wrapped__", None), FunctionType):
            value = inspect.unwrap(value)
        if isinstance(value, ModuleType):
            self._sources.follow([value.__name__])
        elif is_simple(value):
            self._texts[name] = repr(value)
        elif not isinstance(value, type | FunctionType):
            self._texts[name] = told(name, value)
            self._visit(f"{name}, type", type(value), trail)
        elif value.__module__ != self._module:
            self._sources.follow([value.__module__ or ROOT])
        else:
            self._visit_definition(name, value, (*trail, id(value)))

    def _visit_definition(self, name: str, value: type | FunctionType, trail: tuple[int, ...]) -> None:
        text = _definition(value)
        if text is None:
            what = f"the source of {value.__qualname__} must be readable so that results can be told apart"
            raise UserError(f"{what}; put it in a file")
        self._texts[name] = text
        self._sources.follow(_imported(_parse(text), ROOT))
        for each in _global_names(text) & set(self._names):
            self._visit(f"name {each}", self._names[each], ())
        if isinstance(value, FunctionType):
            self._visit_closure(name, value, trail)
            return
        for i, base in enumerate(value.__bases__):
            self._visit(f"{name}, base {i}", base, trail)
        for attribute, function in _functions(value):
            self._visit_closure(f"{name}.{attribute}", function, trail)
            # A method that a later cell put in place of the one in the class. Generated ones have no text.
            if not _in_body(value, function.__code__) and _definition(function) is not None:
                self._visit(f"{name}.{attribute}", function, trail)

    def _visit_closure(self, name: str, function: FunctionType, trail: tuple[int, ...]) -> None:
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if free != "__class__" and cell != CellType():  # an empty one is a name without a value yet
                self._visit(f"{name}, outer {free}", cell.cell_contents, trail)


def _definition(value: type | FunctionType) -> str | None:
    """The text of a class or function. `inspect` finds no class of a notebook, since its module has no file."""
    if isinstance(value, FunctionType):
        return _block(value.__code__.co_filename, value.__code__.co_name, value.__code__.co_firstlineno)
    for code in _codes_of_body(value):
        return _block(code.co_filename, value.__name__, code.co_firstlineno)
    # A class without methods does not know its cell: it is the only one of that name, or cannot be told.
    cells = [name for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None]
    texts = {text for text in (_block(name, value.__name__, None) for name in cells) if text is not None}
    return texts.pop() if len(texts) == 1 else None


def _block(filename: str, name: str, line: int | None) -> str | None:
    """The text of the innermost definition called `name` around a line, or of the statement around a lambda."""
    linecache.checkcache(filename)
    lines = linecache.getlines(filename)
    best: tuple[int, int] | None = None
    for node in ast.walk(_parse("".join(lines))):
        if not isinstance(node, ast.stmt) or name not in ("<lambda>", getattr(node, "name", None)):
            continue
        start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        end = node.end_lineno or start
        if (line is None or start <= line <= end) and (best is None or start >= best[0]):
            best = start, end
    return None if best is None else textwrap.dedent("".join(lines[best[0] - 1 : best[1]]))


def _global_names(text: str) -> set[str]:
    """Names that a text takes from its module: no local variables, no attributes."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tables = [symtable.symtable(text, "cell", "exec")]
    except SyntaxError:  # a piece that cannot stand alone, such as `return lambda x: x`
        return set(re.findall(r"[^\W\d]\w*", text))
    names: set[str] = set()
    while tables:
        table = tables.pop()
        outermost = table.get_type() == "module"
        names |= {each.get_name() for each in table.get_symbols() if outermost or each.is_global()}
        tables.extend(table.get_children())
    return names


def _functions(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """Functions among the attributes of a class, also inside properties, class methods and decorators."""
    for name, value in vars(cls).items():
        for inner in (value, *(getattr(value, each, None) for each in ("__func__", "fget", "func", "wrapped"))):
            function = inspect.unwrap(inner) if isinstance(inner, FunctionType) else inner
            if isinstance(function, FunctionType):
                yield name, function


def _in_body(cls: type, code: CodeType) -> bool:
    return code.co_qualname.startswith(f"{cls.__qualname__}.")


def _codes_of_body(cls: type) -> Iterator[CodeType]:
    return (function.__code__ for _, function in _functions(cls) if _in_body(cls, function.__code__))
