"""Data as nobody would write it by accident: one JSON value changed, or its text."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    3,
    7,
    1000,
    10**6,
    10**8,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**20,
    10**400,
    -(10**400),
    0.5,
    -0.0,
    1.5,
    1e-320,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "0",
    "1",
    "-1",
    "NaN",
    "true",
    "x" * 20_000,
    "\0",
    "\ud800",
    "\x1b[31m",
    "ä–日本\u202e",
    "../../x",
    "/etc/passwd",
    "os:system",
    "x.py:X",
    "local/X",
    "ar",
    "atr:paper",
    "parity",
    "mamba",
    "attention",
    "pattern",
    "cuda",
    "bfloat16",
    "{0}",
    "%s%n",
    [],
    {},
    [[]],
    [None],
    [1, "a", None],
    ["key", "key"],
    list(range(500)),
    {"name": "ar"},
    {"name": "group", "group": "S5"},
    {"": {}},
    {"mixer": "attention"},
    [{"mixer": "lstm", "residual": False}],
    {"a": {"b": {"c": []}}},
    DEEP,
)
"""What a value is replaced by."""
TEXTS = ("9" * 5000, "[" * 900, "{" * 100, "1e9999", "-", "NaN", "\\ud800", "null", "//", "'", "\ufeff", "1_0", "0x1")
"""What is put into a text."""
WORDS = ("task", "model", "train", "stages", "seed", "data_seed", "version", "base", "vary", "note")


def nodes(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in data that holds a value: its parent, and the key or index there."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield data, key
        if isinstance(value, dict | list):
            yield from nodes(value)


def mutated(data: Any, rng: random.Random) -> Any:
    """The data with one to three things changed."""
    changed = {"data": copy.deepcopy(data)}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        parent, key = rng.choice(list(nodes(changed)))
        how = rng.randrange(6)
        if how == 0 and isinstance(parent, dict) and key != "data":
            del parent[key]
        elif how == 1 and isinstance(parent[key], dict):
            parent[key][rng.choice((*WORDS, "naem", "", "a.b"))] = rng.choice(VALUES)
        elif how == 2 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] = parent[key] * rng.choice((-1, 0, 2, 10, 1000))
        else:
            parent[key] = copy.deepcopy(rng.choice(VALUES))
    return changed["data"]


def mutated_text(text: str, rng: random.Random) -> str:
    """The text cut, or with something put in, taken out or doubled."""
    start = rng.randrange(len(text))
    end = min(len(text), start + rng.randrange(1, 40))
    put = rng.choice((*TEXTS, "", text[start:end] * 2, chr(rng.randrange(1, 0x3000))))
    return text[:start] if rng.random() < 0.1 else text[:start] + put + text[end:]


def as_bytes(data: Any, rng: random.Random) -> bytes:
    """A file of mutated data: mostly JSON, at times its text changed too, or its bytes."""
    text = json.dumps(mutated(data, rng))
    if rng.random() < 0.15:
        text = mutated_text(text, rng)
    found = text.encode("utf-8", "surrogatepass")
    return damaged(found, rng) if rng.random() < 0.05 else found


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some overwritten, or the end missing."""
    if not data or rng.random() < 0.2:
        return data[: rng.randrange(len(data) + 1)]
    start = rng.randrange(len(data))
    return data[:start] + rng.randbytes(rng.randrange(1, 9)) + data[start + rng.randrange(9) :]
