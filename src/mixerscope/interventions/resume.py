"""Running a model on from an edited site, instead of from its tokens.

What the edit cannot have changed is taken from the unedited run: everything before the edited component, every other
position where positions do not interact, and after the last mixer all positions but those that are read.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from mixerscope.interventions.runner import AFTER, Standing, Unedited
from mixerscope.interventions.states import STATE, is_state, mixer_of, read_states, run_from_states
from mixerscope.mixers import Mixer
from mixerscope.model import Block, Model
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


def run_and_record(
    model: nn.Module, tokens: Tensor, read: Tensor, sites: list[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits [n, q, v] at `read` [n, q], and the activations at the named sites."""
    states = [site for site in sites if is_state(site)]
    around = {f"blocks.{split_site(site)[0]}.{name}" for site in states for name in ("mixer_in", "mixer_out")}
    with record(model, sorted({*sites, *around} - {*states})) as activations:
        logits = model(tokens, read)
    for site in states:
        activations[site] = read_states(mixer_of(model, site), activations[f"blocks.{split_site(site)[0]}.mixer_in"])
    return logits, activations


def same_edit(site: str, depth: int) -> str:
    """The site where swapping in the other document's activation at a position is the same edit, as late as possible.

    From `resid_mid` to the end of the block no position sees another, so the other's `resid_mid` becomes its
    `resid_post` whatever else was edited, and its `mlp_in` its `mlp_out`; where a block ends, the next begins.
    """
    layer, name = split_site(site)
    name = {"mlp_in": "mlp_out", "resid_mid": "resid_post"}.get(name, name)
    if name == "resid_post" and layer + 1 < depth:
        layer, name = layer + 1, "resid_pre"
    return f"blocks.{layer}.{name}"


def mixed_at(mixer: Mixer, x: Tensor, read: Tensor) -> Tensor:
    """What a mixer gives for x [n, t, d] at read [n, q]; of a single position, without the others."""
    return mixer.forward_at(x, read[:, 0])[:, None] if read.shape[1] == 1 else pick(mixer(x), read)


class Resumed:
    """The runner of our own models: on from the edit."""

    def __init__(self, model: Model) -> None:
        self.model, self.layers = model, model.layers()

    def run(self, tokens: Tensor, read: Tensor, sites: Iterable[str]) -> Unedited:
        """The unedited run; keeps the residual stream beside the named sites."""
        stream = {
            f"blocks.{i}.{name}"
            for i, block in enumerate(self.layers)
            for name in ("resid_pre", "resid_mid", "resid_post")
            if name != "resid_mid" or block.mlp is not None
        }
        return Unedited(tokens, read, *run_and_record(self.model, tokens, read, sorted(stream | set(sites))))

    def no_path(self, site: str, standing: Standing) -> str | None:
        layer, name = split_site(site)
        if name == STATE and standing.none_before:
            return "the state after that position is not carried on to the one that is read"
        if standing.all_after:
            return AFTER
        if layer == len(self.layers) - 1 and name in _POINTWISE and not standing.some_at:
            return "no mixer follows that could carry it to the position that is read"
        return None

    def added_to(self, site: str) -> str | None:
        layer, name = split_site(same_edit(site, len(self.layers)))
        stream = {"mixer_out": "resid_pre", "mlp_out": "resid_mid"}.get(name)
        return None if stream is None else f"blocks.{layer}.{stream}"

    def stand_in(self, site: str, added_to_same: bool) -> str:
        """By `same_edit`; and where both documents agree on what `mixer_out` or `mlp_out` is added to, the sum is the
        other's as well."""
        depth = len(self.layers)
        later = same_edit(site, depth)
        if self.added_to(site) is None or not added_to_same:
            return later
        return same_edit(f"blocks.{split_site(later)[0]}.resid_post", depth)

    def stand_ins(self, sites: Iterable[str]) -> set[str]:
        return {self.stand_in(site, known) for site in sites for known in (False, True)}

    def edited(self, base: Unedited, site: str, positions: Tensor, value: Tensor) -> Tensor:
        return self.model.read_out(self.leaves(base, site, positions, value))

    def leaves(self, base: Unedited, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """[r n, q, d] what leaves the last block where logits are read, for `edited`."""
        return _Onwards(self.layers, base).leaves(site, positions, value)


class _Onwards:
    """From an edit of one unedited run to what leaves the last block."""

    def __init__(self, layers: list[Block], base: Unedited) -> None:
        self.layers, self.tokens, self.read, self.cache = layers, base.tokens, base.read, base.cache

    def leaves(self, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """[r n, q, d] at the positions that are read, with value [r n, p, ...] at positions [r n, p]."""
        layer, name = split_site(site)
        repeats = len(positions) // len(self.tokens)
        block = self.layers[layer]
        if name in _POINTWISE:
            after = self._finish_at(layer, name, positions, value, repeats)
            return self._from_block_end(layer, positions, after, repeats)
        x = self._base(layer, "resid_pre", repeats)
        if name == "resid_pre":
            return self._from_boundary(layer, swap(x, positions, value))
        if name == STATE:
            inputs, unedited = self._base(layer, "mixer_in", repeats), self._base(layer, "mixer_out", repeats)
            return self._from_mixed(layer, x, run_from_states(block.mixer, inputs, unedited, positions, value))
        if name != "mixer_in":
            with edit(block, {name: lambda a: swap(a, positions, value)}):
                return self._from_mixed(layer, x, block.mix(x))
        mixer_in = swap(self._base(layer, name, repeats), positions, value)
        if layer < len(self.layers) - 1:
            return self._from_mixed(layer, x, block.mixer_out(block.mixer(mixer_in)))
        read = self._read(repeats)
        return block.finish(pick(x, read) + mixed_at(block.mixer, mixer_in, read))

    def _base(self, layer: int, name: str, repeats: int) -> Tensor:
        x = self.cache[f"blocks.{layer}.{name}"]
        return x.repeat(repeats, *[1] * (x.dim() - 1)) if repeats > 1 else x

    def _read(self, repeats: int) -> Tensor:
        return self.read.repeat(repeats, 1)

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

    def _from_block_end(self, layer: int, positions: Tensor, after: Tensor, repeats: int) -> Tensor:
        """What leaves the block replaced by `after` at the edited positions, on to the end."""
        x = swap(self._base(layer, "resid_post", repeats), positions, after)
        return self._from_boundary(layer + 1, x) if layer < len(self.layers) - 1 else pick(x, self._read(repeats))

    def _from_boundary(self, layer: int, x: Tensor) -> Tensor:
        """The residual stream that enters block `layer`, on to the end."""
        block = self.layers[layer]
        if layer < len(self.layers) - 1:
            return self._from_mixed(layer, x, block.mix(x))
        # Nothing mixes after this block: only what it gives at the positions that are read matters.
        read = self._read(len(x) // len(self.tokens))
        return block.finish(pick(x, read) + mixed_at(block.mixer, block.mixer_input(x), read))

    def _from_mixed(self, layer: int, x: Tensor, mixed: Tensor) -> Tensor:
        block = self.layers[layer]
        if layer < len(self.layers) - 1:
            return self._from_boundary(layer + 1, block.finish(x + mixed))
        read = self._read(len(x) // len(self.tokens))
        return block.finish(pick(x, read) + pick(mixed, read))
