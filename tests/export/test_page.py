"""The page that says how to take results elsewhere: its tables are the code's."""

import re
from pathlib import Path

from mixerscope.export.frame import KEY, RUN, TABLES, VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "take-results-elsewhere.md").read_text()


def test_every_column_is_on_the_page_and_no_other():
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    assert rows[: len(RUN)] == [(name, kind, about) for name, (kind, about) in RUN.items()]
    tables = rows[len(RUN) :]
    assert [(name, about) for name, about, _ in tables] == [(name, about) for name, (about, _) in TABLES.items()]
    for name, _, columns in tables:
        found: list[str] = []
        for column, ends in re.findall(r"`([^`]+)`( ±)?", columns):
            found += [column, f"{column}_low", f"{column}_high"] if ends else [column]
        assert sorted(found) == sorted(TABLES[name][1]), name
    assert f'["{KEY}"]` is `"{VERSION}"`' in PAGE
