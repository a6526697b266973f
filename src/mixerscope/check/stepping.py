"""Properties of step-by-step use: it equals the parallel form, and the state is all that is carried."""

import torch
from torch import Tensor

from mixerscope.check.outcome import demand
from mixerscope.check.subject import TOLERANCE, Subject, gap
from mixerscope.mixers.base import Mixer, State


def run_steps(mixer: Mixer, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """[b, t, d] one position at a time, from a state or from the start."""
    state = mixer.initial_state(x[:, 0]) if state is None else state
    outputs: list[Tensor] = []
    for position in range(x.shape[1]):
        y, state = mixer.step(x[:, position], state)
        outputs.append(y)
    return torch.stack(outputs, 1), state


@torch.no_grad()
def step(subject: Subject) -> str:
    """One position at a time gives what the parallel form gives."""
    mixer, worst = subject.build(), 0.0
    for length in subject.lengths:
        x = subject.documents(2, length)
        apart = gap(run_steps(mixer, x)[0], mixer(x))
        demand(apart <= TOLERANCE, f"at length {length} the steps differ from the parallel form by {apart:.1e}")
        worst = max(worst, apart)
    return f"lengths {', '.join(map(str, subject.lengths))}; at most {worst:.0e} apart"


@torch.no_grad()
def carried_state(subject: Subject) -> str:
    """A prefix, its state handed to another instance in another order of documents, then the rest: the full run."""
    length, prefix, order = 11, 6, [2, 0, 1]
    x = subject.documents(3, length)
    expected = subject.build()(x)
    _, state = run_steps(subject.build(), x[:, :prefix])
    state = tuple(part[order].clone() for part in state)
    rest, _ = run_steps(subject.build(), x[order, prefix:], state)
    apart = gap(rest, expected[order, prefix:])
    demand(apart <= TOLERANCE, f"after {prefix} positions the carried state gives outputs {apart:.1e} off the full run")
    return f"{prefix} positions, then {length - prefix}"


@torch.no_grad()
def state_size(subject: Subject) -> str:
    """`state_size(t)` is the number of numbers that really cross after t positions."""
    mixer, documents = subject.build(), 2
    x = subject.documents(documents, subject.lengths[-1])
    state = mixer.initial_state(x[:, 0])
    crossed = 0
    for position in range(x.shape[1]):
        _, state = mixer.step(x[:, position], state)
        demand(all(part.shape[0] == documents for part in state), "dimension 0 of a state is not the document")
        crossed = sum(part.numel() for part in state) // documents
        declared = mixer.state_size(position + 1)
        demand(crossed == declared, f"after {position + 1} positions {crossed} numbers cross, declared are {declared}")
    return f"{crossed} numbers after {x.shape[1]} positions at width {subject.width}"
