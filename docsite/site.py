"""Puts the site together: copies the pages, takes in files from beside `docs/`, adds what is written from the code."""

import os
import re
import shutil
from pathlib import Path

import mixerscope
from docsite.notebooks import as_markdown
from docsite.reference import reference_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MORE_HOW_TOS = "    # more how-tos: pages of docs/howto that are not listed above\n"
EXAMPLES = "    # examples\n"

TAKEN_IN = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/ground_truth/README.md": "ground-truth.md",
    "reproduction/fig3/README.md": "figure3-runs.md",
    "reproduction/index.html": "paper/index.html",
}
"""Files from beside the docs, and where they are on the site."""
LINK = re.compile(r"(?<=\]\()(?!https?:)([^)#\s]+)(?=[)#])")


class NoPlace(Exception):
    """A page links to something that the site does not have."""


def places() -> dict[Path, str]:
    """Every file that is on the site, and where."""
    found = {path: str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*")) if path.is_file()}
    found |= {ROOT / source: place for source, place in TAKEN_IN.items()}
    found |= {path: place.replace(".ipynb", ".md") for path, place in found.items() if path.suffix == ".ipynb"}
    for path in sorted((ROOT / "examples").glob("*.py")):
        found[path] = f"examples/{path.stem}.md"
    return found


def stage(folder: Path) -> list[str]:
    """Writes all pages into a folder and returns their paths below it."""
    where = places()
    written = reference_pages()
    for path, place in where.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            target.write_text(_example_page(path), encoding="utf-8")
        elif path.suffix == ".ipynb":
            target.write_text(_relinked(path, place, where, written, as_markdown(path)), encoding="utf-8")
        elif path.suffix == ".md":
            target.write_text(_relinked(path, place, where, written), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    for place, text in written.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    return sorted([*where.values(), *written])


def _example_page(path: Path) -> str:
    code = path.read_text(encoding="utf-8")
    return f"# {path.name}\n\nRun it with `python examples/{path.name}`.\n\n```python\n{code}```\n"


def _relinked(path: Path, place: str, where: dict[Path, str], written: dict[str, str], text: str | None = None) -> str:
    """A page, or `text` in its place, whose links to files beside the docs lead to where these are on the site."""

    def lead(match: re.Match[str]) -> str:
        target = (path.parent / match[1]).resolve()
        on_site = where.get(target)
        if on_site is None and target.is_dir():
            on_site = where.get(target / "index.html")
        if on_site is None and target.is_relative_to(DOCS) and str(target.relative_to(DOCS)) in written:
            on_site = str(target.relative_to(DOCS))
        if on_site is None:
            raise NoPlace(f"{path.relative_to(ROOT)} links to {match[1]}, which is not on the site")
        return os.path.relpath(on_site, Path(place).parent)

    return LINK.sub(lead, path.read_text(encoding="utf-8") if text is None else text)


def configuration(pages: list[str], docs: Path) -> str:
    """`zensical.toml` of this version: its name, and pages that the file need not list one by one."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for mark, folder in ((MORE_HOW_TOS, "howto/"), (EXAMPLES, "examples/")):
        more = [page for page in pages if page.startswith(folder) and f'"{page}"' not in text]
        text = text.replace(mark, "".join(f'    {{ "{_title(docs / page)}" = "{page}" }},\n' for page in more))
    return text.replace("VERSION", mixerscope.__version__)


def listed(text: str) -> list[str]:
    """Pages that a configuration's navigation names."""
    return re.findall(r'"([\w/.-]+\.md)"', text)


def _title(page: Path) -> str:
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").replace('"', "'")
