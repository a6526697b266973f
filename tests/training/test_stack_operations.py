"""Operations of our operators, by the formulas of the benchmarks, against what torch counts in their plain bodies."""

import pytest
import torch
from benchmarks.ceilings import counted

from mixerscope.mixers.ops import residual_attention
from mixerscope.model import residual_mlp
from mixerscope.training import head

MODELS, DOCUMENTS, TOKENS, WIDTH, HEADS, SYMBOLS = 2, 3, 5, 8, 2, 11


def tensors(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.ones(shape, requires_grad=True) for shape in shapes]


def of_head():
    x, table = tensors((MODELS, DOCUMENTS, WIDTH), (MODELS, SYMBOLS, WIDTH))
    targets = torch.zeros(MODELS, DOCUMENTS, dtype=torch.long)
    return head._head_loss, (x, table, targets), head.plain_head_loss, (x, table, targets, -1, False)


def of_mlp():
    x, *vectors = tensors((MODELS, TOKENS, WIDTH), *[(MODELS, WIDTH)] * 3, (MODELS, 4 * WIDTH))
    up, down = tensors((MODELS, 4 * WIDTH, WIDTH), (MODELS, WIDTH, 4 * WIDTH))
    gain, shift, down_bias, up_bias = vectors
    inputs = (x, gain, shift, up, up_bias, down, down_bias, 1e-5)
    return residual_mlp._residual_mlp, inputs, residual_mlp.plain_residual_mlp, (*inputs, False)


def of_attention():
    x, gain, shift, out_bias = tensors((MODELS, DOCUMENTS, TOKENS, WIDTH), *[(MODELS, WIDTH)] * 3)
    qkv, out = tensors((MODELS, 3 * WIDTH, WIDTH), (MODELS, WIDTH, WIDTH))
    inputs = (x, gain, shift, qkv, out, out_bias, HEADS, False, 1e-5)
    plain = residual_attention.plain_residual_attention
    return residual_attention._residual_attention, inputs, plain, (*inputs, False)


@pytest.mark.parametrize("make", [of_head, of_mlp, of_attention])
def test_an_operator_counts_as_the_products_of_its_plain_body(make):
    operator, inputs, plain, plain_inputs = make()
    found = []
    for body, arguments in ((operator, inputs), (plain, plain_inputs)):
        with counted() as counter:
            body(*arguments)[0].sum().backward()
        found.append(counter.get_total_flops())
    assert found[0] == found[1] > 0
