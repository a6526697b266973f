"""Running a model on from an edited site, instead of from its tokens.

What the edit cannot have changed is taken from the unedited run: everything before the edited component, every other
position where positions do not interact, and after the last mixer all positions but those that are read.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from mixerscope.interventions.runner import AFTER, Standing, Unedited
from mixerscope.interventions.states import STATE, is_state, mixer_of, read_states, run_from_states
from mixerscope.mixers import Mixer
from mixerscope.model import Block, Model
from mixerscope.sites import edit, record

Forward = Callable[[Tensor, Tensor], Tensor]
_POINTWISE = ("mixer_out", "resid_mid", "mlp_in", "mlp_out", "resid_post")
"""Sites of a block after which no position of that block sees another."""
_FINISHING = _POINTWISE[1:]
"""Those of them that come after its mixer."""


def swap(x: Tensor, positions: Tensor, value: Tensor) -> Tensor:
    """x [n, t, ...] with x[i, positions[i]] replaced by value[i]; positions [n], or [n, p] with value [n, p, ...].

    Of positions and values [r n, ...], r edits of each document, and [r n, t, ...] is what comes out.
    """
    # A copy, of which single rows are written: several times as fast as choosing by a mask.
    x = x.repeat(len(positions) // len(x), *[1] * (x.dim() - 1))
    rows = torch.arange(len(x), device=x.device)
    if positions.dim() == 1:
        return x.index_put_((rows, positions), value)
    for place in range(positions.shape[1]):  # one by one: where two are the same, the last is written
        x.index_put_((rows, positions[:, place]), value[:, place])
    return x


def pick(x: Tensor, positions: Tensor) -> Tensor:
    """x [n, t, ...] at positions [n] -> [n, ...], at positions [n, p] -> [n, p, ...]; r times at [r n, ...]."""
    first = torch.arange(0, len(x) * x.shape[1], x.shape[1], device=x.device)
    if len(positions) > len(x):
        first = first.repeat(len(positions) // len(x))
    rows = (first if positions.dim() == 1 else first[:, None]) + positions
    return x.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, positions.shape)


def split_site(site: str) -> tuple[int, str]:
    """`blocks.1.mixer.conv_out` -> (1, 'mixer.conv_out'); `embed` is where block 0 begins."""
    if site == "embed":
        return 0, "resid_pre"
    _, layer, name = site.split(".", 2)
    return int(layer), name


def run_and_record(
    model: nn.Module, tokens: Tensor, read: Tensor, sites: list[str], forward: Forward | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits [n, q, v] at `read` [n, q], and the activations at the named sites; `forward` may stand in for the model's
    own pass."""
    states = [site for site in sites if is_state(site)]
    around = {f"blocks.{split_site(site)[0]}.{name}" for site in states for name in ("mixer_in", "mixer_out")}
    with record(model, sorted({*sites, *around} - {*states})) as activations:
        logits = (forward or model)(tokens, read)
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

    def run(self, tokens: Tensor, read: Tensor, sites: Iterable[str], places: Tensor | None = None) -> Unedited:
        """The unedited run; keeps the residual stream and what mixers see of it beside the named sites."""
        stream = {
            f"blocks.{i}.{name}"
            for i, block in enumerate(self.layers)
            for name in ("resid_pre", "mixer_in", "resid_mid", "resid_post")
            if name != "resid_mid" or block.mlp is not None
        }
        sites, last, length = set(sites), len(self.layers) - 1, tokens.shape[1]
        kept = sorted(stream | sites)
        at = read if places is None or places is read else torch.cat([read, places], 1)
        if places is None or at.shape[1] >= length:
            return Unedited(tokens, read, *run_and_record(self.model, tokens, read, kept))
        inside = any(split_site(site)[0] == last for site in sites - stream)
        logits, cache = run_and_record(
            self.model, tokens, read, kept, lambda *given: self._ending_at(at, inside, *given)
        )
        narrow = {site for site in kept if split_site(site)[0] == last and split_site(site)[1] in _FINISHING}
        found = at[:, :, None] == torch.arange(length, device=at.device)  # [n, p, t]
        known, column = found.any(1), found.byte().argmax(1)
        cache |= {site: pick(cache[site], column).where(known[..., None], float("nan")) for site in narrow}
        return Unedited(tokens, read, logits, cache)

    def _ending_at(self, at: Tensor, inside: bool, tokens: Tensor, read: Tensor) -> Tensor:
        """The forward pass, which after the last mixer goes on at positions `at` [n, p] alone; first of them `read`.
        Nor does the last mixer give more, unless what is `inside` it is looked at."""
        x = self.model.embed_tokens(tokens)
        *others, last = self.layers
        for block in others:
            x = block(x)
        x = last.resid_pre(x)
        if inside:
            mixed = pick(last.mix(x), at)
        else:
            mixed = mixed_at(last.mixer, last.mixer_in(last.mixer_input(x)), at)
        return self.model.read_out(last.finish(last.add(pick(x, at), mixed))[:, : read.shape[1]])

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

    def is_other(self, site: str, standing: Standing) -> bool:
        """Where each position holds its own token alone, and at the end, where all that is read is there."""
        entry, end = "blocks.0.resid_pre", f"blocks.{len(self.layers) - 1}.resid_post"
        site = "blocks.{}.{}".format(*split_site(site))
        return (site == entry and standing.all_changed) or (site == end and standing.all_read)

    def stand_ins(self, sites: Iterable[str]) -> set[str]:
        return {self.stand_in(site, known) for site in sites for known in (False, True)}

    def leaves(self, base: Unedited, site: str, positions: Tensor, value: Tensor) -> Tensor:
        return _Onwards(self.layers, base).leaves(site, positions, value)

    def read_out(self, left: Tensor) -> Tensor:
        return self.model.read_out(left)


