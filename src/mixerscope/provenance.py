"""What produced a result: versions, code, machine. No time and no path, so that equal runs give equal bytes."""

import json
import platform
import subprocess
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from mixerscope.artifacts import Provenance
from mixerscope.machine import Machine
from mixerscope.spec import RunSpec, outside_code

PACKAGES = ("mixerscope", "torch", "numpy", "pydantic", "safetensors")


def provenance(
    spec: RunSpec, machine: Machine, precision: str, documents: str, stack: int, used: dict[str, str]
) -> Provenance:
    """What made a result of this run: `documents` is the hash of what was read, `used` what operators ran as."""
    return Provenance(
        packages={name: _version(name) for name in PACKAGES},
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        device="cpu" if machine.device == "cpu" else torch.cuda.get_device_name(machine.device),
        threads=machine.threads,
        kernels=machine.kernels,
        compiled=machine.compile,
        git=_git(),
        precision=precision,
        repeatable=machine.repeatable,
        data_sha256=documents,
        stack=stack,
        kernels_used=used if machine.device == "cuda" else {},
        code=outside_code(spec),
    )


@cache
def own_source() -> str:
    """A hash of all of Mixerscope's own code: two processes with the same one compute the same."""
    root = Path(__file__).parent
    files = {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in root.rglob("*.py")}
    return sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


@cache
def _git() -> dict[str, Any]:
    """Commit of the code and whether it was changed since; empty for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return {}

    def ask(*words: str) -> str:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout

    return {"commit": ask("rev-parse", "HEAD").strip(), "changed": bool(ask("status", "--porcelain", "--", "src"))}
