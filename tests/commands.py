"""The commands of README and docs: every line of every shell block, and what it needs that a test may not have."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:^<!-- needs: (?P<needs>[\w, ]+) -->\n)?^```sh\n(?P<lines>.*?)^```", re.M | re.S)
NEEDS = re.compile(r"#.*\bneeds: (\w+)")
KNOWN_NEEDS = {"gpu", "cluster"}


@dataclass(frozen=True)
class Command:
    """One line. `needs` is empty for those that a test runs as they stand."""

    page: Path
    words: tuple[str, ...]
    needs: frozenset[str]

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def commands_of(page: Path) -> list[Command]:
    """In the order of the page; a backslash at its end joins a line with the next."""
    found: list[Command] = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        wanted = {name.strip() for name in (block["needs"] or "").split(",") if name.strip()}
        for line in block["lines"].replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                own = {match[1]} if (match := NEEDS.search(line)) else set()
                found.append(Command(page, tuple(words), frozenset(wanted | own)))
    return found


def all_commands() -> list[Command]:
    return [command for page in PAGES for command in commands_of(page)]
