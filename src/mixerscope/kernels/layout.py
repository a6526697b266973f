"""How tensors [m, ...] of stacked models lie in memory when a kernel reads them."""

from torch import Tensor


def whole_rows(tensor: Tensor) -> Tensor:
    """The tensor itself if each model's part lies in one piece, however far apart the models are, else a copy."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()
