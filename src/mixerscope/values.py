"""Values of a notebook as text, by which the code that uses them can be told from other code."""

import hashlib
from typing import Any

from mixerscope.errors import UserError


def told(name: str, value: Any) -> str:
    """A value as text by which it can be told from others; one that has none is refused."""
    if hasattr(value, "numpy") and hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "tobytes") and hasattr(value, "shape"):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    text = " ".join(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)
    if " at 0x" in text:
        raise UserError(
            f"{name} is a {type(value).__name__}, which cannot be told from others; put the class in a file"
        )
    return text


def is_simple(value: Any) -> bool:
    """Whether a value is made of nothing but numbers, text and the like, so that its representation says it all."""
    if type(value) in (tuple, list):
        return all(is_simple(each) for each in value)
    if type(value) is dict:
        return all(is_simple(each) for each in (*value, *value.values()))
    return value is None or type(value) in (int, float, complex, str, bytes, bool)
