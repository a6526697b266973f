"""Where kernels agreed with plain bodies on this machine, a small file each: many processes find that out at once.

Where nothing can be read or written it is found out anew by each process: that costs time and nothing else.
"""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from mixerscope.cache import cache_folder


def recall(label: str) -> str | None:
    """What was kept under `label`, if anything: `kernel` where it agreed, else `plain` and why."""
    try:
        content = json.loads(_path(label).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("kernel") != label:
        return None
    agreement = content.get("agreement")
    return agreement if isinstance(agreement, str) else None


def remember(label: str, agreement: str) -> None:
    """Keeps for other processes whether the kernel agreed."""
    path = _path(label)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump({"kernel": label, "agreement": agreement}, file, indent=1)
        os.replace(file.name, path)


def _path(label: str) -> Path:
    return cache_folder() / "agreements" / f"{hashlib.sha256(label.encode()).hexdigest()[:32]}.json"
