"""Running edits of a foreign module, which cannot be resumed: every edit is a whole forward pass."""

from collections.abc import Iterable

from torch import Tensor

from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.resume import run_and_record, swap
from mixerscope.interventions.runner import AFTER, Standing, Unedited
from mixerscope.sites import edit


class WholePass:
    """The runner of a foreign module. Of what happens between its sites nothing is known but that it is causal."""

    def __init__(self, model: Adapted) -> None:
        self.model = model

    def run(self, tokens: Tensor, read: Tensor, sites: Iterable[str], places: Tensor | None = None) -> Unedited:
        return Unedited(tokens, read, *run_and_record(self.model, tokens, read, sorted(sites)))

    def leaves(self, base: Unedited, site: str, positions: Tensor, value: Tensor) -> Tensor:
        repeats = len(positions) // len(base.tokens)
        with edit(self.model, {site: lambda x: swap(x, positions, value)}):
            return self.model(base.tokens.repeat(repeats, 1), base.read.repeat(repeats, 1))

    def read_out(self, left: Tensor) -> Tensor:
        return left

    def no_path(self, site: str, standing: Standing) -> str | None:
        return AFTER if standing.all_after else None

    def added_to(self, site: str) -> str | None:
        return None

    def stand_in(self, site: str, added_to_same: bool) -> str:
        return site

    def is_other(self, site: str, standing: Standing) -> bool:
        return False

    def stand_ins(self, sites: Iterable[str]) -> set[str]:
        return set()
