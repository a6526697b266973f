"""One page over everything that is kept: claims on top, then every figure, ours beside published."""

import base64
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from mixerscope import __version__
from mixerscope.errors import UserError
from mixerscope.experiments.paper.claims import (
    FAILS,
    HOLDS,
    NOT_TESTED,
    WEAKER,
    counted,
    tested_claims,
)
from mixerscope.experiments.paper.data import Results, published_of
from mixerscope.experiments.paper.disagreements import disagreements
from mixerscope.experiments.paper.render import compared, kept_figures, load_results, missing, read_about
from mixerscope.experiments.paper.sweeps import Figure, figure_names, load_figure, settings
from mixerscope.experiments.paper.tables import COLUMNS, INSIDE, Beside, cells_of, counts
from mixerscope.experiments.task_flip.study import NAME as STATES
from mixerscope.progress import duration
from mixerscope.spec import read_data_file
from mixerscope.store import write_bytes

INDEX = "index.html"
CLASSES = {HOLDS: "holds", WEAKER: "weaker", FAILS: "fails", NOT_TESTED: "untested"}
CHOSEN = {
    "dev": "on dev documents and results measured on others",
    "test": "on the documents that are reported, as published",
}
PRECISIONS = {"tf32": "TF32"}
NOTHING = "everything"
LOW = 1.0
"""Percent; a published number up to there says that next to nothing was learned, which is easily agreed on."""


def write_page(root: Path) -> Path:
    """Writes the page and gives its path. Figures must have been drawn; `mixerscope figure all` does that."""
    write_bytes(root / INDEX, page_text(root).encode())
    return root / INDEX


def page_text(root: Path) -> str:
    """The page."""
    results = load_results(root)
    environment = jinja2.Environment(
        # the style sheet is that of the page over runs
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader("mixerscope.experiments.paper", ""), jinja2.PackageLoader("mixerscope.report")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown, kept = [load_figure(name) for name in figure_names()], kept_figures(root, results)
    claims = tested_claims(results)
    found = counted(claims)
    beside = {figure.name: compared(figure.name, results if figure.parts else None) for figure in kept}
    every = [cell for cells in beside.values() for cell in cells]
    return environment.get_template("page.html.j2").render(
        version=__version__,
        runs=f"{len(results.runs):,}",
        proven=f"{int(results.runs['proof'].sum()):,}",
        precisions=_precisions(results),
        seconds=duration(float(results.runs["seconds"].sum() or 0.0)),
        chosen=CHOSEN[settings()["presets"][results.choice.preset]["select"]],
        claims=claims,
        counts={**{CLASSES[name]: found[name] for name in CLASSES}, "seeds": found["with three seeds"]},
        states=_states(root),
        classes=CLASSES,
        columns=COLUMNS,
        agreement=Counter(cell.outcome for cell in every),
        low=sum(cell.outcome == INSIDE and (cell.published or 0.0) <= LOW for cell in every),
        outside=[
            (each.figure, *cells_of(each.cell)[:-1], each.cause)
            for name, cells in beside.items()
            for each in disagreements(name, cells)
        ],
        figures=[
            _section(figure, root, results, beside.get(figure.name))
            for figure in shown
            if figure in kept or not figure.apart
        ],
    )


def _states(root: Path) -> dict[str, Any] | None:
    """What the study of tracked states found, which has its own folder and table; None where it was not drawn."""
    path = root / STATES / "found.json"
    if not path.is_file():
        return None
    found = read_data_file(path, "record")
    outcomes = Counter(claim["outcome"] for claim in found["claims"])
    order = ("supported", "contradicted", "open", "untestable")
    return {
        "folder": STATES,
        "claims": len(found["claims"]),
        "counts": ", ".join(f"{outcomes[name]} {name}" for name in order if outcomes[name]),
        "models": f"{sum(cell['models'] for cell in found['cells']):,}",
    }


def _section(figure: Figure, root: Path, results: Results, beside: Sequence[Beside] | None) -> dict[str, Any]:
    """A figure with its cells beside published ones; None where nothing of it is kept."""
    there, cells = beside is not None, beside or []
    left = missing(figure, results) if there else NOTHING
    drawing = root / figure.name / "figure.svg"
    if there and not drawing.is_file():
        raise UserError(f"{figure.name} has not been drawn; `mixerscope figure all {root}` draws what there is")
    return {
        "name": figure.name,
        "title": figure.title,
        "about": figure.about,
        "source": published_of(figure)["source"],
        "image": _data(drawing) if there else "",
        "said": summary(figure, cells, left, read_about(root / figure.name)),
        "left": "" if left == NOTHING else left,
        "lines": [cells_of(cell) for cell in cells],
        "again": _again(figure, results),
    }


def _again(figure: Figure, results: Results) -> str:
    """The command that makes what is shown: with as many seeds, where these are not as many as it takes by itself."""
    words = ["mixerscope reproduce", figure.name]
    if figure.parts:
        choice = results.choice
        seeds = max(results.part(figure.name, part.name)["seed"].n_unique() for part in figure.parts)
        words += [f"--seeds {seeds}"] if seeds > choice.seed_count else []
        words += ["--toy"] if choice.toy else ["--device cuda --compile"]
    return " ".join(words)


def _precisions(results: Results) -> str:
    """In which numbers the models were trained, which the paper does not say of its own."""
    found = Counter(results.runs["precision"].to_list()).most_common()
    return " and ".join(f"{count:,} in {PRECISIONS.get(name, name)}" for name, count in found)


SIZE = re.compile(r'width="([\d.]+)"( height="[\d.]+")? viewBox="0 0 ([\d.]+) ([\d.]+)"')
WIDER = 70
"""Pixels to the right of a drawing: the reader's fonts may be wider than those it was laid out with."""


def _data(drawing: Path) -> str:
    text = drawing.read_text(encoding="utf-8")
    found = SIZE.search(text)
    if found:
        width, height = float(found[1]) + WIDER, found[2] or ""
        text = text.replace(found[0], f'width="{width:g}"{height} viewBox="0 0 {width:g} {found[4]}"', 1)
    return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


def summary(figure: Figure, cells: Sequence[Beside], left: str, about: dict[str, Any]) -> str:
    """What there is of a figure, in words."""
    if left == NOTHING:
        return "Nothing of it was run."
    said: list[str] = []
    told = {name: count for name, count in counts(cells).items() if name != "not printed"}
    if any(cell.published is not None for cell in cells):
        said.append(f"Published numbers and ours: {', '.join(f'{n} {name}' for name, n in told.items())}.")
    if about:
        without = about["runs"] - about["with_proof"]
        proofs = f", {without} without a proof" if without else ""
        said.append(
            f"{about['runs']} runs lie here ({about['diverged']} diverged{proofs}), seeds"
            f" {', '.join(map(str, about['seeds']))}, {duration(about['seconds'])} on {', '.join(about['devices'])}."
        )
    elif figure.parts:
        said.append("Its runs are those of other figures.")
    if left:
        said.append("Some of it was not run.")
    return " ".join(said)
