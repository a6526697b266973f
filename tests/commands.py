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
        for line in _lines(block["lines"].replace("\\\n", " ")):
            words = ["sh", "-c", line] if "<<" in line else shlex.split(line, comments=True)
            if words:
                own = {match[1]} if (match := NEEDS.search(line)) else set()
                found.append(Command(page, tuple(words), frozenset(wanted | own)))
    return found


def _lines(text: str) -> list[str]:
    """Of a block; a file that is written in place (`cat > FILE <<'END'`) is one line with its command."""
    whole = re.compile(r"^.*<<'(\w+)'\n.*?^\1$", re.M | re.S)
    files = {f"\0{i}": match[0] for i, match in enumerate(whole.finditer(text))}
    for mark, file in files.items():
        text = text.replace(file, mark)
    return [files.get(line, line) for line in text.splitlines()]


def all_commands() -> list[Command]:
    return [command for page in PAGES for command in commands_of(page)]
