"""A device that is not there: its tensors hold their numbers on the CPU and mix with no tensor of the CPU.

There is no GPU where the tests run. An operation on tensors of two devices, which a GPU would refuse, is refused here
too, and what is computed is what the CPU computes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
"""The one name of a device that torch knows everywhere and that needs no hardware."""
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Away(Tensor):
    """A tensor on the device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Away":
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        away = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=DEVICE, **layout)
        away.held = held
        return away

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = Away(self.held.clone())
        return nn.Parameter(copied, self.requires_grad) if isinstance(self, nn.Parameter) else copied

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """Lets tensors be made on the device and moved to it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def a_device_elsewhere() -> Iterator[None]:
    """In here DEVICE can be used. Views of such tensors cannot be made in inference mode, so that is no_grad."""
    inference_mode: Callable[..., Any] = torch.inference_mode
    torch.inference_mode = torch.no_grad  # type: ignore[misc]
    try:
        with _Everywhere():
            yield
    finally:
        torch.inference_mode = inference_mode  # type: ignore[misc]


def send(model: nn.Module) -> None:
    """Moves a model to the device."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(Away(weight.detach()), requires_grad=weight.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else Away(buffer)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    away = any(isinstance(x, Away) for x in tensors)
    if func not in COPIES:
        # A single number may come from the CPU, as on a GPU.
        here = [tuple(x.shape) for x in tensors if not isinstance(x, Away) and x.dim() > 0]
        assert not (away and here), f"{func} mixes tensors of the device and tensors {here} of the CPU"
    device = kwargs.get("device")
    if device is not None:
        away = torch.device(device) == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    out = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    if func._schema.name.endswith("_"):  # in place: what was given is given back
        return args[0]
    return tree_map(_sent, out) if away else out


def _held(x: Any) -> Any:
    return x.held if isinstance(x, Away) else x


def _sent(x: Any) -> Any:
    return Away(x) if isinstance(x, Tensor) else x
