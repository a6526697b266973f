"""The bytes of a safetensors file in an order in which deflate makes them small, and back again, bit by bit.

Many runs over the same documents differ little from some other run: an edit that changes nothing leaves the numbers of
the unedited one. So each row of half-precision numbers is written as its difference from the nearest row before it, as
PNG does with the lines of a picture, and of all differences the low bytes come before the high ones. The numbers are
read as multiples of a power of two, or as their bits, whichever gets smaller. Other tensors deflate well as they are.
"""

import json
import math
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mixerscope.errors import CorruptFile

SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
SIZES |= {"U8": 1, "I8": 1, "BOOL": 1}
HALF = "F16"
WINDOW = 512
"""So many rows back the nearest one is looked for."""
SMALLEST = -24
"""Every half-precision number is a multiple of two to this power."""
AS_BITS = 255
"""In place of the power by which the numbers were divided, above the smallest one."""


def filtered(data: bytes) -> bytes:
    """The header as it is, then each tensor, rows of half-precision numbers as differences."""
    head, tensors = _layout(data)
    at, parts = head, [data[:head]]
    for kind, shape, size in tensors:
        part = data[at : at + size]
        parts.append(_smallest(part, shape) if _has_rows(kind, shape) else part)
        at += size
    if at != len(data):
        raise CorruptFile("this is no safetensors file: it does not end where its header says")
    return b"".join(parts)


def restored(data: bytes) -> bytes:
    """The file again of what `filtered` made of it."""
    head, tensors = _layout(data)
    at, parts = head, [data[:head]]
    for kind, shape, size in tensors:
        rows = _has_rows(kind, shape)
        taken = 2 + 2 * shape[0] + data[at + 1] * math.prod(shape) if rows and at + 1 < len(data) else size
        part = data[at : at + taken]
        if len(part) < taken:
            raise CorruptFile("this filtered file ends too early")
        parts.append(_sums(part, shape) if rows else part)
        at += taken
    if at != len(data):
        raise CorruptFile("this filtered file goes on after its end")
    return b"".join(parts)


def _has_rows(kind: str, shape: list[int]) -> bool:
    return kind == HALF and len(shape) == 2 and min(shape) > 0


def _layout(data: bytes) -> tuple[int, list[tuple[str, list[int], int]]]:
    """Where the tensors begin, and of each its kind, shape and bytes, in the order in which they lie there."""
    head = 8 + int.from_bytes(data[:8], "little")
    try:
        if head > len(data):
            raise ValueError("its header ends after it")
        return head, list(_tensors(json.loads(data[8:head])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"this is no safetensors file: {error}") from error


def _tensors(header: dict[str, dict]) -> Iterator[tuple[str, list[int], int]]:
    found = sorted((entry["data_offsets"], name) for name, entry in header.items() if name != "__metadata__")
    at = 0
    for (start, end), name in found:
        kind, shape = header[name]["dtype"], header[name]["shape"]
        if not all(isinstance(n, int) and n >= 0 for n in (*shape, start, end)) or start != at:
            raise ValueError(f"{name} does not begin where the one before it ends")
        if end - start != math.prod(shape) * SIZES[kind]:
            raise ValueError(f"{name} is not as long as its shape says")
        yield kind, shape, end - start
        at = end


def _smallest(part: bytes, shape: list[int]) -> bytes:
    bits = np.frombuffer(part, "<i2").reshape(shape)
    ways = [_differences(_in_order(bits), AS_BITS)]
    numbers = bits.view("<f2").astype(np.float64)
    if np.isfinite(numbers).all() and not (np.signbit(numbers) & (numbers == 0)).any():  # a whole 0 has no sign
        whole = (numbers * 2.0**-SMALLEST).astype(np.int64)
        any_bit = int(np.bitwise_or.reduce(whole, axis=None))
        power = max((any_bit & -any_bit).bit_length() - 1, 0)  # the lowest bit that any of them has
        ways.append(_differences(whole >> power, power))
    return min(ways, key=lambda way: len(zlib.compress(way, 9)))


def _in_order(bits: NDArray[np.int16]) -> NDArray[np.int16]:
    """Bits of half-precision numbers as integers that are ordered as the numbers are, or those as bits again."""
    return bits ^ ((bits >> 15) & 0x7FFF)


def _differences(rows: NDArray[np.integer], power: int) -> bytes:
    """The power and the bytes of a difference, how many rows back the nearest row is (0: none is near), then the
    differences from it."""
    back = np.zeros(len(rows), dtype="<u2")
    found = np.empty(rows.shape, dtype=f"<u{rows.itemsize}")
    for i, row in enumerate(rows):
        earlier = rows[max(0, i - WINDOW) : i]
        tried = _unsigned(np.vstack([row - earlier, row[None]]))
        lengths = np.frexp(tried.astype(np.float32))[1]
        best = int(lengths.sum(1).argmin())
        back[i] = len(earlier) - best
        found[i] = tried[best]
    width = max(1, (int(found.max()).bit_length() + 7) // 8)
    low_before_high = found.reshape(-1, 1).view(np.uint8).T[:width]
    return bytes([power, width]) + back.tobytes() + low_before_high.tobytes()


def _sums(part: bytes, shape: list[int]) -> bytes:
    power, width, count = part[0], part[1], shape[0]
    size = 2 if power == AS_BITS else 8
    if not 0 < width <= size:
        raise CorruptFile(f"the differences of this filtered file have {width} bytes, not 1 to {size}")
    planes = np.zeros((size, math.prod(shape)), dtype=np.uint8)
    planes[:width] = np.frombuffer(part[2 + 2 * count :], np.uint8).reshape(width, -1)
    coded = np.ascontiguousarray(planes.T).view(f"<u{size}").reshape(shape)
    rows = (coded >> 1).astype(f"<i{size}") ^ -(coded & 1).astype(f"<i{size}")
    for i, distance in enumerate(np.frombuffer(part[2 : 2 + 2 * count], "<u2").tolist()):
        if distance > i:
            raise CorruptFile("a row of this filtered file refers to one that is not there")
        if distance:
            rows[i] += rows[i - distance]
    if power == AS_BITS:
        return _in_order(rows.astype("<i2")).tobytes()
    with np.errstate(over="ignore"):  # of a forged file; its hash will not fit either
        return (rows * 2.0 ** (power + SMALLEST)).astype("<f2").tobytes()


def _unsigned(differences: NDArray[np.integer]) -> NDArray[np.integer]:
    """Small ones as small numbers, whatever their sign."""
    size = differences.itemsize
    return ((differences << 1) ^ (differences >> (8 * size - 1))).astype(f"<u{size}")
