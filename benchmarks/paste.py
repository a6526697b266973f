"""Tables in the docs come from here: a command writes them between two markers, nobody types them."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paste(page: str, name: str, text: str) -> None:
    """Replaces what stands between `<!-- name -->` and `<!-- end of name -->` on a page of the docs."""
    path = DOCS / page
    path.write_text(pasted(path.read_text(), name, text))


def pasted(whole: str, name: str, text: str) -> str:
    before, start, rest = whole.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->")
    if not start or not end:
        raise ValueError(f"the page has no place for {name!r}")
    return f"{before}{start}\n{text}\n\n{end}{after}"
