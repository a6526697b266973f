"""The batching rule of operators that have a leading stack axis of their own.

Where there is one model that axis is taken off by `squeeze`: the gradient of an index writes zeros first.
"""

from collections.abc import Sequence

from torch import Tensor


def fold_stack(inputs: Sequence[Tensor], dims: Sequence[int | None], size: int) -> list[Tensor]:
    """Each [k, m, ...], its k at `dims`, to [k m, ...]; a tensor that is the same for all k is repeated."""
    folded: list[Tensor] = []
    for tensor, dim in zip(inputs, dims, strict=True):
        tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        folded.append(tensor.reshape(-1, *tensor.shape[2:]))
    return folded
