"""Splits by hash: which side a (query, answer) pair or a whole document is on, without storing any of them."""

import numpy as np
from numpy.typing import NDArray

from mixerscope.tasks.base import Split

DEV_SHARE = TEST_SHARE = 0.2
"""Shares of all documents that only dev and only test may contain, where documents are split by their hash."""


def mixed(values: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A 64-bit hash of each value (the finaliser of splitmix64): close values get unrelated hashes."""
    h = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def as_share(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes as numbers in [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def held_out_pairs(
    query: NDArray[np.integer], answer: NDArray[np.integer], share: float, seed: int
) -> NDArray[np.bool_]:
    """Whether each (query, answer) pair of tokens is kept for the test set: each independently, with chance `share`."""
    pair = (query.astype(np.uint64) << np.uint64(32)) | answer.astype(np.uint64)
    return as_share(mixed(pair ^ mixed(np.array([seed])))) < share


def token_hashes(position: NDArray[np.integer], token: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A hash of each (position, token); their sum over a document is the document's hash."""
    return mixed((position.astype(np.uint64) << np.uint64(32)) | token.astype(np.uint64))


def in_split(document_hash: NDArray[np.uint64], split: Split) -> NDArray[np.bool_]:
    """Whether documents belong to a split, so that no document is in two of them."""
    share = as_share(mixed(document_hash))
    if split == "dev":
        return share < DEV_SHARE
    if split == "test":
        return (share >= DEV_SHARE) & (share < DEV_SHARE + TEST_SHARE)
    return share >= DEV_SHARE + TEST_SHARE
