"""How tensors [m, ...] of stacked models lie in memory when a kernel reads them, and among how many programs work is
divided."""

from torch import Tensor

PROCESSORS = 132
"""Of a large GPU. Programs are as many as these at most where a program can do the work of several: a constant, since
how sums are cut decides their last bits. Where nothing depends on it, the GPU is asked, if there is one."""


def whole_rows(tensor: Tensor) -> Tensor:
    """The tensor itself if each model's part lies in one piece, however far apart the models are, else a copy."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()
