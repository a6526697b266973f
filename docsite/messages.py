"""Every sentence in the code as a reader sees it, with `…` for what is filled in: what the errors page is held to."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "mixerscope"


def sentences(source: Path = SOURCE) -> set[str]:
    """All strings of the code, docstrings included."""
    found: set[str] = set()
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.add(_as_read(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def _as_read(node: ast.JoinedStr) -> str:
    parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
    return re.sub("…+", "…", "".join(map(str, parts)))


def quoted(page: str) -> list[str]:
    """The messages in the first column of the page's tables."""
    return [match[2] for match in re.finditer(r"^\| (`{1,2})(.+?)\1 \|", page, re.M)]
