"""A task of one's own: which symbol came first? `mixerscope check examples/05_own_task.py:First` examines it."""

import torch
from torch import Tensor

from mixerscope import UNSCORED, Batch, Task


class First(Task):
    """Random symbols, then a question mark (the last id) that asks for the first of them."""

    length: int = 8
    symbols: int = 10

    @property
    def vocab_size(self) -> int:
        return self.symbols + 1

    @property
    def max_length(self) -> int:
        return self.length + 1

    @property
    def slots(self) -> tuple[str, ...]:
        return ("key",)

    def sample(self, n: int, rng: torch.Generator, split: str = "train") -> Batch:
        tokens = torch.randint(self.symbols, (n, self.length + 1), generator=rng)
        tokens[:, -1] = self.symbols
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, -1] = tokens[:, 0]
        return Batch(tokens, targets, {"key": torch.zeros(n).long(), "query": torch.full((n,), self.length)})

    def solve(self, batch: Batch) -> Tensor:
        return batch.tokens[:, :1]

    def symbol(self, token: int) -> str:
        return "?" if token == self.symbols else f"s{token}"

    def symbol_class(self, slot: str, symbols: str) -> tuple[int, int]:
        return 0, self.symbols
