"""Parameters of every model of the paper, counted in models that are built and not trained."""

from collections.abc import Mapping

from mixerscope.experiments.paper.data import Results, Row
from mixerscope.experiments.paper.drawing import NAMES, Chart, words
from mixerscope.experiments.paper.sweeps import settings
from mixerscope.experiments.paper.tables import CellKey
from mixerscope.model import build_model, parameter_count
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR, ATR

TITLE = "Parameters of models with two blocks, ours (and published, where they differ)"
EXACT = True
"""Counts are equal or they are not; there is nothing to predict."""
TASKS = {"AR": AR, "ATR": ATR}
ATR_WIDTH = 64
VARIANTS = {
    "BaseConv, long only": ("base_conv", {"kernels": ["long"]}),
    "Based, long only": ("based", {"kernel": "long"}),
    "Mamba, convolution of 1": ("mamba", {"d_conv": 1}),
}
"""Models of the ablations, of which the width 64 is on record."""


def rows(results: Results | None = None) -> list[Row]:
    """A row a model: every architecture and width on recall, and width 64 on treecall."""
    lists = settings()["lists"]
    asked = [("AR", NAMES[name], name, {}, width) for name in lists["seven"] for width in lists["widths"]]
    asked += [("ATR", NAMES[name], name, {}, ATR_WIDTH) for name in lists["seven"]]
    asked += [(task, line, *how, ATR_WIDTH) for line, how in VARIANTS.items() for task in TASKS]
    return [
        {"panel": task, "row": line, "width": width, "seed": 0, "value": count(name, options, width, task)}
        for task, line, name, options, width in asked
    ]


def count(architecture: str, options: dict[str, object], width: int, task: str) -> int:
    """Parameters of a model that is built for it."""
    spec = ModelSpec(architecture=architecture, width=width, options=options)
    vocabulary = TASKS[task].model_validate(TASKS[task].preset_fields("paper")).vocab_size
    return parameter_count(build_model(spec, vocabulary, seed=0))


def draw(results: Results | None, published: Mapping[CellKey, float]) -> Chart:
    widths = settings()["lists"]["widths"]
    lines: dict[tuple[str, str], Row] = {}
    for row in rows():
        line = lines.setdefault((row["panel"], row["row"]), {"task": row["panel"], "model": row["row"]})
        printed = published.get((row["panel"], row["row"], row["width"]))
        differs = printed is not None and printed != row["value"]
        line[str(row["width"])] = f"{row['value']:,}" + (f" ({printed:,})" if differs else "")
    columns = ["task", "model", *map(str, widths)]
    return words([{**dict.fromkeys(columns, ""), **line} for line in lines.values()], columns, TITLE)
