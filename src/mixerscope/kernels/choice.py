"""Which body an operator runs: the plain one, or a kernel that agreed with it on this device and these shapes."""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mixerscope.kernels.agreements import recall, remember
from mixerscope.kernels.cache import one_triton_cache
from mixerscope.registry import KERNELS

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Relative L2 error that each output may have against the plain body in float64; other types stay plain."""

KERNEL = "kernel"
DOCUMENTS = 32
"""Of `few_documents`: a usual batch."""

_lock = threading.RLock()
_chosen: dict[tuple, str] = {}
_used: dict[str, dict[str, None]] = {}
_tallies: dict[tuple[str, int], "Tally"] = {}
_of_thread = threading.local()
_warned: set[str] = set()
_plain_wanted = 0


def body(
    name: str,
    inputs: Sequence[Any],
    plain: Callable[..., Any],
    changes: int = 0,
    tolerance: float | None = None,
    sample: Sequence[Any] | None = None,
    faster: str | None = None,
) -> Callable[..., Any]:
    """`plain`, or the kernel of this name with the same arguments if it agrees with `plain` on `inputs`.

    Kernels are known by the name of their operator: ours in the registry, those of a package by an entry point in the
    group `mixerscope.kernels`, as `<distribution>/<name>`. An operator without one always runs `plain`.

    With `changes`, both write their results into so many of the first inputs; comparing them uses copies. `tolerance`
    takes the place of that of the inputs' type, where the operator was asked to compute less exactly than it could.
    `sample` is what to compare on where the inputs may be many and large: some of the documents, say. `faster` says why
    `plain` is faster on these inputs, where it is.

    Numbers among the inputs are handed on; they may not change what is computed in another way than shapes do. The
    first time shapes and types are seen, kernel and plain body both run: not while a CUDA graph is being captured.
    """
    runs_as = _reason_for_plain(name, inputs) or (f"plain: {faster}" if faster else None)
    runs_as = runs_as or _agreement(name, sample or inputs, plain, changes, tolerance)
    _used.setdefault(name, {}).setdefault(runs_as)
    if _tallies and (tally := _tallies.get(_place(inputs))) is not None:
        tally.seen.setdefault(name, {}).setdefault(runs_as)
    return _kernel(name) if runs_as == KERNEL else plain


def few_documents(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The first documents of tensors [m, b, ...]: a program works on one, so how many there are makes no difference."""
    return tuple(tensor[:, :DOCUMENTS] for tensor in tensors)


@contextmanager
def switched(to: Literal["auto", "plain"]) -> Iterator[None]:
    """While any `switched("plain")` is open, in whatever thread, all operators run their plain bodies.

    For the process and not for the thread: gradients of what one thread computed are computed in another.
    """
    global _plain_wanted
    step = 1 if to == "plain" else 0
    with _lock:
        _plain_wanted += step
    try:
        yield
    finally:
        with _lock:
            _plain_wanted -= step


def wanted() -> bool:
    """Whether operators may run kernels: who has another way without operators asks before taking theirs."""
    return _plain_wanted == 0


def used() -> dict[str, str]:
    """What each operator that ran in this process ran as: `kernel`, or `plain` and why; both if shapes differed."""
    return {name: "; ".join(ran_as) for name, ran_as in sorted(_used.items())}


class Tally:
    """What operators ran as in one thread, or on the streams that it works on: gradients are computed in other threads,
    but on the stream of what they are the gradients of."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, None]] = {}
        self.places: list[tuple[str, int]] = []

    def at(self, place: tuple[str, int]) -> None:
        self.places.append(place)
        _tallies[place] = self

    def used(self) -> dict[str, str]:
        """As `used`, of this tally alone."""
        return {name: "; ".join(ran_as) for name, ran_as in sorted(self.seen.items())}


@contextmanager
def tallied() -> Iterator[Tally]:
    """Notes what operators run as in this thread, whatever runs in others."""
    tally, before = Tally(), getattr(_of_thread, "tally", None)
    tally.at(("thread", threading.get_ident()))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tally.at(("stream", torch.cuda.current_stream().cuda_stream))
    _of_thread.tally = tally
    try:
        yield tally
    finally:
        _of_thread.tally = before
        for place in tally.places:
            if _tallies.get(place) is tally:
                del _tallies[place]


def tally_stream(stream: "torch.cuda.Stream") -> None:
    """What runs on this stream from now on is this thread's work too."""
    tally = getattr(_of_thread, "tally", None)
    if tally is not None:
        tally.at(("stream", stream.cuda_stream))


def _place(inputs: Sequence[Any]) -> tuple[str, int]:
    on_gpu = any(isinstance(x, Tensor) and x.is_cuda for x in inputs)
    return ("stream", torch.cuda.current_stream().cuda_stream) if on_gpu else ("thread", threading.get_ident())


def _reason_for_plain(name: str, inputs: Sequence[Any]) -> str | None:
    if _plain_wanted:
        return "plain: asked for"
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if not all(x.is_cuda for x in tensors) and os.environ.get("TRITON_INTERPRET") != "1":
        return "plain: not on a GPU"
    types = {x.dtype for x in tensors if x.is_floating_point()}
    if not types <= TOLERANCES.keys():
        return f"plain: {', '.join(sorted(str(t).removeprefix('torch.') for t in types - TOLERANCES.keys()))}"
    if _triton_version() is None:
        return "plain: triton is not installed"
    if name not in KERNELS:
        return "plain: it has no kernel"
    return None


