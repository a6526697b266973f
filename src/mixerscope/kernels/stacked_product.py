# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Products of stacked matrices of float32 numbers on tensor cores: the counterpart of `training/product.py`.

A program computes a tile of one model's result, some terms of the sums at a time, each time as three products of
tensor cores. Those begin at zero and are added up outside of them: what tensor cores add to a sum they cut off, do not
round, so that they should not see a long one. Where there are few tiles and many terms, several programs share a tile;
each writes out its sum, and these are added in a fixed order afterwards.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false, reportMissingImports=false

import triton
import triton.language as tl
from torch import Tensor

from mixerscope.kernels.layout import PROCESSORS
from mixerscope.kernels.products import leading_bits
from mixerscope.kernels.sums import summed

# Chosen by what compilers say of an H100's or H200's processors, for none of these sizes has been timed.
ROWS, COLUMNS, TERMS = 128, 64, 32
"""Of a tile, and of its sums at a time."""
WARPS, STAGES = 8, 3
REGISTERS = 128
"""Of a thread, at most (0: as many as the compiler likes). With these two programs fit on a processor: one reads and
cuts while the other multiplies. Two of 128 columns do not."""
SMALL_ROWS, SMALL_COLUMNS, SMALL_WARPS = 64, 64, 4
"""Of a tile where large ones would be fewer than a GPU has processors."""
AT_ONCE, SMALL_AT_ONCE = 2, 4
"""Programs for which a processor has room. Tiles are shared by as many programs as there is room for."""
SHORTEST = 256
"""Terms that a program sums at least, if several share a tile."""
SMALLEST = 16
"""Side of a matrix that tensor cores take."""
STEP = 4
"""Numbers that are read at once, if rows and models begin at multiples of it: the compiler has to be told."""


def product(left: Tensor, right: Tensor, left_turned: bool, right_turned: bool, models: int) -> Tensor:
    """[m, r, k] times [m, k, c], [m, r, c]; of a factor that is turned, the transpose is given. The numbers of a row
    follow each other, however far apart rows and models are. Tiles are chosen as for so many `models`."""
    assert left.stride(2) == right.stride(2) == 1
    rows, terms = left.shape[1:] if not left_turned else left.mT.shape[1:]
    columns = right.shape[1 if right_turned else 2]
    factors = (left, left_turned), (right, right_turned)
    turned = rows < SMALL_ROWS and rows < columns
    if turned:  # the transpose of the result is the product of transposes, in the other order
        factors = (right, not right_turned), (left, not left_turned)
        rows, columns = columns, rows
    (left, left_turned), (right, right_turned) = factors
    tile_rows, tile_columns, warps, parts = _sizes(models, rows, columns, terms)
    each = triton.cdiv(triton.cdiv(terms, parts), TERMS) * TERMS
    parts = triton.cdiv(terms, each)
    out = left.new_empty(len(left), parts, *((columns, rows) if turned else (rows, columns)))
    tiles = triton.cdiv(rows, tile_rows) * triton.cdiv(columns, tile_columns)
    steps = [_step(rows), _step(columns), _step(*left.stride()[:2]), _step(*right.stride()[:2])]
    _tile[(len(left) * tiles, parts)](
        left, right, out, rows // steps[0], columns // steps[1], left.stride(0) // steps[2],
        left.stride(1) // steps[2], right.stride(0) // steps[3], right.stride(1) // steps[3],
        ROW_STEP=steps[0], COLUMN_STEP=steps[1], LEFT_STEP=steps[2], RIGHT_STEP=steps[3], ALL=terms, EACH=each,
        LEFT_TURNED=left_turned, RIGHT_TURNED=right_turned, OUT_TURNED=turned,
        ROWS=tile_rows, COLUMNS=tile_columns, TERMS=TERMS, num_warps=warps, num_stages=STAGES,
        maxnreg=REGISTERS or None,
    )  # fmt: skip
    return out.squeeze(1) if parts == 1 else summed([out], out.dtype)[0]


