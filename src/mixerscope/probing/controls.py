"""What a probe must beat, and what it would find anyway: tables of the last tokens and positions, made-up labels."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mixerscope.probing.ridge import Parts, balanced_share

WINDOW = 4
"""Tokens that the window baseline reads: the width of the usual short convolution."""
CONTROL_WINDOW = 6
"""Tokens that the control labels are made of."""


def contexts(tokens: Tensor, positions: Tensor, width: int) -> Tensor:
    """[n, p] a number for the last `width` tokens [n, t] at each of the positions [n, p], the same for the same."""
    base = int(tokens.max()) + 2
    found = torch.zeros_like(positions)
    for back in range(width):
        at = positions - back
        token = tokens.gather(1, at.clamp(min=0)).where(at >= 0, -1)
        found = found * base + token + 1
    return found


def baselines(tokens: Tensor, positions: Tensor, label: Tensor, parts: Parts, scored: Tensor) -> Mapping[str, float]:
    """Balanced accuracy of rules without a model, on the judging vectors where `scored` [n p] holds: `chance`, the
    usual label at each `position`, and after the last tokens together with whether the position is even (`window`)."""
    parity = positions % 2
    keys = {
        "chance": torch.zeros_like(positions),
        "position": positions,
        "window": contexts(tokens, positions, WINDOW) * 2 + parity,
    }
    judged = parts.judge & scored
    found: dict[str, float] = {}
    for name, key in keys.items():
        said = usual(key.flatten()[parts.fit], label[parts.fit], key.flatten()[judged])
        found[name] = float(balanced_share((said == label[judged]).double(), label[judged]))
    return found


def usual(keys: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """The most frequent label of each key that is asked; the most frequent of all where the key is new."""
    _, number = torch.unique(torch.cat([keys, asked]), return_inverse=True)
    known, new = number[: len(keys)], number[len(keys) :]
    classes = int(labels.max()) + 1
    counts = torch.zeros(int(number.max()) + 1, classes, dtype=torch.int64)
    counts.view(-1).index_add_(0, known * classes + labels, torch.ones_like(known))
    best = counts.argmax(1).where(counts.sum(1) > 0, labels.mode().values)
    return best[new]


def shuffled(label: Tensor, rng: torch.Generator) -> Tensor:
    """The same labels in another order: what a probe then gets right it gets by chance."""
    return label[torch.randperm(len(label), generator=rng)]


def control_labels(tokens: Tensor, positions: Tensor, label: Tensor, rng: torch.Generator) -> Tensor:
    """[n p] labels with the same frequencies that are a fixed random function of the last few tokens: a probe that
    learns such labels as well says nothing about the state."""
    _, number = torch.unique(contexts(tokens, positions, CONTROL_WINDOW).flatten(), return_inverse=True)
    drawn = torch.randint(len(label), (int(number.max()) + 1,), generator=rng)
    return label[drawn][number]
