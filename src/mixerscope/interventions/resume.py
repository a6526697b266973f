"""Running a model on from an edited site, instead of from its tokens.

What the edit cannot have changed is taken from the unedited run: everything before the edited component, every other
position where positions do not interact, and after the last mixer all positions but the one that is read.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from mixerscope.interventions.states import STATE, is_state, mixer_of, read_states, run_from_states
from mixerscope.model import Model
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
    """Logits [n, v] at `read` [n], and the activations at the named sites."""
    states = [site for site in sites if is_state(site)]
    around = {f"blocks.{split_site(site)[0]}.{name}" for site in states for name in ("mixer_in", "mixer_out")}
    with record(model, sorted({*sites, *around} - {*states})) as activations:
        logits = model(tokens, read[:, None])[:, 0]
    for site in states:
        activations[site] = read_states(mixer_of(model, site), activations[f"blocks.{split_site(site)[0]}.mixer_in"])
    return logits, activations


def same_edit(site: str, depth: int) -> str:
    """The site where swapping in the twin's activation at a position is the same edit, as late as possible.

    From `resid_mid` to the end of the block no position sees another, so a twin's `resid_mid` becomes its
    `resid_post` whatever else was edited, and its `mlp_in` its `mlp_out`; where a block ends, the next begins.
    """
    layer, name = split_site(site)
    name = {"mlp_in": "mlp_out", "resid_mid": "resid_post"}.get(name, name)
    if name == "resid_post" and layer + 1 < depth:
        layer, name = layer + 1, "resid_pre"
    return f"blocks.{layer}.{name}"


def stand_ins(sites: Iterable[str], depth: int) -> set[str]:
    """Sites that may run in place of the named ones, the edits being the same."""
    later = {same_edit(site, depth) for site in sites}
    added = {split_site(site)[0] for site in later if site.endswith((".mixer_out", ".mlp_out"))}
    return later | {same_edit(f"blocks.{layer}.resid_post", depth) for layer in added}


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

    def same_swap(self, source: "Resumption", site: str, positions: Tensor, *, by_value: bool) -> str:
        """The site where swapping in the source's activation at these positions is the same edit, perhaps this one.

        With `by_value` what the two runs hold counts too: `mixer_out` is added to `resid_pre` and `mlp_out` to
        `resid_mid`; where both agree on that, the sum is the source's as well.
        """
        site = same_edit(site, len(self.layers))
        layer, name = split_site(site)
        added_to = {"mixer_out": "resid_pre", "mlp_out": "resid_mid"}.get(name)
        if added_to is None or not by_value:
            return site
        stream = f"blocks.{layer}.{added_to}"
        if not torch.equal(pick(source.cache[stream], positions), pick(self.cache[stream], positions)):
            return site
        return same_edit(f"blocks.{layer}.resid_post", len(self.layers))

    def edited(self, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """Logits [r n, v] after writing value at positions: the n documents, r edits of each.

        Positions are [r n] with value [r n, ...], or [r n, p] with value [r n, p, ...].
        """
        return self.model.read_out(self.leaves(site, positions, value))

    def leaves(self, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """What leaves the last block at the position that is read [r n, d], the edit in place as in `edited`."""
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
        return block.finish(pick(x, read) + block.mixer.forward_at(mixer_in, read))

    def _base(self, layer: int, name: str, repeats: int) -> Tensor:
        x = self.cache[f"blocks.{layer}.{name}"]
        return x.repeat(repeats, *[1] * (x.dim() - 1)) if repeats > 1 else x

    def _read(self, repeats: int) -> Tensor:
        return self.read.repeat(repeats)

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
        # Nothing mixes after this block: only what it gives at the position that is read matters.
        read = self._read(len(x) // len(self.tokens))
        return block.finish(pick(x, read) + block.mix_at(x, read))

    def _from_mixed(self, layer: int, x: Tensor, mixed: Tensor) -> Tensor:
        block = self.layers[layer]
        if layer < len(self.layers) - 1:
            return self._from_boundary(layer + 1, block.finish(x + mixed))
        read = self._read(len(x) // len(self.tokens))
        return block.finish(pick(x, read) + pick(mixed, read))
