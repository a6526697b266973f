"""Importing what a person names: a file, or a module outside; what was edited since is imported anew."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from mixerscope.code import LOCAL, ROOT, Sources
from mixerscope.errors import UserError

_built_from: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""Local modules imported here or for something here, with a hash of the sources they were made from."""


def import_place(place: str) -> tuple[ModuleType, Path]:
    """The module `pkg.module` or `path/file.py` and its source. For what a person typed: importing runs code.

    What was imported before is imported anew if its source, or one of the local sources it imports, was edited.
    """
    return _module_from_file(Path(place)) if place.endswith(".py") else _module_by_name(place)


def _module_from_file(path: Path) -> tuple[ModuleType, Path]:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    shown, path = path, path.resolve()
    sources = Sources(path.parent, beside_first=True)
    sources.add_file(path)
    # The name holds the whole path, so two files called mixer.py do not meet in sys.modules.
    name = LOCAL + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    before = sys.modules.get(name)
    if before is not None and _built_from.get(before) == sources.digest(ROOT):
        return before, path
    _forget_outdated(sources)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _remove_bytecode(module)
    sys.modules[name] = module
    try:
        # As with `python file.py`, modules beside the file can be imported.
        with _searching(str(path.parent)), _theirs_to_mend(f"cannot import {shown}"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    finally:
        _remember(sources)
    _built_from[module] = sources.digest(ROOT)
    return module, path


def _module_by_name(name: str) -> tuple[ModuleType, Path]:
    sources = Sources()
    # Like `python -m`: what lies in the current folder can be named.
    with _searching(""), _theirs_to_mend(f"cannot import module {name!r}"):
        sources.follow([name])
        _forget_outdated(sources, but=name)
        module = sys.modules.get(name)
        try:
            if module is None or name not in sources.texts:
                module = importlib.import_module(name)
            elif _built_from.get(module, sources.digest(name)) != sources.digest(name):
                _built_from[module] = ""  # half of it stays when this fails, and must not pass for the whole
                _remove_bytecode(module)
                module = importlib.reload(module)
                _built_from[module] = sources.digest(name)
        finally:
            _remember(sources)
    if module.__file__ is None:
        raise UserError(f"module {name!r} has no source file")
    return module, Path(module.__file__).resolve()


def _forget_outdated(sources: Sources, but: str = ROOT) -> None:
    """Takes modules out of `sys.modules` that were edited since, or that belong to another file's folder."""
    for name in sorted(set(sources.texts) - {ROOT, but}):
        module, source = sys.modules.get(name), sources.files[name]
        if module is None:
            continue
        elsewhere = module.__file__ is None or Path(module.__file__).resolve() != source.resolve()
        if elsewhere and module not in _built_from:
            raise UserError(f"{source} is hidden by another module named {name!r}, {module.__file__}; rename one")
        if elsewhere or _built_from.get(module, sources.digest(name)) != sources.digest(name):
            # With a package go its modules, or they would be in sys.modules and not in the new package.
            for each in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                _forget(each)


def _forget(name: str) -> None:
    module = sys.modules.pop(name)
    _remove_bytecode(module)
    parent, _, child = name.rpartition(".")
    if parent in sys.modules and vars(sys.modules[parent]).get(child) is module:
        delattr(sys.modules[parent], child)  # `from package import module` would find it there


def _remember(sources: Sources) -> None:
    """Also after a failure: what was imported before it stays."""
    for name in set(sources.texts) & set(sys.modules):
        _built_from.setdefault(sys.modules[name], sources.digest(name))


def _remove_bytecode(module: ModuleType) -> None:
    # Python takes it for current when an edit keeps the length of the file and comes within the same second.
    with suppress(OSError, NotImplementedError):
        Path(importlib.util.cache_from_source(module.__file__ or "")).unlink()


@contextmanager
def _searching(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # a person's file may have changed the path
            sys.path.remove(folder)


@contextmanager
def _theirs_to_mend(what: str) -> Iterator[None]:
    """Whatever a person's file raises, `sys.exit()` too, is theirs to mend."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserError(f"{what}: {type(error).__name__}: {error}") from error


def source_digest(path: Path) -> str:
    """A hash of a file and of every local module that it imports; the same wherever it lies."""
    sources = Sources(path.parent, beside_first=True)
    sources.add_file(path)
    return sources.digest(ROOT)


def is_defined_in(cls: type, path: Path) -> bool:
    """Whether a class comes from this file, and not from one that the file imports."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path.resolve()
