"""What was found out about kernels on this machine, kept in a small file in the user's cache directory.

Without a file that can be read and written it is found out anew by each process: that costs time and nothing else.
"""

import json
import os
import tempfile
from pathlib import Path


def recall(label: str) -> str | None:
    """The verdict that was kept under `label`, if there is one."""
    return _read().get(label)


def remember(label: str, verdict: str) -> None:
    """Keeps a verdict for other processes."""
    path = _path()
    content = json.dumps({**_read(), label: verdict}, indent=1, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        return


def _read() -> dict[str, str]:
    try:
        content = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {label: verdict for label, verdict in content.items() if isinstance(verdict, str)}


def _path() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "mixerscope" / "kernels.json"
