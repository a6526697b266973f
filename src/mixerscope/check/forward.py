"""Properties of the forward pass: shape, causality, determinism, initialisation, gradients, saved weights."""

import torch
from safetensors.torch import load, save

from mixerscope.check.outcome import demand
from mixerscope.check.subject import DEPTH, SINGLE_TOLERANCE, TOLERANCE, Subject, gap
from mixerscope.mixers.base import InitRule
from mixerscope.randomness import stream


def constructed(subject: Subject) -> str:
    """The class can be built and initialised; without that nothing else can be tried."""
    mixer = subject.fresh()
    return f"{sum(p.numel() for p in mixer.parameters()):,} parameters at width {subject.width}"


def shape(subject: Subject) -> str:
    """[b, t, d] in, [b, t, d] out, at any length, in single precision too."""
    for length in subject.lengths:
        x = subject.documents(3, length)
        for dtype in (torch.float64, torch.float32):
            y = subject.build().to(dtype)(x.to(dtype))
            demand(y.shape == x.shape, f"{list(x.shape)} became {list(y.shape)}")
            demand(y.dtype == dtype, f"{dtype} became {y.dtype}")
    return f"lengths {', '.join(map(str, subject.lengths))}"


EVERY_POSITION = 13
"""Up to this length a change is tried from every position on, beyond it around powers of two."""


def causality(subject: Subject) -> str:
    """Change the input from position p on, and nothing before p moves, in single precision neither."""
    for dtype, tolerance in ((torch.float64, TOLERANCE), (torch.float32, SINGLE_TOLERANCE)):
        mixer = subject.build().to(dtype)
        for length in subject.lengths[1:]:
            x, other = subject.documents(2, length).to(dtype), subject.documents(2, length, seed=1).to(dtype)
            with torch.no_grad():
                y = mixer(x)
                for p in _positions(length):
                    moved = mixer(torch.cat([x[:, :p], other[:, p:]], 1))
                    leak = gap(moved[:, :p], y[:, :p])
                    at = f"at position {p} of {length} ({str(dtype).removeprefix('torch.')})"
                    demand(leak <= tolerance, f"a change {at} moved an earlier output by {leak:.1e}")
                    demand(not torch.equal(moved[:, p:], y[:, p:]), f"a change from there on {at} moved nothing at all")
    return f"lengths up to {subject.lengths[-1]}, float64 and float32"


def _positions(length: int) -> list[int]:
    """Where a change begins."""
    if length <= EVERY_POSITION:
        return list(range(1, length))
    powers = {2**k + near for k in range(2, length.bit_length()) for near in (-1, 0, 1)}
    return sorted(p for p in {*powers, length - 1} if 0 < p < length)


def documents(subject: Subject) -> str:
    """A document gives the same output alone as among others."""
    mixer, x = subject.build(), subject.documents(33, 7)
    with torch.no_grad():
        together, alone = mixer(x), torch.cat([mixer(x[i : i + 1]) for i in range(len(x))])
    apart = gap(alone, together)
    demand(apart <= TOLERANCE, f"a document alone gives outputs {apart:.1e} off those it gives among others")
    return f"{len(x)} documents, together and alone"


def determinism(subject: Subject) -> str:
    """The same input gives the same bits in either mode, and the global random state is left alone."""
    mixer, x = subject.build(), subject.documents(2, 7)
    before = torch.get_rng_state()
    first, second = mixer(x), mixer(x)
    demand(torch.equal(torch.get_rng_state(), before), "the forward pass draws from the global random generator")
    demand(torch.equal(first, second), "two passes over the same input differ")
    trains, judged = mixer.train()(x), mixer.eval()(x)
    demand(torch.equal(trains, judged), "`train()` and `eval()` give other outputs; training and measuring use one")
    return "bit-equal, in `train()` and `eval()` too"


def initialisation(subject: Subject) -> str:
    """`init_weights` sets every weight, from the generator it is given alone."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    # In this mode memory that nobody initialised holds NaN instead of whatever was there.
    torch.use_deterministic_algorithms(True)
    try:
        first, second = subject.fresh(0, torch.float32), subject.fresh(1, torch.float32)
    finally:
        torch.use_deterministic_algorithms(deterministic)
    # The two were constructed under different global seeds; only the generator may matter.
    second.init_weights(stream(0, "check", "weights"), InitRule(DEPTH))
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        demand(bool(a.isfinite().all()), f"{name} is not initialised")
        demand(torch.equal(a, b), f"{name} depends on more than the generator passed in")
    return f"{len(list(first.parameters()))} parameters"


def device(subject: Subject) -> str:
    """Everything is made where the input is. The meta device stands in for an accelerator that may not be there."""
    mixer, x = subject.build().to("meta"), subject.documents(2, 7).to("meta")
    y = mixer(x)
    demand(y.device == x.device, f"the input is on {x.device}, the output on {y.device}")
    y, state = mixer.step(x[:, 0], mixer.initial_state(x[:, 0]))
    y, state = mixer.step(x[:, 1], state)
    where = {str(tensor.device) for tensor in (y, *state)}
    demand(where == {"meta"}, f"the input is on meta, outputs and state of a step on {', '.join(sorted(where))}")
    return "parallel and step by step"


def gradients(subject: Subject) -> str:
    """Every parameter and the input get a finite gradient."""
    for mixer, when in ((subject.fresh(), "at the start"), (subject.build(), "with stirred weights")):
        x = subject.documents(2, 7).requires_grad_()
        parameters = dict(mixer.named_parameters())
        grads = torch.autograd.grad(mixer(x).square().sum(), [x, *parameters.values()], allow_unused=True)
        for name, grad in zip(["the input", *parameters], grads, strict=True):
            if grad is None:
                demand(False, f"{name} is not used by the forward pass")
            else:
                demand(bool(grad.isfinite().all()), f"the gradient of {name} is not finite {when}")
    return f"{len(list(subject.fresh().parameters()))} parameters and the input"


def state_dict(subject: Subject) -> str:
    """Weights written as safetensors and read into a fresh instance give the same bits."""
    mixer, x = subject.build(), subject.documents(2, 7)
    copy = subject.build(seed=1)
    weights = {name: tensor.contiguous() for name, tensor in mixer.state_dict().items()}
    copy.load_state_dict(load(save(weights)), strict=True)
    for name, tensor in copy.state_dict().items():
        demand(torch.equal(tensor, mixer.state_dict()[name]), f"{name} changed on the way through a file")
    demand(torch.equal(copy(x), mixer(x)), "the outputs differ, so something that matters is not in the state dict")
    return f"{len(weights)} tensors"
