"""Two models from transformers: one that can be opened everywhere, one with modules that are bypassed."""

import logging

import pytest
import torch

from mixerscope.interventions import PairSettings, adapt, check_model, interchange, make_pairs, plan_grid
from mixerscope.randomness import construction
from mixerscope.tasks import AR

transformers = pytest.importorskip(
    "transformers", reason="the foreign models come with the extra: pip install 'mixerscope[hf]'"
)
pytestmark = pytest.mark.filterwarnings("ignore")

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=4, slots=("key",)), data_seed=0)
STD = 0.3
"""Weights large enough that an edit shows."""


def build(cls, config):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with construction(0):
        return cls(config).eval()


def neox(parallel: bool):
    config = transformers.GPTNeoXConfig(
        vocab_size=TASK.vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, use_parallel_residual=parallel, initializer_range=STD,
    )  # fmt: skip
    sites = {"embed": "gpt_neox.embed_in"}
    for i in range(2):
        layer = f"gpt_neox.layers.{i}"
        sites |= {
            f"blocks.{i}.resid_pre": f"{layer}:input",
            f"blocks.{i}.mixer_in": f"{layer}.attention:input",
            f"blocks.{i}.mixer_out": f"{layer}.attention:output[0]",
            f"blocks.{i}.mlp_in": f"{layer}.mlp:input",
            f"blocks.{i}.mlp_out": f"{layer}.mlp",
            f"blocks.{i}.resid_post": f"{layer}:output[0]",
        }
    module = build(transformers.GPTNeoXForCausalLM, config)
    head = "lm_head" if hasattr(module, "lm_head") else "embed_out"  # it was renamed
    return adapt(module, sites, head=head, call=lambda m, tokens: m(tokens, use_cache=False))


def mamba(inner: dict[str, str]):
    config = transformers.MambaConfig(
        vocab_size=TASK.vocab_size, hidden_size=16, state_size=4, num_hidden_layers=2, initializer_range=STD
    )
    sites = {"embed": "backbone.embeddings"}
    for i in range(2):
        layer = f"backbone.layers.{i}"
        sites |= {
            f"blocks.{i}.resid_pre": f"{layer}:input",
            f"blocks.{i}.mixer_in": f"{layer}.mixer:input",
            f"blocks.{i}.mixer_out": f"{layer}.mixer",
            f"blocks.{i}.resid_post": layer,
        }
    sites |= {f"blocks.0.mixer.{name}": f"backbone.layers.0.mixer.{place}" for name, place in inner.items()}
    module = build(transformers.MambaForCausalLM, config)
    return adapt(module, sites, head="lm_head", call=lambda m, tokens: m(tokens, use_cache=False))


@pytest.mark.parametrize("parallel", [True, False])
def test_gpt_neox_passes_and_gives_a_grid(parallel):
    model = neox(parallel)
    found = check_model(model, PAIRS.original)
    assert found.passed, str(found)
    assert "blocks.0.resid_post = blocks.0.resid_pre + blocks.0.mixer_out + blocks.0.mlp_out" in str(found)
    grid = interchange(model, PAIRS, plan_grid(model, PAIRS, directions=["restore"]))
    restored = next(m for c, m in grid.cells.items() if (c.site, c.role) == ("embed", "key"))
    torch.testing.assert_close(restored.effects.likelihood, grid.original.likelihood, rtol=1e-4, atol=0)
    assert (grid.original.likelihood - grid.corrupted["key"].likelihood).abs().max() > 1e-4


def test_mamba_says_which_modules_are_bypassed():
    outer = check_model(mamba({}), PAIRS.original)
    assert outer.passed, str(outer)
    inner = {"conv_in": "conv1d:input", "in_proj": "in_proj", "x_proj": "x_proj", "dt_proj": "dt_proj", "gate": "act"}
    found = check_model(mamba(inner), PAIRS.original)
    failures = found.failures()
    assert set(failures) == {f"blocks.0.mixer.{name}" for name in ("conv_in", "dt_proj", "gate")}, str(found)
    for name, module in {"conv_in": "conv1d", "dt_proj": "dt_proj", "gate": "act"}.items():
        text = f"the forward pass does not call 'backbone.layers.0.mixer.{module}'"
        assert text in failures[f"blocks.0.mixer.{name}"]


def test_fields_of_a_model_output_can_be_named():
    module = neox(True).foreign
    sites = {"end": "gpt_neox:output[last_hidden_state]"}
    model = adapt(module, sites, call=lambda m, tokens: m(tokens, use_cache=False))
    found = check_model(model, PAIRS.original)
    assert found.passed, str(found)
    wrong = adapt(module, {"end": "gpt_neox:output[hidden_states]"}, call=lambda m, tokens: m(tokens, use_cache=False))
    said = "gpt_neox:output is a BaseModelOutputWithPast with last_hidden_state, so write one of these names"
    assert said in check_model(wrong, PAIRS.original).failures()["end"]
