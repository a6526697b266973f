"""The backbone all architectures share: embeddings, blocks with a residual stream, a tied head, sites everywhere."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mixerscope import kernels
from mixerscope.artifacts.effects import Part
from mixerscope.errors import UserError
from mixerscope.mixers.base import InitRule, Mixer, Mover, init_linears, init_output
from mixerscope.mixers.ops.short_conv import ShortConv
from mixerscope.model.init import SCHEMES, init_embedding
from mixerscope.model.residual_mlp import fits, residual_mlp
from mixerscope.randomness import construction, stream
from mixerscope.registry import MIXERS
from mixerscope.sites import Site, find_site, unseen
from mixerscope.spec import LayerSpec, ModelSpec

NORM_EPSILON = 1e-5
MLP_RATIO = 4


def make_norm(kind: str, width: int) -> nn.Module:
    if kind == "layer":
        return nn.LayerNorm(width, eps=NORM_EPSILON)
    if kind == "rms":
        return nn.RMSNorm(width, eps=NORM_EPSILON)
    return nn.Identity()


class MLP(nn.Module):
    """d -> 4d -> d with the exact GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, MLP_RATIO * width)
        self.fc2 = nn.Linear(MLP_RATIO * width, width)

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        init_linears(self, rng, rule)
        init_output(self.fc2, rng, rule)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x)) where the block has an MLP. Without `residual`, mixer(norm(x)) alone.

    A block without one has no `resid_mid` and no `mlp_*` site: asking for them is an error, not a zero. With
    `short_conv = k` the mixer sees n + conv_k(n) in place of n = norm(x): the Canon layer of Allen-Zhu 2025.
    """

    def __init__(self, spec: LayerSpec, width: int) -> None:
        super().__init__()
        assert spec.norm is not None, "layer specs are resolved before a model is built"
        self.residual = spec.residual
        self.resid_pre = Site()
        self.norm1 = make_norm(spec.norm, width)
        self.short_conv: ShortConv | None = None
        if spec.short_conv:
            self.short_conv = ShortConv(width, spec.short_conv, bias=False)
            self.short_conv_out = Site()
        self.mixer_in = Site()
        self.mixer: Mixer = MIXERS.load(spec.mixer)(width, **spec.options)
        self.mixer_out = Site()
        self.mlp: MLP | None = None
        if spec.mlp:
            self.resid_mid = Site()
            self.norm2 = make_norm(spec.norm, width)
            self.mlp_in = Site()
            self.mlp = MLP(width)
            self.mlp_out = Site()
        self.resid_post = Site()

    def init_weights(self, rng: torch.Generator, rule: InitRule) -> None:
        self.mixer.init_weights(rng, rule)
        if self.mlp is not None:
            self.mlp.init_weights(rng, rule)
        if self.short_conv is not None:
            self.short_conv.init_weights(rng)

    def movers(self) -> tuple[Mover, ...]:
        """The parts that move information between positions, in order, their sites named from the block."""
        inner = tuple(Mover(mover.component, f"mixer.{mover.site}") for mover in self.mixer.movers)
        return inner if self.short_conv is None else (Mover("block short convolution", "short_conv_out"), *inner)

    def mix(self, x: Tensor) -> Tensor:
        """What the mixer makes of the stream x [b, t, d], to be added to it."""
        return self.mixer_out(self.mixer(self.mixer_in(self.mixer_input(x))))

    def mixer_input(self, x: Tensor) -> Tensor:
        """What the mixer sees of the residual stream."""
        x = self.norm1(x)
        if self.short_conv is not None:
            x = x + self.short_conv_out(self.short_conv(x))
        return x

    def add(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What the stream x is after the mixer gave `mixed`."""
        return x + mixed if self.residual else mixed

    def fused_mixer(self, x: Tensor) -> Tensor | None:
        """The stream x once the mixer has written to it, if one kernel can do so."""
        if self.residual and self.short_conv is None and isinstance(self.norm1, nn.LayerNorm) and self.may_fuse(x):
            return self.mixer.residual(x, self.norm1)
        return None

    def finish(self, x: Tensor) -> Tensor:
        """The block after its mixer: no position sees another from here on."""
        if self.mlp is not None:
            x = self.resid_mid(x)
            if isinstance(self.norm2, nn.LayerNorm) and self.may_fuse(x):
                x = residual_mlp(x, self.norm2, self.mlp.fc1, self.mlp.fc2)
            else:
                x = x + self.mlp_out(self.mlp(self.mlp_in(self.norm2(x))))
        return self.resid_post(x)

    def may_fuse(self, x: Tensor) -> bool:
        """Whether a half of this block may run as one kernel."""
        return fits(x) and kernels.wanted() and self.in_training_step()

    def in_training_step(self) -> bool:
        """Whether what is inside matters to nobody but the step: a shorter way to its result is then as good."""
        return self.training and torch.is_grad_enabled() and unseen(self)

    def forward(self, x: Tensor, read: Tensor | None = None) -> Tensor:
        """The stream after the block [b, t, d], or [b, q, d] at the positions `read` [b, q] alone."""
        x = self.resid_pre(x)
        fused = self.fused_mixer(x)
        # On a CPU everything is computed everywhere: a product of fewer rows may have other last bits.
        if read is None or on_cpu(x) or not self.in_training_step():
            found = self.finish(self.add(x, self.mix(x)) if fused is None else fused)
            return found if read is None else at_positions(found, read)
        if fused is not None:
            return self.finish(at_positions(fused, read))
        inputs, here = self.mixer_input(x), at_positions(x, read)
        one = read.shape[1] == 1
        mixed = self.mixer.learn_at(inputs, read[:, 0])[:, None] if one else at_positions(self.mixer(inputs), read)
        return self.finish(self.add(here, mixed))


