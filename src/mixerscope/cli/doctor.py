"""`mixerscope doctor`: what works on this machine."""

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.text import Text

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import MixerscopeError

REQUIRED = (
    *("torch", "numpy", "pydantic", "safetensors", "cyclopts", "rich"),
    *("polars", "altair", "vl-convert-python", "jinja2"),
)
OPTIONAL = ("triton", "transformers", "pyvene", "nnsight", "ray")
IMPORT_SECONDS = 60
STYLES = {"ok": "green", "usable": "green", "missing": "dim", "broken": "red"}


@dataclass(frozen=True)
class Finding:
    what: str
    state: Literal["ok", "usable", "missing", "broken"]
    detail: str
    required: bool = True


def doctor(*, out: Path = Path("runs")) -> int:
    """What works on this machine and what does not.

    Parameters
    ----------
    out
        The folder that runs will be written to.
    """
    findings = [*_packages(), *_machine(), _writable(out), _self_check(), *map(_backend, OPTIONAL)]
    table = plain_table("", "", "")
    for finding in findings:
        table.add_row(finding.what, Text(finding.state, STYLES[finding.state]), Text(finding.detail))
    results().print(table)
    broken = [finding.what for finding in findings if finding.required and finding.state != "ok"]
    results().print(f"broken: {', '.join(broken)}" if broken else "all that is required works", markup=False)
    return 1 if broken else 0


def _packages() -> Iterator[Finding]:
    yield Finding("python", "ok", platform.python_version())
    for name in ("mixerscope", *REQUIRED):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "broken", "not installed")


def _machine() -> Iterator[Finding]:
    import torch

    yield Finding("threads", "ok", f"torch uses {torch.get_num_threads()} of {os.cpu_count()}")
    if torch.cuda.is_available():
        yield Finding("device", "ok", f"CUDA: {torch.cuda.get_device_name()}")
    else:
        yield Finding("device", "ok", "CPU (no CUDA device)")


def _writable(folder: Path) -> Finding:
    """Tries the nearest folder that exists, so that asking leaves nothing behind."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Finding("runs folder", "ok", f"{folder} can be written")
    except OSError as error:
        return Finding("runs folder", "broken", f"{folder} cannot be written: {existing}: {error.strerror}")


def _self_check() -> Finding:
    """A tiny model through the checks that precede every grid: edits take effect, and writing back changes no bit."""
    from mixerscope.interventions import PairSettings, make_pairs
    from mixerscope.interventions.plan import editable_sites
    from mixerscope.interventions.selftest import self_test
    from mixerscope.model import build_model
    from mixerscope.spec import ModelSpec
    from mixerscope.tasks import AR

    task = AR(num_pairs=2, num_keys=4, num_values=4)
    try:
        pairs = make_pairs(task, PairSettings(documents=4), 0)
        model = build_model(ModelSpec(architecture="mamba", width=8), task.vocab_size, 0).eval()
        tested = self_test(model, pairs, editable_sites(model))
    except (MixerscopeError, RuntimeError) as error:
        return Finding("self-check", "broken", str(error))
    return Finding("self-check", "ok", f"{len(tested.sites)} sites of a tiny model: identity patches change no bit")


def _backend(name: str) -> Finding:
    """Imported in a process of its own: a broken native library may take the process with it."""
    if importlib.util.find_spec(name) is None:
        return Finding(name, "missing", "optional", required=False)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", f"import {name}; print(getattr({name}, '__version__', ''))"],
            capture_output=True,
            text=True,
            check=False,
            timeout=IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Finding(name, "broken", f"importing it takes more than {IMPORT_SECONDS} s", required=False)
    if tried.returncode == 0:
        return Finding(name, "usable", tried.stdout.strip(), required=False)
    reason = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
    return Finding(name, "broken", reason, required=False)
