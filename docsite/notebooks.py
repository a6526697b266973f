"""The notebooks of the docs: run from the first cell to the last in a kernel of their own, and as pages of the site.

`python -m docsite.notebooks` runs them and keeps what they show; with `--check`, they are run and nothing is kept.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
SECONDS = 300
SHOWN = ("image/svg+xml", "text/html", "text/plain")
"""What a page takes of an output: the first of these that it has."""


def executed(path: Path) -> Any:
    """The notebook with what its cells show; an error in one of them is raised."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day is nobody's result
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def kinds(notebook: Any) -> list[list[str]]:
    """What each code cell shows, by kind."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        sorted(kind for output in cell.outputs for kind in output.get("data", {output.output_type: ""}))
        for cell in cells
    ]


def as_markdown(path: Path) -> str:
    """A page of the site: text, code, and below it what it showed."""
    parts: list[str] = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text", "")})
            kind = next(kind for kind in SHOWN if kind in data)
            text = data[kind].strip()
            parts.append(f"```text\n{text}\n```" if kind == "text/plain" else _block(text))
    parts.append(f"This page is `docs/notebooks/{path.name}` as it ran.")
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    """Markup that Markdown leaves alone: one block, without empty lines."""
    return "<div>" + "\n".join(line for line in text.splitlines() if line.strip()) + "</div>"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks by name; all unless said")
    parser.add_argument("--check", action="store_true", help="run them, keep nothing, complain where they show others")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if asked.names and path.stem not in asked.names:
            continue
        fresh = executed(path)
        if not asked.check:
            nbformat.write(fresh, path)
        elif kinds(fresh) != kinds(nbformat.read(path, as_version=4)):
            sys.stderr.write(f"{path.name} shows other things than are kept; run python -m docsite.notebooks\n")
            return 1
        print(f"{path.name} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
