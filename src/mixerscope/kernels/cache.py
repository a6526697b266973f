"""Where this package keeps what it found out or compiled on this machine: the user's cache directory."""

import os
from pathlib import Path


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "mixerscope"


def one_triton_cache() -> None:
    """Has all of this process, and of those it starts, keep kernels in one place, unless somebody chose another.

    `torch.compile` moves the place when it first compiles, and leaves it where it is when it finds all compiled: what
    one process has compiled ahead, another would then look for elsewhere and compile again, while cohorts wait.
    """
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder() / "triton"))
