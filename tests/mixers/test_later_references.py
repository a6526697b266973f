"""The mixers that came after the paper, against the recurrences of their own papers, one position at a time, float64.

Chunked forms are tried beyond one chunk.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mixerscope.check import Subject
from mixerscope.mixers.ops.gated_linear_attention import CHUNK
from mixerscope.randomness import construction
from mixerscope.registry import MIXERS
from tests.mixers.reference import assert_equals_reference, linear, per_document, short_conv

LONG = 2 * CHUNK + 3


def rms(x, weight, epsilon=1e-5):
    return x / torch.sqrt((x * x).mean() + epsilon) * weight


def unit(x):
    return x / torch.sqrt((x * x).sum() + 1e-6)


def stack_rows(p, name, x):
    return torch.stack([linear(p, name, u) for u in x])


@pytest.mark.parametrize("d_conv", [4, 1, 0])
def test_mamba2(d_conv):
    heads, n = 2, 3

    def reference(p, x):
        e = p["norm.weight"].shape[0]
        size = e // heads
        projected = stack_rows(p, "in_proj", x)
        z, xbc, raw_dt = projected[:, :e], projected[:, e : 2 * e + 2 * n], projected[:, 2 * e + 2 * n :]
        xbc = F.silu(short_conv(p, "conv", xbc) if d_conv else xbc)
        states = [torch.zeros(size, n, dtype=x.dtype) for _ in range(heads)]
        rows = []
        for t in range(len(x)):
            b, c = xbc[t, e : e + n], xbc[t, e + n :]
            outs = []
            for h in range(heads):
                dt = torch.log(1 + torch.exp(raw_dt[t, h] + p["dt_bias"][h]))
                value = xbc[t, h * size : (h + 1) * size]
                states[h] = torch.exp(-dt * torch.exp(p["a_log"][h])) * states[h] + dt * torch.outer(value, b)
                outs.append(states[h] @ c + p["skip"][h] * value)
            rows.append(linear(p, "out_proj", rms(torch.cat(outs) * F.silu(z[t]), p["norm.weight"])))
        return torch.stack(rows)

    assert_equals_reference("mamba2", {"heads": heads, "d_state": n, "d_conv": d_conv}, per_document(reference))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("rotary", [True, False])
def test_retnet(heads, rotary):
    def reference(p, x):
        width, values = x.shape[1], 2 * x.shape[1]
        c, e = width // heads, values // heads
        # The paper's recurrence with a complex matrix: A = decay * exp(i theta); keys are complex pairs of channels.
        theta = torch.tensor([10_000 ** (-2 * i / c) if rotary else 0.0 for i in range(c // 2)], dtype=x.dtype)
        states = [torch.zeros(c // 2, e, dtype=torch.complex128) for _ in range(heads)]
        rows = []
        for u in x:
            q, k, v = (linear(p, f"{name}_proj", u) for name in "qkv")
            outs = []
            for h in range(heads):
                decay = 1 - 2.0 ** (-5 - h)
                keys, query = k[h * c : (h + 1) * c], q[h * c : (h + 1) * c]
                keys, query = (torch.complex(a[: c // 2], a[c // 2 :]) for a in (keys, query))
                turn = torch.polar(torch.full_like(theta, decay), -theta)
                states[h] = turn[:, None] * states[h] + torch.outer(keys, v[h * e : (h + 1) * e].to(keys.dtype))
                o = (query.conj() @ states[h]).real / math.sqrt(c)
                outs.append((o - o.mean()) / torch.sqrt(o.var(unbiased=False) + 1e-6))
            rows.append(linear(p, "out_proj", torch.cat(outs) * F.silu(linear(p, "g_proj", u))))
        return torch.stack(rows)

    assert_equals_reference("retnet", {"heads": heads, "rotary": rotary}, per_document(reference))


@pytest.mark.parametrize("heads", [1, 2])
def test_gla(heads):
    def reference(p, x):
        width = x.shape[1]
        c, e = width // 2 // heads, width // heads
        states = [torch.zeros(c, e, dtype=x.dtype) for _ in range(heads)]
        rows = []
        for u in x:
            q, k, v = (linear(p, f"{name}_proj", u) for name in "qkv")
            decay = torch.sigmoid(linear(p, "decay_up", linear(p, "decay_down", u))) ** (1 / 16)
            outs = []
            for h in range(heads):
                keys, values = slice(h * c, (h + 1) * c), slice(h * e, (h + 1) * e)
                states[h] = torch.diag(decay[keys]) @ states[h] + torch.outer(k[keys], v[values])
                outs.append(rms(q[keys] @ states[h] / math.sqrt(c), p["norm.weight"]))
            rows.append(linear(p, "out_proj", torch.cat(outs) * F.silu(linear(p, "g_proj", u))))
        return torch.stack(rows)

    assert_equals_reference("gla", {"heads": heads, "gate_rank": 3}, per_document(reference), length=LONG)


@pytest.mark.parametrize(("heads", "d_conv", "negative"), [(1, 4, False), (2, 2, True), (2, 0, False)])
def test_gated_deltanet(heads, d_conv, negative):
    def reference(p, x):
        width, values = x.shape[1], 2 * x.shape[1]
        c, e = width // heads, values // heads
        qkv = stack_rows(p, "qkv_proj", x)
        qkv = F.silu(short_conv(p, "conv", qkv) if d_conv else qkv)
        states = [torch.zeros(e, c, dtype=x.dtype) for _ in range(heads)]  # values by keys, as in the paper
        rows = []
        for t, u in enumerate(x):
            q, k, v = qkv[t, :width], qkv[t, width : 2 * width], qkv[t, 2 * width :]
            rate = torch.sigmoid(linear(p, "beta_proj", u)) * (2 if negative else 1)
            dt = F.softplus(linear(p, "decay_proj", u) + p["dt_bias"])
            decay = torch.exp(-torch.exp(p["a_log"]) * dt)
            outs = []
            for h in range(heads):
                key, query = unit(k[h * c : (h + 1) * c]), unit(q[h * c : (h + 1) * c])
                erase = torch.eye(c, dtype=x.dtype) - rate[h] * torch.outer(key, key)
                states[h] = states[h] @ (decay[h] * erase) + rate[h] * torch.outer(v[h * e : (h + 1) * e], key)
                outs.append(rms(states[h] @ query / math.sqrt(c), p["norm.weight"]))
            rows.append(linear(p, "out_proj", torch.cat(outs) * F.silu(linear(p, "g_proj", u))))
        return torch.stack(rows)

    options = {"heads": heads, "d_conv": d_conv, "negative_eigenvalues": negative}
    assert_equals_reference("gated_deltanet", options, per_document(reference))


@pytest.mark.parametrize("heads", [1, 2])
def test_rwkv7(heads):
    def reference(p, x):
        width = x.shape[1]
        c = width // heads
        states = [torch.zeros(c, c, dtype=x.dtype) for _ in range(heads)]  # values by keys, as in the paper
        previous, rows = torch.zeros_like(x[0]), []
        for u in x:
            xr, xw, xk, xv, xa, xg = (u + (previous - u) * mu for mu in p["mix"])
            previous = u
            r, key, v = linear(p, "r_proj", xr), linear(p, "k_proj", xk), linear(p, "v_proj", xv)
            d = linear(p, "decay_up", torch.tanh(linear(p, "decay_down", xw)))
            w = torch.exp(-math.exp(-0.5) * torch.sigmoid(d))
            a = torch.sigmoid(linear(p, "rate_up", linear(p, "rate_down", xa)))
            g = linear(p, "gate_up", torch.sigmoid(linear(p, "gate_down", xg)))
            removal = key * p["removal_scale"]
            k = key * ((1 - p["key_rate"]) + p["key_rate"] * a)
            outs = []
            for h in range(heads):
                s = slice(h * c, (h + 1) * c)
                n = removal[s] / removal[s].norm()
                states[h] = states[h] @ (torch.diag(w[s]) - torch.outer(n, a[s] * n)) + torch.outer(v[s], k[s])
                o = states[h] @ r[s]
                o = (o - o.mean()) / torch.sqrt(o.var(unbiased=False) + c * 1e-5)
                o = o * p["norm_weight"][s] + p["norm_bias"][s]
                outs.append(o + (r[s] @ (p["bonus"][h] * k[s])) * v[s])
            rows.append(linear(p, "out_proj", g * torch.cat(outs)))
        return torch.stack(rows)

    assert_equals_reference("rwkv7", {"heads": heads, "rank": 3}, per_document(reference), width=6, length=LONG)


def test_lstm():
    def reference(p, x):
        width = x.shape[1]
        h = c = torch.zeros(width, dtype=x.dtype)
        rows = []
        for u in x:
            i, f, g, o = (linear(p, "input_proj", u) + p["recurrent"] @ h).split(width)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            rows.append(h)
        return torch.stack(rows)

    assert_equals_reference("lstm", {}, per_document(reference))


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru(reset_after):
    def reference(p, x):
        width = x.shape[1]
        h = torch.zeros(width, dtype=x.dtype)
        rows = []
        for u in x:
            to_r, to_z, to_n = linear(p, "input_proj", u).split(width)
            from_r, from_z = (p["gate_recurrent"] @ h).split(width)
            r, z = torch.sigmoid(to_r + from_r), torch.sigmoid(to_z + from_z)
            if reset_after:
                n = torch.tanh(to_n + r * (p["candidate_recurrent"] @ h))
            else:
                n = torch.tanh(to_n + p["candidate_recurrent"] @ (r * h))
            h = z * h + (1 - z) * n
            rows.append(h)
        return torch.stack(rows)

    assert_equals_reference("gru", {"reset_after": reset_after}, per_document(reference))


@pytest.mark.parametrize(("heads", "window"), [(1, 2), (2, 3), (1, 50)])
def test_sliding_window(heads, window):
    def reference(p, x):
        width = x.shape[1]
        size = width // heads
        qkv = stack_rows(p, "qkv_proj", x)
        rows = []
        for t in range(len(x)):
            outs = []
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                seen = range(max(0, t - window + 1), t + 1)
                q = qkv[t, :width][part]
                weights = torch.stack([q @ qkv[j, width : 2 * width][part] / math.sqrt(size) for j in seen]).exp()
                weights = weights / weights.sum()
                outs.append(sum(w * qkv[j, 2 * width :][part] for w, j in zip(weights, seen)))
            rows.append(linear(p, "out_proj", torch.cat(outs)))
        return torch.stack(rows)

    assert_equals_reference("sliding_window", {"heads": heads, "window": window}, per_document(reference))


def test_sliding_window_as_wide_as_the_document_is_attention():
    wide = Subject(MIXERS.load("sliding_window"), None, 8, {"heads": 2, "window": 9})
    full = Subject(MIXERS.load("attention"), None, 8, {"heads": 2})
    window, attention = wide.build(), full.build(seed=1)
    attention.load_state_dict(window.state_dict())
    x = wide.documents(2, 9)
    torch.testing.assert_close(window(x), attention(x), rtol=1e-12, atol=1e-12)


def test_lstm_is_the_one_of_pytorch():
    subject = Subject(MIXERS.load("lstm"), None, 5, {})
    mixer, x = subject.build(), subject.documents(2, 9)
    with construction(0):
        theirs = nn.LSTM(5, 5, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(mixer.input_proj.weight)
        theirs.weight_hh_l0.copy_(mixer.recurrent)
        theirs.bias_ih_l0.copy_(mixer.input_proj.bias)
        theirs.bias_hh_l0.zero_()
    torch.testing.assert_close(mixer(x), theirs(x)[0], rtol=1e-12, atol=1e-12)


def test_gru_with_late_reset_is_the_one_of_pytorch():
    subject = Subject(MIXERS.load("gru"), None, 5, {"reset_after": True})
    mixer, x = subject.build(), subject.documents(2, 9)
    with construction(0):
        theirs = nn.GRU(5, 5, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(mixer.input_proj.weight)
        theirs.weight_hh_l0.copy_(torch.cat([mixer.gate_recurrent, mixer.candidate_recurrent]))
        theirs.bias_ih_l0.copy_(mixer.input_proj.bias)
        theirs.bias_hh_l0.zero_()
    torch.testing.assert_close(mixer(x), theirs(x)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize(("heads", "factors", "d_conv"), [(1, 2, 4), (2, 3, 2), (2, 1, 0)])
def test_deltaproduct(heads, factors, d_conv, negative):
    def reference(p, x):
        width = x.shape[1]
        size = width // heads
        projected = stack_rows(p, "qkv_proj", x)
        projected = F.silu(short_conv(p, "conv", projected) if d_conv else projected)
        memories = [torch.zeros(size, size, dtype=x.dtype) for _ in range(heads)]
        rows = []
        for t in range(len(x)):
            rates = (2 if negative else 1) * torch.sigmoid(linear(p, "beta_proj", x[t]))
            outs = []
            for h in range(heads):
                for i in range(factors):
                    start = width + (h * factors + i) * size
                    k = unit(projected[t, start : start + size])
                    v = projected[t, start + factors * width : start + factors * width + size]
                    rate = rates[h * factors + i]
                    householder = torch.eye(size, dtype=x.dtype) - rate * torch.outer(k, k)
                    memories[h] = householder @ memories[h] + rate * torch.outer(k, v)
                q = unit(projected[t, h * size : (h + 1) * size])
                outs.append(rms(memories[h].T @ q / math.sqrt(size), p["norm.weight"]))
            rows.append(linear(p, "o_proj", torch.cat(outs)))
        return torch.stack(rows)

    options = {"heads": heads, "factors": factors, "d_conv": d_conv, "negative_eigenvalues": negative}
    assert_equals_reference("deltaproduct", options, per_document(reference))


def test_one_factor_of_deltaproduct_is_deltanet():
    product = Subject(MIXERS.load("deltaproduct"), None, 6, {"factors": 1, "negative_eigenvalues": False}).build(0)
    delta = Subject(MIXERS.load("deltanet"), None, 6, {}).build(1)
    delta.load_state_dict(product.state_dict())
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(product(x), delta(x), rtol=1e-12, atol=1e-12)
