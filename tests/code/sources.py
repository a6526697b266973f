"""Sources that a test writes, and the identity of what stands in them."""

from pathlib import Path


def write(folder: Path, **files: str) -> Path:
    """Writes `a__b="..."` to a/b.py."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/").replace("/init", "/__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def sha(identity: dict[str, str] | None) -> str:
    assert identity is not None
    assert set(identity) == {"sha256"}
    assert len(identity["sha256"]) == 64
    return identity["sha256"]
