"""Initialisation schemes of the backbone. A mixer initialises itself (`Mixer.init_weights`)."""

from dataclasses import dataclass

import torch
from torch import nn

from mixerscope.mixers.base import REFERENCE_STD


@dataclass(frozen=True)
class InitScheme:
    embedding_std: float
    fan_in: bool
    """See `InitRule`."""
    rescale_logits: bool
    """Divide logits by `embedding_std * sqrt(width)`, so that a tied head starts with logits of order one."""

    def logit_scale(self, width: int) -> float:
        return 1.0 / (self.embedding_std * width**0.5) if self.rescale_logits else 1.0


SCHEMES = {
    # The published rule: everything N(0, 0.02).
    "reference": InitScheme(embedding_std=REFERENCE_STD, fan_in=False, rescale_logits=False),
    # Tiny models leave the plateau at the start of training several times sooner with larger weights.
    "small_model": InitScheme(embedding_std=0.5, fan_in=True, rescale_logits=True),
}


def init_embedding(embedding: nn.Embedding, scheme: InitScheme, rng: torch.Generator) -> None:
    nn.init.normal_(embedding.weight, std=scheme.embedding_std, generator=rng)
