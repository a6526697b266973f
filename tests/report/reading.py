"""The page as a program reads it."""

import base64
import csv
import gzip
import io
import json
import re
from html.parser import HTMLParser

from mixerscope.report import write_report


class Page(HTMLParser):
    """Tags, visible text, and the contents of elements with an id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.raw: tuple[str, dict[str, str | None]] | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.raw = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.raw = None

    def handle_data(self, data):
        if self.raw is None:
            self.text.append(data)
        elif self.raw[0] == "script":
            self.scripts.append((self.raw[1], data))

    def visible(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    def unpacked(self, id: str) -> str:
        [text] = [text for attrs, text in self.scripts if attrs.get("id") == id]
        return gzip.decompress(base64.b64decode(text)).decode()

    def overview(self) -> dict:
        """What the figures over all models are drawn from."""
        return json.loads(self.unpacked("overview"))

    def details(self) -> dict:
        """What the figures of single models are drawn from."""
        return json.loads(self.unpacked("details"))

    def figures(self, kind: str) -> list[dict[str, str | None]]:
        """The attributes of the places that hold figures of a kind."""
        return [attrs for _, attrs in self.tags if attrs.get("data-kind") == kind]

    def table(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.unpacked(name))))

    def headline(self) -> str:
        start = self.text.index("Mixerscope report")
        return next(text for text in self.text[start + 1 :] if text.strip())


def page_of(root) -> Page:
    return Page(write_report(root).read_text())
