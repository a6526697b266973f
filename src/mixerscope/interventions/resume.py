"""Running a model on from an edited site, instead of from its tokens.

What the edit cannot have changed is taken from the unedited run: everything before the edited component, every other
position where positions do not interact, and after the last mixer all positions but the one that is read.
"""

import torch
from torch import Tensor

from mixerscope.interventions.states import STATE, is_state, mixer_of, read_states, run_from_states
from mixerscope.model import Model, at_positions
from mixerscope.sites import edit, record

_POINTWISE = ("mixer_out", "resid_mid", "mlp_in", "mlp_out", "resid_post")
"""Sites of a block after which no position of that block sees another."""


def swap(x: Tensor, positions: Tensor, value: Tensor) -> Tensor:
    """x [n, t, ...] with x[i, positions[i]] replaced by value[i]; positions [n], or [n, p] with value [n, p, ...]."""
    if positions.dim() == 2:
        for place in range(positions.shape[1]):
            x = swap(x, positions[:, place], value[:, place])
        return x
    where = torch.arange(x.shape[1], device=x.device) == positions[:, None]  # [n, t]
    return torch.where(where.view(*where.shape, *[1] * (x.dim() - 2)), value.unsqueeze(1), x)


def pick(x: Tensor, positions: Tensor) -> Tensor:
    """x [n, t, ...] at positions [n] -> [n, ...], at positions [n, p] -> [n, p, ...]."""
    rows = torch.arange(len(x), device=x.device)
    return x[rows if positions.dim() == 1 else rows[:, None], positions]


def split_site(site: str) -> tuple[int, str]:
    """`blocks.1.mixer.conv_out` -> (1, 'mixer.conv_out'); `embed` is where block 0 begins."""
    if site == "embed":
        return 0, "resid_pre"
    _, layer, name = site.split(".", 2)
    return int(layer), name


def run_and_record(model: Model, tokens: Tensor, read: Tensor, sites: list[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits [n, v] at `read` [n], and the activations at the named sites."""
    states = [site for site in sites if is_state(site)]
    around = {f"blocks.{split_site(site)[0]}.{name}" for site in states for name in ("mixer_in", "mixer_out")}
    with record(model, sorted({*sites, *around} - {*states})) as activations:
        logits = model(tokens, read[:, None])[:, 0]
    for site in states:
        activations[site] = read_states(mixer_of(model, site), activations[f"blocks.{split_site(site)[0]}.mixer_in"])
    return logits, activations


class Resumption:
    """One unedited run over some documents, and the means to run on from any edit of it."""

    def __init__(self, model: Model, tokens: Tensor, read: Tensor) -> None:
        self.model, self.read = model, read
        self.layers = model.layers()
        self.tokens = tokens
        self.logits: Tensor
        self.cache: dict[str, Tensor] = {}

    def run(self, sites: list[str]) -> None:
        """The unedited run; keeps the named sites beside the residual stream."""
        stream = {
            f"blocks.{i}.{name}"
            for i, block in enumerate(self.layers)
            for name in ("resid_pre", "resid_mid", "resid_post")
            if name != "resid_mid" or block.mlp is not None
        }
        self.logits, self.cache = run_and_record(self.model, self.tokens, self.read, sorted(stream | set(sites)))

    def no_path(self, site: str, positions: Tensor) -> str | None:
        """Why an edit at this site and these positions cannot reach the logits that are read, or None."""
        layer, name = split_site(site)
        read = self.read if positions.dim() == 1 else self.read[:, None]
        if name == STATE and bool((positions >= read).all()):
            return "the state after that position is not carried on to the one that is read"
        if bool((positions > read).all()):
            return "the position comes after the one that is read"
        last = layer == len(self.layers) - 1
        if last and name in _POINTWISE and not bool((positions == read).any()):
            return "no mixer follows that could carry it to the position that is read"
        return None

    def edited(self, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """Logits [r n, v] after writing value at positions: the n documents, r edits of each.

        Positions are [r n] with value [r n, ...], or [r n, p] with value [r n, p, ...].
        """
        layer, name = split_site(site)
        repeats = len(positions) // len(self.tokens)
        block = self.layers[layer]
        x = self._base(layer, "resid_pre", repeats)
        if name in _POINTWISE:
            after = self._finish_at(layer, name, positions, value, repeats)  # [r n, d]
            x = swap(self._base(layer, "resid_post", repeats), positions, after)
            return self._from_boundary(layer + 1, x, repeats)
        if name == "resid_pre":
            return self._from_boundary(layer, swap(x, positions, value), repeats)
        if name == STATE:
            inputs, unedited = self._base(layer, "mixer_in", repeats), self._base(layer, "mixer_out", repeats)
            mixed = run_from_states(block.mixer, inputs, unedited, positions, value)
        elif name == "mixer_in":
            mixed = block.mixer_out(block.mixer(swap(self._base(layer, name, repeats), positions, value)))
        else:
            with edit(block, {name: lambda a: swap(a, positions, value)}):
                mixed = block.mix(x)
        return self._from_mixed(layer, x, mixed, repeats)

    def _base(self, layer: int, name: str, repeats: int) -> Tensor:
        x = self.cache[f"blocks.{layer}.{name}"]
        return x.repeat(repeats, *[1] * (x.dim() - 1)) if repeats > 1 else x

    def _finish_at(self, layer: int, name: str, positions: Tensor, value: Tensor, repeats: int) -> Tensor:
        """What leaves the block at the edited positions."""
        block = self.layers[layer]
        if name == "resid_post":
            return value
        if name == "mixer_out":
            value = pick(self._base(layer, "resid_pre", repeats), positions) + value
            return block.finish(value)
        if name == "resid_mid":
            return block.finish(value)
        assert block.mlp is not None
        out = block.mlp_out(block.mlp(value)) if name == "mlp_in" else value
        return block.resid_post(pick(self._base(layer, "resid_mid", repeats), positions) + out)

    def _from_boundary(self, layer: int, x: Tensor, repeats: int) -> Tensor:
        """The residual stream that enters block `layer`, on to the logits."""
        if layer == len(self.layers):
            return self.model.read_out(pick(x, self.read.repeat(repeats)))
        return self._from_mixed(layer, x, self.layers[layer].mix(x), repeats)

    def _from_mixed(self, layer: int, x: Tensor, mixed: Tensor, repeats: int) -> Tensor:
        block = self.layers[layer]
        if layer == len(self.layers) - 1:  # nothing mixes any more: only the position that is read matters
            read = self.read.repeat(repeats)[:, None]
            return self.model.read_out(block.finish(at_positions(x, read) + at_positions(mixed, read))[:, 0])
        return self._from_boundary(layer + 1, block.finish(x + mixed), repeats)
