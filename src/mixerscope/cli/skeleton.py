"""A package to start from: a mixer, a task or a stage with its entry point, its module and a test that passes."""

import importlib.util
import keyword
import os
import re
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal

from mixerscope.errors import UserError

Kind = Literal["mixer", "task", "stage"]
NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
LONGEST = 60


def write_skeleton(kind: Kind, name: str, parent: Path) -> Path:
    """Writes the package into the new folder `parent/name` and returns it; all of it, or nothing."""
    module = name.replace("-", "_")
    if len(name) > LONGEST:
        raise UserError(f"{name[:LONGEST]!r}... cannot name a package: use at most {LONGEST} letters")
    if keyword.iskeyword(module):
        raise UserError(f"{name!r} cannot name a package, as it is a word of Python; take another, such as my-{kind}")
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot name a package: use small letters, digits and single hyphens, a letter first, such as"
            f" my-{kind}"
        )
    if importlib.util.find_spec(module) is not None:
        raise UserError(f"a package named {module!r} is installed here already; give another name")
    target = parent / name
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} exists already; give another name, or another folder with --out")
    words = {"kind": kind, "name": name, "module": module, "Class": "".join(map(str.capitalize, module.split("_")))}
    written = {
        "pyproject.toml": "pyproject.toml.txt",
        f"src/{module}/__init__.py": f"{kind}.py.txt",
        f"tests/test_{module}.py": f"test_{kind}.py.txt",
    }
    texts = {path: Template(_read(source)).substitute(words) for path, source in written.items()}
    try:
        parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
        try:
            for path, text in texts.items():
                (beside / path).parent.mkdir(parents=True, exist_ok=True)
                (beside / path).write_text(text, encoding="utf-8")
            beside.chmod(0o777 & ~_umask())
            os.rename(beside, target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _read(name: str) -> str:
    return (files("mixerscope.cli") / "skeletons" / name).read_text(encoding="utf-8")


def _umask() -> int:
    """What new folders may not be; a temporary one is nobody else's."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
