# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Sums of what several programs contributed, always in the same order, and several of them in one launch if alike."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

from collections.abc import Sequence
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Numbers that a program reads in one go."""
MOST_PARTS = 64
"""Of them from different parts."""


def summed(parts: Sequence[Tensor], kind: torch.dtype) -> list[Tensor]:
    """Of each contiguous tensor [o, p, ...] its sum over p, [o, ...]."""
    sums = [x.new_empty(x.shape[0], *x.shape[2:], dtype=kind) for x in parts]
    at_once = [min(MOST_PARTS, triton.next_power_of_2(x.shape[1])) for x in parts]
    # Beside one of many parts, one of few would fill a small part of each tile, in as many programs.
    for number in dict.fromkeys(at_once):
        alike = [pair for pair, other in zip(zip(parts, sums, strict=True), at_once, strict=True) if other == number]
        _sum_alike(*zip(*alike, strict=True), number)
    return sums


def _sum_alike(parts: Sequence[Tensor], sums: Sequence[Tensor], at_once: int) -> None:
    counts, sizes = tuple(x.shape[1] for x in parts), tuple(x[0, 0].numel() for x in parts)
    block = TILE // at_once
    each = tuple(triton.cdiv(size, block) for size in sizes)
    blocks = [len(x) * number for x, number in zip(parts, each, strict=True)]
    _sums[(sum(blocks),)](
        tuple(parts), tuple(sums), FIRST=tuple(accumulate(blocks[:-1], initial=0)), EACH=each, COUNTS=counts,
        SIZES=sizes, TENSORS=len(parts), MOST=max(counts), PARTS=at_once, BLOCK=block, num_warps=4,
    )  # fmt: skip


@triton.jit
def _sums(
    parts, sums, FIRST: tl.constexpr, EACH: tl.constexpr, COUNTS: tl.constexpr, SIZES: tl.constexpr,
    TENSORS: tl.constexpr, MOST: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    # The last tensor that begins with this program or before it.
    part_at, sum_at, first, each, count, size = parts[0], sums[0], FIRST[0], EACH[0], COUNTS[0], SIZES[0]
    for i in tl.static_range(1, TENSORS):
        reached = program >= FIRST[i]
        part_at, sum_at = tl.where(reached, parts[i], part_at), tl.where(reached, sums[i], sum_at)
        first, each = tl.where(reached, FIRST[i], first), tl.where(reached, EACH[i], each)
        count, size = tl.where(reached, COUNTS[i], count), tl.where(reached, SIZES[i], size)
    outer = ((program - first) // each).to(tl.int64)
    at = (program - first) % each * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((PARTS, BLOCK), tl.float32)
    for start in range(0, MOST, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part < count)[:, None] & (at < size)[None, :]
        total += tl.load(part_at + (outer * count + part[:, None]) * size + at[None, :], inside, 0.0)
    tl.store(sum_at + outer * size + at, tl.sum(total, 0).to(sum_at.dtype.element_ty), at < size)