def _agreement(
    name: str, inputs: Sequence[Any], plain: Callable[..., Any], changes: int, tolerance: float | None
) -> str:
    """`kernel` where it agrees with the plain body, or `plain` and why; compared once for these shapes and types."""
    device = next(x.device for x in inputs if isinstance(x, Tensor))
    key = (name, device, tolerance, *((x.dtype, x.shape) if isinstance(x, Tensor) else x for x in inputs))
    if key in _chosen:
        return _chosen[key]
    assert not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()), (
        f"{name} meets shapes for the first time while a CUDA graph is being captured; warm up first"
    )
    with _lock:
        if key not in _chosen:
            _chosen[key] = _first_agreement(name, inputs, plain, changes, tolerance, device)
        return _chosen[key]


def _first_agreement(
    name: str,
    inputs: Sequence[Any],
    plain: Callable[..., Any],
    changes: int,
    tolerance: float | None,
    device: torch.device,
) -> str:
    label = _label(name, inputs, plain, tolerance, device)
    agreement = recall(label)
    try:
        if agreement is None:
            agreement = _compare(_outputs(_kernel(name), inputs, changes), inputs, plain, changes, tolerance)
            remember(label, agreement)
        elif agreement == KERNEL:
            _outputs(_kernel(name), inputs, changes)  # compiles it, here and not in several threads at once
    except Exception as error:  # noqa: BLE001 - whatever a compiler may raise, the plain body still works
        agreement = f"plain: {type(error).__name__}: {error}".splitlines()[0]
    if agreement != KERNEL and name not in _warned:
        _warned.add(name)
        message = f"{name} on {_device_name(device)} runs without its kernel; {agreement}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return agreement


def _outputs(function: Callable[..., Any], inputs: Sequence[Any], changes: int) -> list[Tensor]:
    """What a body returns, or what it has written into copies of its first inputs."""
    changed = [x.clone() for x in inputs[:changes]]
    returned = function(*changed, *inputs[changes:])
    return changed if changes else [returned] if isinstance(returned, Tensor) else list(returned)


def _compare(
    outputs: list[Tensor], inputs: Sequence[Any], plain: Callable[..., Any], changes: int, tolerance: float | None
) -> str:
    """`kernel`, or how far it is off. An error no larger than twice that of the plain body is good enough too:

    where sums cancel, no arithmetic of this precision comes within the tolerance.
    """
    if tolerance is None:
        tolerance = max(TOLERANCES[x.dtype] for x in inputs if isinstance(x, Tensor) and x.is_floating_point())
    in_double = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs]
    everything = zip(outputs, _outputs(plain, inputs, changes), _outputs(plain, in_double, changes), strict=True)
    for i, (found, usual, expected) in enumerate(everything):
        if (found.shape, found.dtype) != (usual.shape, usual.dtype):
            return f"plain: output {i} of the kernel is {found.dtype} {list(found.shape)}"
        # A member of a stack that has diverged says nothing; what is finite must be right.
        finite = expected.isfinite() & usual.isfinite()
        if expected.numel() and not finite.any():
            raise ArithmeticError(f"output {i} is finite nowhere, so there is nothing to compare")
        found, usual, expected = (x.double()[finite] for x in (found, usual, expected))
        error = _error(found, expected)
        if not error <= max(tolerance, 2 * _error(usual, expected)):
            return f"plain: output {i} of the kernel has a relative error of {error:.1e}"
    return KERNEL


def _error(found: Tensor, expected: Tensor) -> float:
    """Relative L2 error; absolute where zero is expected."""
    size = expected.norm().item()
    return (found - expected).norm().item() / (size or 1.0)


@cache
def _kernel(name: str) -> Callable[..., Any]:
    one_triton_cache()
    module, function = KERNELS.entry(name).target.split(":")
    return getattr(importlib.import_module(module), function)


@cache
def _triton_version() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return None
    return importlib.metadata.version("triton")


def _label(
    name: str, inputs: Sequence[Any], plain: Callable[..., Any], tolerance: float | None, device: torch.device
) -> str:
    """All that an agreement depends on, for people and for the file."""
    kernel = importlib.util.find_spec(KERNELS.entry(name).target.split(":")[0])
    assert kernel is not None
    assert kernel.origin is not None
    # Kernels share what they are made of, so a change to a file beside them, or beside this one, is one to all of them.
    beside = {path for folder in (__file__, kernel.origin) for path in Path(folder).parent.glob("*.py")}
    source = _source(kernel.origin, inspect.getfile(plain), *sorted(map(str, beside)))
    shapes = " ".join(
        f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" if isinstance(x, Tensor) else str(x) for x in inputs
    )
    versions = f"torch {torch.__version__}, triton {_triton_version()}, source {source}"
    within = "" if tolerance is None else f", within {tolerance:g}"
    return f"{name} on {_device_name(device)}, {versions}{within}: {shapes}"


@cache
def _source(*paths: str) -> str:
    """Of the kernel, of what it was compared with, and of how."""
    return hashlib.sha256(b"".join(Path(path).read_bytes() for path in paths)).hexdigest()[:16]


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "interpreter"
