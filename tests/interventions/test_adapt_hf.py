"""Ready site maps: small random models of transformers, opened by `adapt_hf` and by hooks written here."""

import logging

import pytest
import torch
from torch import nn

import mixerscope as ms
from mixerscope.errors import UserError
from mixerscope.interventions.hugging_face import FAMILIES
from mixerscope.randomness import construction

transformers = pytest.importorskip(
    "transformers", reason="the foreign models come with the extra: pip install 'mixerscope[hf]'"
)
pytestmark = pytest.mark.filterwarnings("ignore")

TASK = ms.AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = ms.make_pairs(TASK, ms.PairSettings(documents=20, slots=("key",)), data_seed=0)
DEPTH, HEADS = 3, 4
SMALL = {"vocab_size": TASK.vocab_size, "hidden_size": 16, "num_hidden_layers": DEPTH, "initializer_range": 0.3}
ATTENTION = {**SMALL, "num_attention_heads": HEADS, "intermediate_size": 32, "max_position_embeddings": 32}
GROUPED = {**ATTENTION, "num_key_value_heads": 2, "head_dim": 6}
"""Fewer keys than queries, and heads that together are wider than the stream."""
SCAN = {**SMALL, "state_size": 4}
SCAN_BY_HEAD = {**SCAN, "num_heads": HEADS, "head_dim": 8, "n_groups": 2, "chunk_size": 4}
CLASSES = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", ATTENTION),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", ATTENTION),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**ATTENTION, "num_key_value_heads": 2}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED),
    "mamba": ("MambaForCausalLM", "MambaConfig", SCAN),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", SCAN_BY_HEAD),
}
LAYERS = {
    "gpt2": "transformer.h",
    "gpt_neox": "gpt_neox.layers",
    "mamba": "backbone.layers",
    "mamba2": "backbone.layers",
}
MIXERS = {"gpt2": "attn", "gpt_neox": "attention", "mamba": "mixer", "mamba2": "mixer"}


def build(kind, **changed):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model, config, settings = CLASSES[kind]
    with construction(0):
        return getattr(transformers, model)(getattr(transformers, config)(**{**settings, **changed})).eval()


def layer_of(module, kind, i):
    return module.get_submodule(f"{LAYERS.get(kind, 'model.layers')}.{i}")


def mixer_of(module, kind, i):
    return getattr(layer_of(module, kind, i), MIXERS.get(kind, "self_attn"))


def test_every_map_is_tried():
    assert set(CLASSES) == set(FAMILIES)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_site_boundary_and_part_can_be_trusted(kind):
    model = ms.adapt_hf(build(kind))
    found = ms.check_model(model, PAIRS.original)
    assert found.passed, str(found)
    mlp = "" if kind.startswith("mamba") else " + blocks.1.mlp_out"
    for line in (
        "blocks.0.resid_pre = embed",
        f"blocks.1.resid_post = blocks.1.resid_pre + blocks.1.mixer_out{mlp}",
        "blocks.2.resid_pre = blocks.1.resid_post",
        "boundary blocks.0.resid_pre",
        "boundary blocks.2.resid_post",
        f"parts of block 2: {FAMILIES[kind].component}",
    ):
        assert f"pass  {line}" in str(found).splitlines()
    assert ms.boundary_sites(model) == [*(f"blocks.{i}.resid_pre" for i in range(DEPTH)), "blocks.2.resid_post"]
    assert [part.heads for [part] in model.parts()] == [1 if kind == "mamba" else HEADS] * DEPTH


@pytest.mark.parametrize("kind", FAMILIES)
def test_cells_equal_a_loop_with_hooks_of_our_own(kind):
    module = build(kind)
    rows = torch.arange(len(PAIRS))
    read, answers = PAIRS.original.answers()
    kept: dict[str, torch.Tensor] = {}
    at, donor = torch.zeros(0), None

    def visit(name, x):
        """Keeps what is there while the donor runs, and writes it at one position while the other document does."""
        if donor is None:
            kept[name] = x.clone()
            return x
        if donor != name:
            return x
        x = x.clone()
        x[rows, at] = kept[name][rows, at]
        return x

    def first(output, new):
        return (new, *output[1:]) if isinstance(output, tuple) else new

    layer, mixer = layer_of(module, kind, 1), mixer_of(module, kind, 0)
    layer.register_forward_pre_hook(lambda m, args: (visit("blocks.1.resid_pre", args[0]), *args[1:]))
    mixer.register_forward_hook(
        lambda m, args, out: first(out, visit("blocks.0.mixer_out", out[0] if isinstance(out, tuple) else out))
    )
    sites = ["blocks.1.resid_pre", "blocks.0.mixer_out"]
    model = ms.adapt_hf(build(kind))
    cells = ms.plan_grid(model, PAIRS, sites, roles=["key", "value", "query"])
    grid = ms.interchange(model, PAIRS, cells)
    effects = 0
    for cell in cells:
        runs, source = PAIRS.corrupted["key"].tokens, PAIRS.original.tokens
        unedited = grid.corrupted["key"].likelihood
        if cell.direction == "break":
            runs, source, unedited = source, runs, grid.original.likelihood
        with torch.no_grad():
            donor = None
            module(source, use_cache=False)
            donor, at = cell.site, PAIRS.positions(cell.role)
            want = module(runs, use_cache=False).logits[rows, read].softmax(-1)[rows, answers]
        torch.testing.assert_close(grid.cells[cell].effects.likelihood, want, rtol=1e-4, atol=1e-6)
        effects += bool((want - unedited).abs().max() > 1e-4)
    assert effects >= 4


