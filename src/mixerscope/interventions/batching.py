"""How many documents and edits run together: what suits the place where the model is."""

from dataclasses import dataclass

import torch
from torch import nn

from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.pairs import Pairs
from mixerscope.model import Model
from mixerscope.model.backbone import MLP_RATIO
from mixerscope.tasks import Batch

ROWS_ON_CPU = 64
"""More logits leave the processor's cache and are slower."""
MOST_ROWS_ON_CPU, WIDEST_BYTES_ON_CPU = 256, 1 << 26
"""Short of the logits, more rows in a pass mean fewer passes; what is large already gains nothing by it."""
WIDEST_BYTES, LOGIT_BYTES = 2 << 30, 1 << 29
"""On a GPU launching takes longer than computing, so a pass is as large as these allow: the widest activation of all
models, and their logits, of which a handful of copies are alive at a time."""


@dataclass(frozen=True)
class Batching:
    documents: int
    """Held in memory at once, with their activations."""
    rows: int
    """Documents times edits in one pass."""
    short_rows: int
    """The same of one that ends short of the logits."""


def device_of(model: nn.Module) -> torch.device:
    """Where the model is; one without weights is on the CPU."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


def batching(model: Model | Adapted, pairs: Pairs | Batch, documents: int, models: int = 1) -> Batching:
    """For this many models of one shape; `documents` is what a CPU, or a module of unknown size, takes at once."""
    tokens = pairs.tokens if isinstance(pairs, Batch) else pairs.original.tokens
    if model.width is None or model.vocabulary is None:
        return Batching(documents, ROWS_ON_CPU, ROWS_ON_CPU)
    number = next(model.parameters()).element_size() * models
    widest = number * tokens.shape[1] * MLP_RATIO * model.width
    if device_of(model).type == "cpu":
        short = min(MOST_ROWS_ON_CPU, WIDEST_BYTES_ON_CPU // widest)
        return Batching(documents, ROWS_ON_CPU, max(ROWS_ON_CPU, short))
    short = max(1, WIDEST_BYTES // widest)
    rows = max(1, min(short, LOGIT_BYTES // (number * model.vocabulary)))
    return Batching(min(rows, len(pairs)), rows, short)