def _step(*numbers: int) -> int:
    return STEP if all(number % STEP == 0 for number in numbers) else 1


def _sizes(models: int, rows: int, columns: int, terms: int) -> tuple[int, int, int, int]:
    """Rows and columns of a tile, warps of a program, and how many programs share a tile."""

    def programs(tile_rows: int, tile_columns: int) -> int:
        return models * triton.cdiv(rows, tile_rows) * triton.cdiv(columns, tile_columns)

    padded = max(SMALLEST, triton.next_power_of_2(columns))
    sizes, at_once = (ROWS, min(COLUMNS, padded), WARPS), AT_ONCE
    if rows <= SMALL_ROWS or programs(*sizes[:2]) < PROCESSORS:
        sizes, at_once = (SMALL_ROWS, min(SMALL_COLUMNS, padded), SMALL_WARPS), SMALL_AT_ONCE
    parts = min(at_once * PROCESSORS // programs(*sizes[:2]), terms // SHORTEST)
    return *sizes, max(1, parts)


# Masks are always tensors and loop bounds always constants: what Triton's interpreter does not take is not used.


@triton.jit
def _read(factor_at, step, row, real_row, term, real_term, TURNED: tl.constexpr):
    """Of [r, k], or of [k, r] if turned: rows and terms [r, k] either way."""
    place = term[None, :] * step + row[:, None] if TURNED else row[:, None] * step + term[None, :]
    return tl.load(factor_at + place, real_row[:, None] & real_term[None, :], 0.0)


@triton.jit
def _three_products(left, right):
    """As in `products.py`, in another order: the leading bits of the right factor, which lie in shared memory, are then
    used twice in a row. That takes fewer registers, 121 where it was 162 for a small tile, and fewer barriers."""
    large_left, large_right = leading_bits(left), leading_bits(right)
    total = tl.dot(large_left, right - large_right, input_precision="tf32")
    total = tl.dot(left - large_left, large_right, total, input_precision="tf32")
    return tl.dot(large_left, large_right, total, input_precision="tf32")


@triton.jit
def _tile(
    left_at, right_at, out_at, row_steps, column_steps, left_model, left_row, right_model, right_row,
    ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr, LEFT_STEP: tl.constexpr, RIGHT_STEP: tl.constexpr,
    ALL: tl.constexpr, EACH: tl.constexpr, LEFT_TURNED: tl.constexpr, RIGHT_TURNED: tl.constexpr,
    OUT_TURNED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TERMS: tl.constexpr,
):  # fmt: skip
    rows, columns = row_steps * ROW_STEP, column_steps * COLUMN_STEP
    across = tl.cdiv(columns, COLUMNS)
    tiles = tl.cdiv(rows, ROWS) * across
    # One model after the other, and tiles of the same rows next to each other.
    tile, model, part = tl.program_id(0) % tiles, (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(1)
    row, column = tile // across * ROWS + tl.arange(0, ROWS), tile % across * COLUMNS + tl.arange(0, COLUMNS)
    real_row, real_column = row < rows, column < columns
    left_at += model * left_model * LEFT_STEP
    right_at += model * right_model * RIGHT_STEP
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, EACH, TERMS):
        term = part * EACH + start + tl.arange(0, TERMS)
        real_term = term < ALL
        left = _read(left_at, left_row * LEFT_STEP, row, real_row, term, real_term, LEFT_TURNED)
        # Columns of the right factor are rows of its transpose.
        right = _read(right_at, right_row * RIGHT_STEP, column, real_column, term, real_term, not RIGHT_TURNED)
        total += _three_products(left, tl.trans(right))
    out_at += (model * tl.num_programs(1) + part) * rows * columns
    inside = real_row[:, None] & real_column[None, :]
    if OUT_TURNED:
        tl.store(out_at + column[None, :] * rows + row[:, None], total, inside)
    else:
        tl.store(out_at + row[:, None] * columns + column[None, :], total, inside)
