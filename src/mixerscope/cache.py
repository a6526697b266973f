"""Where this package keeps what it found out or compiled on this machine: the user's cache directory."""

import os
from pathlib import Path


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "mixerscope"
