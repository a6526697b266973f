"""Mixerscope: which mechanism did this sequence-model architecture learn?"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _declared() -> dict[str, str]:
    """Public names and their modules, loaded on first use: `import mixerscope` and `mixerscope ls` stay fast."""
    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in lines for alias in line.names}


_MODULES = _declared()
__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll] - it reads the stub


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'mixerscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
