"""One place for what Triton compiles."""

import os
from contextlib import suppress
from pathlib import Path

from mixerscope.cache import cache_folder


def one_triton_cache() -> None:
    """Has all of this process, and of those it starts, keep kernels in one place, if there is one to write to.

    `torch.compile` moves the place when it first compiles, and leaves it where it is when it finds all compiled: what
    one process has compiled ahead, another would then look for elsewhere and compile again, while cohorts wait.
    """
    if "TRITON_CACHE_DIR" in os.environ:
        return
    if home := os.environ.get("TRITON_HOME"):
        folder = Path(home) / ".triton" / "cache"
    else:
        folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or cache_folder()) / "triton"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["TRITON_CACHE_DIR"] = str(folder)
