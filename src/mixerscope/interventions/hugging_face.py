"""Ready site maps for language models of the transformers package, which is never imported here.

A map is chosen by `model.config.model_type`. It names the residual stream at every boundary, what each mixer and each
MLP adds to it, and the heads where they stand side by side just before the mixer's output projection.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted, adapt


@dataclass(frozen=True)
class Heads:
    """Where the heads of a mixer can be told apart."""

    site: str
    """What the place is called within the block."""
    place: str
    """Within the mixer."""
    count: str
    """The field of the configuration that says how many there are."""


@dataclass(frozen=True)
class Family:
    """How a kind of model names what all of them have."""

    trunk: str
    """All but the head."""
    embed: str
    """Its output enters the first layer, positions included."""
    layers: str
    mixer: str
    mlp: str | None
    component: str
    """What moves information between positions, as people call it."""
    heads: Heads | None = None


def _attention(projection: str) -> Heads:
    return Heads("mixer.heads_out", f"{projection}:input", "num_attention_heads")


_LLAMA = Family("model", "embed_tokens", "layers", "self_attn", "mlp", "attention", _attention("o_proj"))
_SCAN = Heads("mixer.scan_out", "norm:input[0]", "num_heads")

FAMILIES = {
    "gpt2": Family("transformer", "drop", "h", "attn", "mlp", "attention", _attention("c_proj")),
    "gpt_neox": Family("gpt_neox", "embed_in", "layers", "attention", "mlp", "attention", _attention("dense")),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    # The convolution inside runs on weights, not as a module, so that the mixer is one part.
    "mamba": Family("backbone", "embeddings", "layers", "mixer", None, "Mamba mixer"),
    "mamba2": Family("backbone", "embeddings", "layers", "mixer", None, "Mamba-2 mixer", _SCAN),
}
HEADS = ("lm_head", "embed_out")
"""What the layer that makes the logits is called; GPT-NeoX has had both names."""


def adapt_hf(model: nn.Module, symbols: tuple[int, int] | None = None) -> Adapted:
    """A causal language model of transformers with our names for its places, and its block boundaries.

    `symbols` = (first, count) makes one over `count` symbols of it: documents are of the tokens from `first` on, and
    no other logits are given.

    Sites: `embed`, and in every block `resid_pre`, `mixer_out`, `mlp_out` where there is an MLP, `resid_post`; in
    attention `mixer.heads_out`, in Mamba-2 `mixer.scan_out`, by head. `check_model` says whether they can be trusted.
    """
    module: Any = getattr(model, "_orig_mod", model)
    kind, name = getattr(getattr(module, "config", None), "model_type", None), type(module).__name__
    if kind not in FAMILIES:
        what = f"{name} has no config.model_type" if kind is None else f"no site map is ready for the type {kind!r}"
        raise UserError(
            f"{what}; ready: {', '.join(FAMILIES)}; for others write"
            " adapt(model, {'blocks.0.resid_pre': 'path.of.layer.0:input', ...}, head='path.of.head')"
        )
    family, known = FAMILIES[kind], dict(module.named_modules(remove_duplicate=False))
    head = next((path for path in HEADS if path in known), None)
    layers = f"{family.trunk}.{family.layers}"
    if head is None or layers not in known:
        missing = layers if layers not in known else HEADS[0]
        raise UserError(f"{name} has no {missing!r}; load the class that makes logits, as AutoModelForCausalLM does")
    sites, heads, parts = {"embed": f"{family.trunk}.{family.embed}"}, dict[str, int](), list[list[tuple[str, str]]]()
    depth = len(known[layers])
    for i in range(depth):
        block, layer = f"blocks.{i}", f"{layers}.{i}"
        mixer, moved = f"{layer}.{family.mixer}", f"{block}.mixer_out"
        sites[f"{block}.resid_pre"] = f"{layer}:input"
        if family.heads is not None:
            moved = f"{block}.{family.heads.site}"
            sites[moved] = f"{mixer}.{family.heads.place}"
            heads[moved] = int(getattr(module.config, family.heads.count))
        sites[f"{block}.mixer_out"] = mixer
        if family.mlp is not None:
            sites[f"{block}.mlp_out"] = f"{layer}.{family.mlp}"
        sites[f"{block}.resid_post"] = layer
        parts.append([(family.component, moved)])
    boundaries = [*(f"blocks.{i}.resid_pre" for i in range(depth)), f"blocks.{depth - 1}.resid_post"]
    first, count = symbols or (0, None)
    # A cache of past positions is of no use here, and would be carried from one edit to the next.
    return adapt(
        module,
        sites,
        head=head,
        call=lambda model, tokens: model(tokens + first, use_cache=False),
        logits=None if count is None else (lambda found: found.logits[..., first : first + count]),
        heads=heads,
        boundaries=boundaries,
        parts=parts,
        longest=getattr(module.config, "max_position_embeddings", None),
    )