class _Onwards:
    """From an edit of one unedited run to what leaves the last block."""

    def __init__(self, layers: list[Block], base: Unedited) -> None:
        self.layers, self.tokens, self.read, self.cache = layers, base.tokens, base.read, base.cache

    def leaves(self, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """[r n, q, d] at the positions that are read, with value [r n, p, ...] at positions [r n, p]."""
        layer, name = split_site(site)
        repeats = len(positions) // len(self.tokens)
        block, self.since = self.layers[layer], positions.amin(1, keepdim=True)
        if name == "resid_pre":
            return self._entering(layer, positions, value)
        if name in _POINTWISE:
            after = self._finish_at(layer, name, positions, value)
            if layer < len(self.layers) - 1:
                return self._entering(layer + 1, positions, after)
            return self._read_with(f"blocks.{layer}.resid_post", positions, after)
        if name == "mixer_in":
            return self._mixing(layer, self._swapped(layer, name, positions, value), self._stream(layer, repeats))
        x = self._base(layer, "resid_pre", repeats)
        if name == STATE:
            inputs, unedited = self._base(layer, "mixer_in", repeats), self._base(layer, "mixer_out", repeats)
            return self._mixed(layer, run_from_states(block.mixer, inputs, unedited, positions, value), x)
        with edit(block, {name: lambda a: swap(a, positions, value)}):
            return self._mixed(layer, block.mix(x), x)

    def _base(self, layer: int, name: str, repeats: int) -> Tensor:
        x = self.cache[f"blocks.{layer}.{name}"]
        return x.repeat(repeats, *[1] * (x.dim() - 1)) if repeats > 1 else x

    def _swapped(self, layer: int, name: str, positions: Tensor, value: Tensor) -> Tensor:
        return swap(self.cache[f"blocks.{layer}.{name}"], positions, value)

    def _stream(self, layer: int, repeats: int) -> Tensor:
        """What the mixer's output is added to: where it is read, in the last block."""
        if layer < len(self.layers) - 1:
            return self._base(layer, "resid_pre", repeats)
        return pick(self.cache[f"blocks.{layer}.resid_pre"], self._reads(repeats * len(self.tokens)))

    def _reads(self, rows: int) -> Tensor:
        """[r n, q] the positions that are read, for all edits of the documents."""
        return self.read.repeat(rows // len(self.tokens), 1)

    def _read_with(self, site: str, positions: Tensor, value: Tensor) -> Tensor:
        """[r n, q, d] what stands at the site where it is read, with the value written."""
        read = self._reads(len(positions))
        x = pick(self.cache[site], read)
        for place in range(positions.shape[1]):
            here = (read == positions[:, place, None])[..., None]
            x = torch.where(here, value[:, place, None], x)
        return x

    def _finish_at(self, layer: int, name: str, positions: Tensor, value: Tensor) -> Tensor:
        """What leaves the block at the edited positions."""
        block = self.layers[layer]
        if name == "resid_post":
            return value
        if name == "mixer_out":
            return block.finish(block.add(pick(self.cache[f"blocks.{layer}.resid_pre"], positions), value))
        if name == "resid_mid":
            return block.finish(value)
        assert block.mlp is not None
        out = block.mlp_out(block.mlp(value)) if name == "mlp_in" else value
        return block.resid_post(pick(self.cache[f"blocks.{layer}.resid_mid"], positions) + out)

    def _finish(self, layer: int, x: Tensor) -> Tensor:
        """What leaves the block, of x [r n, t, d] after its mixer: before the first edit nothing has changed, and what
        comes after the last position that is read is not looked at."""
        block, at = self.layers[layer], torch.arange(x.shape[1], device=x.device)
        if block.mlp is None or x.device.type != "cpu":  # a GPU would be waited for, to learn how many these are
            return block.finish(x)
        changed = (at >= self.since) & (at <= self._reads(len(x)).amax(1, keepdim=True))
        rows = changed.flatten().nonzero()[:, 0]
        found = block.finish(x.flatten(0, 1).index_select(0, rows))
        unedited = self._base(layer, "resid_post", len(x) // len(self.tokens))
        return unedited.flatten(0, 1).index_copy(0, rows, found).view(x.shape)

    def _entering(self, layer: int, positions: Tensor, value: Tensor) -> Tensor:
        """On from the residual stream that enters block `layer`, with the value written."""
        block = self.layers[layer]
        if block.short_conv is not None:  # the mixer sees more of the stream than it has at the same position
            return self._boundary(layer, self._swapped(layer, "resid_pre", positions, value))
        seen = self._swapped(layer, "mixer_in", positions, block.mixer_input(value))
        if layer < len(self.layers) - 1:
            return self._mixing(layer, seen, self._swapped(layer, "resid_pre", positions, value))
        return self._mixing(layer, seen, self._read_with(f"blocks.{layer}.resid_pre", positions, value))

    def _boundary(self, layer: int, x: Tensor) -> Tensor:
        """On from the residual stream x [r n, t, d] that enters block `layer`."""
        seen = self.layers[layer].mixer_input(x)
        return self._mixing(layer, seen, x if layer < len(self.layers) - 1 else pick(x, self._reads(len(x))))

    def _mixing(self, layer: int, seen: Tensor, x: Tensor) -> Tensor:
        """On from what the mixer of block `layer` sees and what its output is added to (see `_stream`)."""
        block = self.layers[layer]
        if layer < len(self.layers) - 1:
            return self._boundary(layer + 1, self._finish(layer, block.add(x, block.mixer(seen))))
        # Nothing mixes after this block: only what it gives at the positions that are read matters.
        return block.finish(block.add(x, mixed_at(block.mixer, seen, self._reads(len(seen)))))

    def _mixed(self, layer: int, mixed: Tensor, x: Tensor) -> Tensor:
        """On from the mixer's output and the stream x that it is added to, both at all positions."""
        block = self.layers[layer]
        if layer < len(self.layers) - 1:
            return self._boundary(layer + 1, self._finish(layer, block.add(x, mixed)))
        read = self._reads(len(x))
        return block.finish(block.add(pick(x, read), pick(mixed, read)))
