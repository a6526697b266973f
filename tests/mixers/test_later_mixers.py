"""The mixers that came after the paper: step form beyond a chunk, options, initial weights, hard decays, bad input."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state

from mixerscope.check import Subject, check_mixer
from mixerscope.errors import UserError
from mixerscope.mixers import InitRule
from mixerscope.mixers.initialisation import RETENTION_GAIN
from mixerscope.mixers.ops.decay_attention import decay_attention, pairwise_log_decay
from mixerscope.mixers.ops.gated_linear_attention import CHUNK, gated_linear_attention
from mixerscope.mixers.ops.generalised_delta_rule import generalised_delta_rule
from mixerscope.randomness import construction, stream
from mixerscope.registry import MIXERS

LATER = {
    "mamba2": {"d_conv": 3, "d_state": 5},
    "gla": {"heads": 2},
    "gated_deltanet": {"heads": 2, "negative_eigenvalues": True},
    "deltaproduct": {"heads": 2, "factors": 3},
    "retnet": {"heads": 2},
    "rwkv7": {"heads": 2, "rank": 4},
    "lstm": {"forget_bias": 0.0},
    "gru": {"reset_after": True},
    "sliding_window": {"heads": 2, "window": 4},
}
WITHOUT = [("mamba2", {"d_conv": 0}), ("gated_deltanet", {"d_conv": 0}), ("retnet", {"rotary": False})]


def subject(name, options=None, width=8):
    return Subject(MIXERS.load(name), name, width, LATER[name] if options is None else options)


@pytest.mark.parametrize(("name", "options"), [*LATER.items(), *WITHOUT])
def test_conforms_with_options_away_from_the_default(name, options):
    failed = [result for result in check_mixer(name, width=8, options=options) if not result.passed]
    assert not failed


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("length", [CHUNK + 1, 2 * CHUNK + 5])
def test_step_equals_forward_beyond_one_chunk(name, length):
    case = subject(name)
    mixer, x = case.build(), case.documents(2, length)
    state = mixer.initial_state(x[:, 0])
    rows = []
    for t in range(length):
        y, state = mixer.step(x[:, t], state)
        rows.append(y)
        assert sum(part[0].numel() for part in state) == mixer.state_size(t + 1)
    torch.testing.assert_close(torch.stack(rows, 1), mixer(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LATER)
def test_nothing_leaks_backwards_across_chunks(name):
    case = subject(name)
    mixer, x, other = case.build(), case.documents(2, 2 * CHUNK + 5), case.documents(2, 2 * CHUNK + 5, seed=1)
    y = mixer(x)
    for p in (CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK):
        moved = mixer(torch.cat([x[:, :p], other[:, p:]], 1))
        torch.testing.assert_close(moved[:, :p], y[:, :p], rtol=0, atol=1e-12)
        assert (moved[:, p] - y[:, p]).abs().max() > 1e-6


@pytest.mark.parametrize("name", LATER)
def test_stacked_models_compute_what_each_computes_alone_beyond_one_chunk(name):
    case = subject(name)
    mixers = [case.build(seed) for seed in range(2)]
    x = case.documents(2, CHUNK + 3)
    expected = torch.stack([mixer(x) for mixer in mixers]).detach()
    params, buffers = stack_module_state(mixers)
    together = torch.vmap(lambda p, b: functional_call(mixers[0], (p, b), (x,)))(params, buffers)
    torch.testing.assert_close(together, expected, rtol=1e-10, atol=1e-12)


def fresh(name, options, width=64, depth=2):
    with construction(0):
        mixer = MIXERS.load(name)(width, **options)
    mixer.init_weights(stream(0, "test"), InitRule(depth))
    return mixer


def assert_uniform(weight, bound):
    """As wide as a uniform law in +-bound, with the spread of one."""
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.95 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_initial_weights_of_mamba2():
    shallow, deep = fresh("mamba2", {"heads": 64}, depth=1), fresh("mamba2", {"heads": 64}, depth=4)
    assert_uniform(shallow.in_proj.weight, 64**-0.5)
    assert_uniform(shallow.out_proj.weight, 128**-0.5)
    assert_uniform(deep.out_proj.weight, 128**-0.5 / 2)
    assert_uniform(shallow.conv.weight, 0.5)
    decay = shallow.a_log.exp()
    assert 1 <= decay.min() < 2 < 15 < decay.max() <= 16
    dt = nn.functional.softplus(shallow.dt_bias).log10()
    assert -3.001 <= dt.min() < -2.8 < -1.2 < dt.max() <= -0.999
    assert dt.mean().item() == pytest.approx(-2, abs=0.25)
    assert (shallow.skip == 1).all()
    assert (shallow.norm.weight == 1).all()


def test_initial_weights_of_the_retention_family():
    def xavier(linear, gain=RETENTION_GAIN):
        return gain * math.sqrt(6 / (linear.in_features + linear.out_features))

    retnet, gla, delta = fresh("retnet", {}), fresh("gla", {}), fresh("gated_deltanet", {"heads": 32})
    for mixer in (retnet, gla):
        for linear in (mixer.q_proj, mixer.k_proj, mixer.v_proj, mixer.g_proj):
            assert_uniform(linear.weight, xavier(linear))
    assert_uniform(retnet.out_proj.weight, xavier(retnet.out_proj, 1.0))
    assert_uniform(gla.out_proj.weight, xavier(gla.out_proj))
    assert (gla.decay_up.bias == 0).all()
    q, k, v = delta.qkv_proj.weight.split([64, 64, 128])
    assert_uniform(q, RETENTION_GAIN * math.sqrt(6 / 128))
    assert_uniform(k, RETENTION_GAIN * math.sqrt(6 / 128))
    assert_uniform(v, RETENTION_GAIN * math.sqrt(6 / 192))
    assert 0 < delta.a_log.exp().min() < 2 < 14 < delta.a_log.exp().max() <= 16


def test_initial_weights_of_rwkv7():
    mixer = fresh("rwkv7", {}, depth=3)
    eye = torch.eye(64)
    torch.testing.assert_close(mixer.r_proj.weight @ mixer.r_proj.weight.T, eye, rtol=0, atol=1e-5)
    torch.testing.assert_close(mixer.k_proj.weight @ mixer.k_proj.weight.T, 0.01 * eye, rtol=0, atol=1e-5)
    assert (mixer.out_proj.weight == 0).all()
    assert (mixer.decay_down.weight == 0).all()
    # With zero low-rank inputs the decay is a fixed curve: -6 + 0.5 - 2.5 at channel 0, 0.5 + 2.5 at the last.
    assert mixer.decay_up.bias[0].item() == pytest.approx(-8)
    assert mixer.decay_up.bias[-1].item() == pytest.approx(3)
    assert mixer.mix[0, 0] == 1
    assert mixer.mix[1, 32].item() == pytest.approx(1 - 0.5**0.9)
    assert mixer.norm_weight[0].item() == pytest.approx(3**-0.7)


def test_initial_weights_of_the_cells():
    lstm, gru = fresh("lstm", {}), fresh("gru", {})
    for weight in (lstm.input_proj.weight, lstm.recurrent, gru.input_proj.weight, gru.gate_recurrent):
        assert_uniform(weight, 1 / 8)
    assert (lstm.input_proj.bias[64:128] == 1).all()
    assert_uniform(torch.cat([lstm.input_proj.bias[:64], lstm.input_proj.bias[128:]]), 1 / 8)


def test_parameter_count_of_mamba2_is_the_published_one():
    d, e, n, h, k = 64, 128, 128, 2, 4
    count = sum(p.numel() for p in fresh("mamba2", {}).parameters())
    assert count == d * (2 * e + 2 * n + h) + (e + 2 * n) * (k + 1) + 3 * h + e + e * d


def test_retnet_decays_as_published():
    decays = fresh("retnet", {})._log_decay(torch.zeros(1, dtype=torch.float64)).exp()
    assert decays.tolist() == pytest.approx([1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128, 1 - 1 / 256], abs=1e-15)


def test_pairwise_log_decay_keeps_digits_after_a_long_decay():
    log_decay = torch.full((1, 300, 1), -1000.0)
    log_decay[0, -1] = -1e-3
    # A difference of running sums near 3e5 could not tell -0.001 from 0 in single precision.
    assert pairwise_log_decay(log_decay)[0, 0, -1, -2].item() == pytest.approx(-1e-3, rel=1e-6)


def test_hard_decays_neither_overflow_nor_lose_the_gradient():
    rng = stream(0, "hard")
    q, k, v, n = (torch.randn(1, 3 * CHUNK, 2, 4, generator=rng) for _ in range(4))
    n = n / n.norm(dim=-1, keepdim=True)
    # Decays of e^-200 and of one, side by side: exp(+200) is not a number in single precision.
    channel = torch.where(torch.rand(q.shape, generator=rng) < 0.5, -200.0, 0.0).requires_grad_()
    head = channel.select(-1, 0)
    outs = {
        "scalar": decay_attention(q, k, v, head),
        "channel": gated_linear_attention(q, k, v, channel),
        "delta": generalised_delta_rule(q, channel, k, v, n, 0.5 * n),
    }
    exact = channel.detach().double()
    wide = [x.double() for x in (q, k, v)]
    double = {
        "scalar": decay_attention(*wide, exact.select(-1, 0)),
        "channel": gated_linear_attention(*wide, exact),
        "delta": generalised_delta_rule(wide[0], exact, *wide[1:], n.double(), 0.5 * n.double()),
    }
    for name, out in outs.items():
        torch.testing.assert_close(out.double(), double[name], rtol=1e-3, atol=1e-3)
        (grad,) = torch.autograd.grad(out.square().sum(), channel)
        assert grad.isfinite().all()
        assert grad.abs().max() > 0


BAD = [
    ("mamba2", {"heads": 3}, "mamba2: expand * width = 16 is not divisible by heads = 3"),
    ("mamba2", {"d_state": 0}, "mamba2: d_state = 0 must be at least 1"),
    ("mamba2", {"d_conv": -1}, "mamba2: d_conv = -1 must be at least 0"),
    ("gla", {"heads": 8}, "gla: width = 8 is not divisible by 2 * heads = 16"),
    ("gla", {"gate_rank": 0}, "gla: gate_rank = 0 must be at least 1"),
    ("gated_deltanet", {"heads": 3}, "gated_deltanet: width = 8 is not divisible by heads = 3"),
    ("gated_deltanet", {"expand_v": 0}, "gated_deltanet: expand_v = 0 must be at least 1"),
    ("gated_deltanet", {"d_conv": -2}, "gated_deltanet: d_conv = -2 must be at least 0"),
    ("retnet", {"heads": 0}, "retnet: width = 8 is not divisible by heads = 0"),
    ("retnet", {"heads": 8}, "retnet: rotary needs an even head size, and width / heads is 1"),
    ("retnet", {"expand_v": 0}, "retnet: expand_v = 0 must be at least 1"),
    ("rwkv7", {"heads": 5}, "rwkv7: width = 8 is not divisible by heads = 5"),
    ("rwkv7", {"rank": 0}, "rwkv7: rank = 0 must be at least 1"),
    ("lstm", {"forget_bias": math.inf}, "lstm: forget_bias = inf must be finite"),
    ("sliding_window", {"heads": 3}, "sliding_window: width = 8 is not divisible by heads = 3"),
    ("sliding_window", {"window": 1}, "sliding_window: window = 1 must be at least 2"),
]


@pytest.mark.parametrize(("name", "options", "sentence"), BAD)
def test_a_bad_option_is_refused_in_one_sentence(name, options, sentence):
    with pytest.raises(UserError) as refused:
        MIXERS.load(name)(8, **options)
    assert str(refused.value) == sentence
