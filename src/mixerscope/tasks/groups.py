"""Finite groups as multiplication tables: cyclic ones and their products, permutations, even permutations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import prod

import torch
from torch import Tensor

LARGEST = 200
"""Elements: each is a token twice, as an input and as an answer."""
CYCLIC = re.compile(r"Z[1-9]\d*(xZ[1-9]\d*)*")
PERMUTATIONS = re.compile(r"([SA])([2-5])")


@dataclass(frozen=True, eq=False)
class Group:
    """Elements are numbers, 0 the neutral one."""

    table: Tensor
    """[g, g] `table[s, x]` is the product s x: of permutations, x first and then s."""
    names: tuple[str, ...]
    labels: Mapping[str, Tensor]
    """Name to [g]: what a map to a smaller group makes of each element."""


@cache
def group(name: str) -> Group:
    """`S3`, `A5`, `Z6`, `Z2xZ3`: permutations, even permutations, sums modulo n, several of them side by side."""
    if CYCLIC.fullmatch(name):
        return _cyclic([int(part[1:]) for part in name.split("x")])
    if found := PERMUTATIONS.fullmatch(name):
        return _permutations(int(found[2]), even=found[1] == "A")
    raise ValueError(f"no group is called {name!r}; write S3, S5, A5, Z6 or Z2xZ3")


def _cyclic(orders: Sequence[int]) -> Group:
    if prod(orders) > LARGEST:
        raise ValueError(f"a group of {prod(orders)} elements is too large; at most {LARGEST}")
    elements = list(product(*(range(order) for order in orders)))
    number = {element: index for index, element in enumerate(elements)}
    sums = [
        [number[tuple((a + b) % order for a, b, order in zip(s, x, orders, strict=True))] for x in elements]
        for s in elements
    ]
    labels: dict[str, Tensor] = {}
    if len(orders) == 1:  # of a product the parts are such labels themselves
        [order] = orders
        labels = {f"mod{n}": torch.arange(order) % n for n in range(2, order) if order % n == 0}
    else:
        labels = {f"part{i}": torch.tensor([element[i] for element in elements]) for i in range(len(orders))}
    return Group(torch.tensor(sums), tuple(".".join(map(str, element)) for element in elements), labels)


def _permutations(of: int, even: bool) -> Group:
    elements = [p for p in permutations(range(of)) if not even or _sign(p) == 0]
    number = {element: index for index, element in enumerate(elements)}
    products = [[number[tuple(s[i] for i in x)] for x in elements] for s in elements]
    labels = {} if even else {"sign": torch.tensor([_sign(p) for p in elements])}
    return Group(torch.tensor(products), tuple("".join(map(str, p)) for p in elements), labels)


def _sign(permutation: Sequence[int]) -> int:
    """0 for an even number of exchanges, 1 for an odd one."""
    pairs = ((a, b) for j, b in enumerate(permutation) for a in permutation[:j])
    return sum(a > b for a, b in pairs) % 2