class Model(nn.Module):
    """A language model over token ids. Built by `build_model`, which also initialises it."""

    def __init__(self, spec: ModelSpec, vocab_size: int) -> None:
        super().__init__()
        self.spec = spec
        self.logit_scale = SCHEMES[spec.init].logit_scale(spec.width)
        self.token_embedding = nn.Embedding(vocab_size, spec.width)
        self.position_embedding: nn.Embedding | None = None
        if spec.positions == "learned":
            self.position_embedding = nn.Embedding(spec.max_length, spec.width)
        self.embed = Site()
        self.blocks = nn.ModuleList(Block(layer, spec.width) for layer in spec.layer_specs())
        self.final_norm = nn.LayerNorm(spec.width, eps=NORM_EPSILON)
        self.logits = Site()

    def init_weights(self, rng: torch.Generator) -> None:
        scheme = SCHEMES[self.spec.init]
        init_embedding(self.token_embedding, scheme, rng)
        if self.position_embedding is not None:
            init_embedding(self.position_embedding, scheme, rng)
        for block in self.layers():
            block.init_weights(rng, InitRule(len(self.blocks), scheme.fan_in))

    def layers(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def shape(self) -> object:
        """What two models must have in common to run as one."""
        return self.spec

    @property
    def width(self) -> int:
        """Of the residual stream."""
        return self.spec.width

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return self.token_embedding.num_embeddings

    def boundaries(self) -> tuple[str, ...]:
        """Sites of the residual stream: before each block, and after the last."""
        count = len(self.blocks)
        return *(f"blocks.{i}.resid_pre" for i in range(count)), f"blocks.{count - 1}.resid_post"

    def parts(self) -> tuple[tuple[Part, ...], ...]:
        """Per block, the parts that move information between positions; a mixer that names none stands for itself."""
        blocks: list[tuple[Part, ...]] = []
        for i, layer in enumerate(self.layers()):
            movers = layer.movers()
            if not layer.mixer.movers:
                movers = (*movers, Mover(type(layer.mixer).__name__, "mixer_out"))
            sites = [f"blocks.{i}.{mover.site}" for mover in movers]
            found = zip(movers, sites, strict=True)
            blocks.append(tuple(Part(mover.component, site, find_site(self, site).heads) for mover, site in found))
        return tuple(blocks)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """[b, t] -> [b, t, d], the residual stream that enters block 0."""
        return self.embed_rows(self.token_embedding(tokens))

    def embed_rows(self, x: Tensor) -> Tensor:
        """The same from what the embedding table holds for each token, [b, t, d]."""
        if self.position_embedding is not None:
            length, rows = x.shape[1], self.position_embedding.num_embeddings
            if length > rows:
                raise UserError(f"a document of {length} tokens is longer than the {rows} learned positions")
            x = x + self.position_embedding.weight[:length]
        return self.embed(x)

    def read_out(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., vocabulary]: the logits of what leaves the last block."""
        return self.logits(F.linear(self.head_input(x), self.token_embedding.weight))

    def head_input(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]: what leaves the last block as the head takes it, whose weights are the table."""
        return self.final_norm(x) * self.logit_scale

    def forward(self, tokens: Tensor, read: Tensor | None = None) -> Tensor:
        """Logits [b, t, v], or [b, q, v] at the positions `read` [b, q] alone, which is much cheaper."""
        return self.from_embedded(self.embed_tokens(tokens), read)

    def from_embedded(self, x: Tensor, read: Tensor | None = None) -> Tensor:
        """The same from the residual stream that enters block 0."""
        return self.read_out(self.through_blocks(x, read))

    def through_blocks(self, x: Tensor, read: Tensor | None = None) -> Tensor:
        """What leaves the last block, [b, t, d], or [b, q, d] at the positions `read` [b, q] alone."""
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            x = block(x) if read is None or i < last else block(x, read)
        return x


def layers_of(model: nn.Module) -> list[Block]:
    """The blocks of a model of ours; none of any other module, of which we know only what its map names."""
    return model.layers() if isinstance(model, Model) else []


def on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu"


def at_positions(x: Tensor, positions: Tensor) -> Tensor:
    """[b, t, d] at [b, q] -> [b, q, d]."""
    return x.gather(1, positions.unsqueeze(-1).expand(*positions.shape, x.shape[-1]))


def build_model(spec: ModelSpec, vocab_size: int, seed: int) -> Model:
    """A freshly initialised model; the same seed gives the same weights, whatever happened before."""
    with construction(seed):
        model = Model(spec, vocab_size)
    model.init_weights(stream(seed, "weights"))
    return model


def parameters_of(spec: ModelSpec, vocab_size: int) -> int:
    """How many parameters a model has, which need not be made for that, however large."""
    try:
        with torch.device("meta"), construction(0):
            return parameter_count(Model(spec, vocab_size))
    except Exception:  # noqa: BLE001 - someone's mixer may look at numbers while it is built
        return parameter_count(build_model(spec, vocab_size, 0))


def load_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Strict: every parameter must be given, and nothing else."""
    model.load_state_dict(dict(weights), strict=True)


def trained_models(
    spec: ModelSpec, vocab_size: int, weights: Sequence[Mapping[str, Any]], device: str = "cpu"
) -> list["Model"]:
    """Models of one shape with these weights, where they will be looked at."""
    models: list[Model] = []
    for one in weights:
        # Initialising takes longer than copying, and what it gives is overwritten.
        models.append(copy.deepcopy(models[0]) if models else build_model(spec, vocab_size, 0))
        load_weights(models[-1], one)
    return [model.to(device).eval() for model in models]


def state_size(model: "Model", length: int) -> int:
    """Numbers per document that the model carries on after `length` positions."""
    return sum(block.mixer.state_size(length) for block in model.layers())


def parameter_count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
