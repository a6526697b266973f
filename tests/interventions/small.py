"""A foreign module as small as it can be, whose layer gives whatever a test wants."""

from torch import nn

from mixerscope.interventions import PairSettings, make_pairs
from mixerscope.randomness import construction
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=5, slots=("key",)), data_seed=0)
TOKENS = PAIRS.original.tokens
WIDTH = 8


class Summing(nn.Module):
    """A causal layer whose output can be dressed up."""

    def __init__(self, dress=lambda y: y) -> None:
        super().__init__()
        self.inside, self.dress = nn.Linear(WIDTH, WIDTH), dress

    def forward(self, x, *, scale=1.0):
        return self.dress(scale * self.inside(x).cumsum(1))


class Small(nn.Module):
    """Embedding, one layer, a residual sum, logits."""

    def __init__(self, dress=lambda y: y, undress=lambda y: y, call=lambda layer, x: layer(x)) -> None:
        super().__init__()
        self.table, self.layer, self.out = (
            nn.Embedding(TASK.vocab_size, WIDTH),
            Summing(dress),
            nn.Linear(WIDTH, TASK.vocab_size),
        )
        self.undress, self.call = undress, call

    def forward(self, ids):
        x = self.table(ids)
        return self.out(x + self.undress(self.call(self.layer, x)))


def build(cls, *args, **kwargs):
    with construction(0):
        return cls(*args, **kwargs)
