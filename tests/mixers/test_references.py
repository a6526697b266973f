"""Each parallel form against the literal recurrence or sum of its paper, one position at a time, float64."""

import math

import pytest
import torch
from torch.nn import functional as F

from mixerscope.mixers.h3 import H3, _at_once
from mixerscope.mixers.ops.implicit_filter import time_features
from mixerscope.randomness import construction
from tests.mixers.reference import assert_equals_reference, linear, per_document, short_conv


@pytest.mark.parametrize("relative", ["none", "rope", "alibi"])
@pytest.mark.parametrize("heads", [1, 2])
def test_attention(heads, relative):
    def turned(vector, position):
        # RoPE as it is defined: pairs of coordinates are complex numbers, turned by position * 10000^(-2i/c).
        half = len(vector) // 2
        angles = torch.tensor([position * 10_000 ** (-2 * i / (2 * half)) for i in range(half)], dtype=vector.dtype)
        spun = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([spun.real, spun.imag])

    def reference(p, x):
        width = x.shape[1]
        size = width // heads
        qkv = [linear(p, "qkv_proj", u) for u in x]
        rows = []
        for t in range(len(x)):
            outs = []
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                scores = []
                for j in range(t + 1):
                    q, k = qkv[t][:width][part], qkv[j][width : 2 * width][part]
                    if relative == "rope":
                        q, k = turned(q, t), turned(k, j)
                    score = q @ k / math.sqrt(size)
                    if relative == "alibi":
                        score = score - 2 ** (-8 * (h + 1) / heads) * (t - j)
                    scores.append(score)
                weights = torch.stack(scores).exp()
                weights = weights / weights.sum()
                outs.append(sum(w * qkv[j][2 * width :][part] for j, w in enumerate(weights)))
            rows.append(linear(p, "out_proj", torch.cat(outs)))
        return torch.stack(rows)

    assert_equals_reference("attention", {"heads": heads, "relative": relative}, per_document(reference))


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_short_base_conv(kernel):
    def reference(p, x):
        gate = torch.stack([linear(p, "projection", u) for u in x])
        return short_conv(p, "conv", x) * gate + x

    assert_equals_reference("base_conv", {"kernel": kernel}, per_document(reference))


@pytest.mark.parametrize("trained", [True, False])
def test_long_base_conv(trained):
    def reference(p, x):
        z = p["conv.time.features"]
        taps = [linear(p, "conv.out", F.relu(linear(p, "conv.hidden", z[i]))) for i in range(len(x))]
        rows = []
        for t in range(len(x)):
            conv = sum(taps[i] * x[t - i] for i in range(t + 1)) + x[t]
            rows.append(conv * linear(p, "projection", x[t]) + x[t])
        return torch.stack(rows)

    options = {"kernel": "long", "filter_length": 7, "train_time_features": trained}
    assert_equals_reference("base_conv", options, per_document(reference))


def test_time_features():
    features = time_features(1024)
    for t in (0, 1, 500, 1023):
        w = 2 * math.pi * t / 1024
        expected = torch.tensor([t / 1023, math.cos(1e-4 * w), -math.sin(1e-4 * w)])
        torch.testing.assert_close(features[t], expected)


def test_linear_attention():
    def reference(p, x):
        f = p["q_proj.weight"].shape[0]
        rows = []
        for t in range(len(x)):
            q = linear(p, "q_proj", x[t])
            total, mass = 0, 0
            for j in range(t + 1):
                s = q @ linear(p, "k_proj", x[j]) / math.sqrt(f)
                weight = 1 + s + s * s / 2
                total, mass = total + weight * linear(p, "v_proj", x[j]), mass + weight
            rows.append(linear(p, "o_proj", total / (mass + 1e-12)))
        return torch.stack(rows)

    assert_equals_reference("linear_attention", {"feature_dim": 3}, per_document(reference))


@pytest.mark.parametrize(("d_conv", "signed"), [*((width, False) for width in (4, 3, 2, 1, 0)), (4, True), (0, True)])
def test_mamba(d_conv, signed):
    def reference(p, x):
        e, n = p["a_log"].shape
        projected = torch.stack([linear(p, "in_proj", u) for u in x])
        inner, gate = projected[:, :e], projected[:, e:]
        inner = F.silu(short_conv(p, "conv", inner) if d_conv else inner)
        state, rows = torch.zeros(e, n, dtype=x.dtype), []
        rank = p["dt_proj.weight"].shape[1]
        for t in range(len(x)):
            low = linear(p, "x_proj", inner[t])
            dt = F.softplus(linear(p, "dt_proj", low[:rank]))
            b, c = low[rank : rank + n], low[rank + n :]
            a = -torch.exp(p["a_log"])
            decay = torch.exp(dt[:, None] * a)
            state = (2 * decay - 1 if signed else decay) * state + torch.outer(dt * inner[t], b)
            y = state @ c + p["skip"] * inner[t]
            rows.append(linear(p, "out_proj", y * F.silu(gate[t])))
        return torch.stack(rows)

    options = {"d_conv": d_conv, "d_state": 3, "signed": signed}
    assert_equals_reference("mamba", options, per_document(reference))


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("d_conv", [4, 0])
@pytest.mark.parametrize("heads", [1, 2])
def test_deltanet(heads, d_conv, negative):
    def reference(p, x):
        width = x.shape[1]
        size = width // heads
        qkv = torch.stack([linear(p, "qkv_proj", u) for u in x])
        qkv = F.silu(short_conv(p, "conv", qkv) if d_conv else qkv)
        memories = [torch.zeros(size, size, dtype=x.dtype) for _ in range(heads)]
        rows = []
        for t in range(len(x)):
            outs = []
            for h in range(heads):
                q, k, v = (qkv[t][start + h * size : start + (h + 1) * size] for start in (0, width, 2 * width))
                q, k = (u / torch.sqrt((u * u).sum() + 1e-6) for u in (q, k))
                beta = (2 if negative else 1) * torch.sigmoid(linear(p, "beta_proj", x[t])[h])
                memories[h] = memories[h] + beta * torch.outer(k, v - memories[h].T @ k)
                o = memories[h].T @ q / math.sqrt(size)
                outs.append(o / torch.sqrt((o * o).mean() + 1e-5) * p["norm.weight"])
            rows.append(linear(p, "o_proj", torch.cat(outs)))
        return torch.stack(rows)

    options = {"heads": heads, "d_conv": d_conv, "negative_eigenvalues": negative}
    assert_equals_reference("deltanet", options, per_document(reference))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("trained", [True, False])
