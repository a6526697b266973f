"""A task of one's own: which symbol came first? `mixerscope check examples/05_own_task.py:First` examines it."""

import torch
from torch import Tensor

import mixerscope as ms


class First(ms.Task):
    """A few blanks, random symbols, then a question mark that asks for the first of the symbols."""

    length: int = 9
    symbols: int = 8
    mechanisms = (ms.Mechanism(("key", "query"), "direct copy", "the question mark looks for the first symbol itself"),)

    @property
    def vocab_size(self) -> int:
        return self.symbols + 2  # the blank and the question mark are the last two

    @property
    def max_length(self) -> int:
        return self.length + 1

    @property
    def slots(self) -> tuple[str, ...]:
        return ("key",)

    def sample(self, n: int, rng: torch.Generator, split: str = "train") -> ms.Batch:
        tokens = torch.randint(self.symbols, (n, self.length + 1), generator=rng)
        first = torch.randint(1, self.length, (n,), generator=rng)
        tokens[torch.arange(self.length + 1) < first[:, None]] = self.symbols
        tokens[:, -1] = self.symbols + 1
        targets = torch.full_like(tokens, ms.UNSCORED)
        targets[:, -1] = tokens.gather(1, first[:, None])[:, 0]
        return ms.Batch(tokens, targets, {"key": first, "query": torch.full((n,), self.length)})

    def solve(self, batch: ms.Batch) -> Tensor:
        return batch.tokens.gather(1, (batch.tokens != self.symbols).int().argmax(1, keepdim=True))

    def symbol(self, token: int) -> str:
        return {self.symbols: "_", self.symbols + 1: "?"}.get(token, f"s{token}")

    def symbol_class(self, slot: str, symbols: str) -> tuple[int, int]:
        return 0, self.symbols


if __name__ == "__main__":
    ms.register("task", "first")(First)
    spec = ms.preset("small", "first", "based")
    result = ms.run(spec, "runs", progress=False)  # trains, patches, puts the route to the proof, and judges
    print(result.verdicts["key"].sentence())