@pytest.mark.parametrize("kind", [kind for kind, family in FAMILIES.items() if family.heads is not None])
def test_heads_are_those_of_the_model(kind):
    """When the weights of one head are changed, what the site holds changes for that head and for no other."""
    model = ms.adapt_hf(build(kind))
    site, head = model.parts()[0][0].site, 2
    with ms.record(model, [site]) as found, torch.no_grad():
        model(PAIRS.original.tokens)
    heads = found[site]
    assert heads.shape[:3] == (*PAIRS.original.tokens.shape, HEADS)
    mixer = mixer_of(model.foreign, kind, 0)
    if kind == "mamba2":
        assert heads.shape[3] == mixer.head_dim
        mixer.D.data[head] += 1.0  # what a head hands on of its own input, before the norm
    else:
        projection = {"gpt2": "c_attn", "gpt_neox": "query_key_value"}.get(kind, "q_proj")
        double_queries(kind, mixer.get_submodule(projection).weight.data, head, heads.shape[3])
    with ms.record(model, [site]) as changed, torch.no_grad():
        model(PAIRS.original.tokens)
    moved = (changed[site] != heads).any(-1).any(0).any(0)
    assert moved.tolist() == [number == head for number in range(HEADS)]


def double_queries(kind, weight, head, size):
    rows = slice(head * size, (head + 1) * size)
    if kind == "gpt2":  # [in, out]: queries of all heads, then keys, then values
        weight[:, rows] *= 2
    elif kind == "gpt_neox":  # [out, in]: query, key and value of one head after the other
        weight[3 * size * head : 3 * size * head + size] *= 2
    else:
        weight[rows] *= 2


@pytest.mark.parametrize("kind", ["gpt2", "mamba"])
def test_a_verdict_can_be_asked_for(kind):
    model = ms.adapt_hf(build(kind))
    grid = ms.interchange(model, PAIRS)
    found = ms.verdict(grid, model)
    assert found.sentence()
    facts = ms.effect_table(grid, model).facts
    assert facts.boundaries == tuple(ms.boundary_sites(model))
    assert [part.component for [part] in facts.blocks] == [FAMILIES[kind].component] * DEPTH


def test_positions_that_end_are_known():
    module = build("gpt2", max_position_embeddings=PAIRS.original.tokens.shape[1])
    model = ms.adapt_hf(module)
    assert ms.verdict(ms.interchange(model, PAIRS), model).sentence()
    with pytest.raises(UserError, match="a document of 22 tokens is longer than the 11 the module takes"):
        model(PAIRS.original.tokens.repeat(1, 2))
    assert ms.adapt_hf(build("mamba"))(PAIRS.original.tokens.repeat(1, 9)).shape[1] == 99


@pytest.mark.parametrize("kind", FAMILIES)
def test_half_precision_passes_too(kind):
    found = ms.check_model(ms.adapt_hf(build(kind).to(torch.bfloat16)), PAIRS.original)
    assert found.passed, str(found)


def test_parallel_and_sequential_residuals_of_neox_pass():
    for parallel in (True, False):
        found = ms.check_model(ms.adapt_hf(build("gpt_neox", use_parallel_residual=parallel)), PAIRS.original)
        assert found.passed, str(found)


def test_a_compiled_model_and_one_with_a_single_head_pass():
    for module in (torch.compile(build("llama"), backend="eager"), build("gpt2", num_attention_heads=1)):
        found = ms.check_model(ms.adapt_hf(module), PAIRS.original)
        assert found.passed, str(found)


def test_what_has_no_map_is_told_what_to_write():
    known = "ready: gpt2, gpt_neox, llama, mistral, qwen2, qwen3, mamba, mamba2; for others write adapt"
    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    with construction(0), pytest.raises(UserError, match=f"no site map is ready for the type 'bert'; {known}"):
        ms.adapt_hf(transformers.BertModel(config))
    with pytest.raises(UserError, match=f"Identity has no config.model_type; {known}"):
        ms.adapt_hf(nn.Identity())


@pytest.mark.parametrize(("kind", "missing"), [("gpt2", "transformer.h"), ("mamba", "backbone.layers")])
def test_a_model_without_a_head_is_told_which_class_to_load(kind, missing):
    with pytest.raises(UserError, match=f"has no '{missing}'; load the class that makes logits"):
        ms.adapt_hf(build(kind).base_model)


def test_a_classifier_is_told_which_class_to_load():
    with construction(0):
        module = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**ATTENTION))
    with pytest.raises(UserError, match="GPT2ForSequenceClassification has no 'lm_head'; load the class"):
        ms.adapt_hf(module)