def test_hyena(skip, trained):
    rows_of_filter = 9

    def reference(p, x):
        width = x.shape[1]
        slow, fast = math.log(0.01) / 1.5, math.log(0.01) / 0.3
        rates = torch.tensor([abs(slow + (fast - slow) * c / (width - 1)) for c in range(width)], dtype=x.dtype)
        # The buffer was made in float32, so from here on it stands for the rates.
        torch.testing.assert_close(p["filter.decay"], rates, rtol=1e-6, atol=0)
        taps = []
        for i in range(len(x)):
            h = p["filter.time.features"][i]
            for layer in range(3):
                h = torch.sin(p["filter.frequency"] * linear(p, f"filter.hidden.{layer}", h))
            taps.append(linear(p, "filter.out", h) * torch.exp(-i / (rows_of_filter - 1) * p["filter.decay"]))
        mixed = short_conv(p, "conv", torch.stack([linear(p, "in_proj", u) for u in x]))
        x1, x2, v = mixed[:, :width], mixed[:, width : 2 * width], mixed[:, 2 * width :]
        gated, rows = v * x1, []
        for t in range(len(x)):
            y = sum(taps[i] * gated[t - i] for i in range(t + 1))
            y = y + p["skip"] * gated[t] if skip else y
            rows.append(linear(p, "out_proj", y * x2[t]))
        return torch.stack(rows)

    options = {
        "filter_order": 5,
        "filter_length": rows_of_filter,
        "filter_skip": skip,
        "train_time_features": trained,
    }
    assert_equals_reference("hyena", options, per_document(reference))


@pytest.mark.parametrize("head_dim", [1, 2, 4])
@pytest.mark.parametrize("d_state", [4, 10])  # shorter and longer than the document
def test_h3(head_dim, d_state):
    def reference(p, x):
        width = x.shape[1]
        heads, modes = width // head_dim, d_state // 2
        dt = torch.exp(p["dt_log"])
        a = torch.complex(-torch.exp(p["a_log"]), p["frequency"])
        b, c = torch.view_as_complex(p["b"]), torch.view_as_complex(p["c"])
        half = (dt[:, None] * a) / 2
        decay, read = (1 + half) / (1 - half), b * c * dt[:, None] / (1 - half)
        # The shift model as a recurrence: cell n passes its content to cell n + 1, the input enters through B.
        shift_state = torch.zeros(width, d_state, dtype=x.dtype)
        state = torch.zeros(heads, head_dim, head_dim, modes, dtype=torch.complex128)
        rows = []
        for t in range(len(x)):
            q, k, v = (linear(p, f"{name}_proj", x[t]) for name in "qkv")
            shifted = torch.cat([torch.zeros(width, 1, dtype=x.dtype), shift_state[:, :-1]], 1)
            shift_state = shifted + p["shift_b"] * k[:, None]
            k = (p["shift_c"] * shift_state).sum(1) + p["shift_skip"] * k
            new_state, out = [], [torch.zeros((), dtype=x.dtype)] * width
            for h in range(heads):
                at = slice(h * head_dim, (h + 1) * head_dim)
                kv = torch.outer(k[at], v[at])
                new_state.append(decay[h] * state[h] + kv[..., None])
                y = 2 * (read[h] * new_state[-1]).sum(-1).real + p["skip"][h] * kv
                for e in range(head_dim):
                    out[e * heads + h] = q[at] @ y[:, e]
            state = torch.stack(new_state)
            rows.append(linear(p, "o_proj", torch.stack(out)))
        return torch.stack(rows)

    assert_equals_reference("h3", {"head_dim": head_dim, "d_state": d_state}, per_document(reference))


def test_h3_projects_at_once_on_a_gpu_what_it_projects_one_by_one_on_a_cpu():
    with construction(0):
        mixer, x = H3(8).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    together = _at_once(x, mixer.q_proj, mixer.k_proj, mixer.v_proj)
    for one, other in zip(mixer._projected(x), together, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
