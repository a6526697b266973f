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
class Diagnosis:
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
    diagnoses = [*_packages(), *_machine(), _writable(out), _self_check(), *map(_backend, OPTIONAL)]
    table = plain_table("", "", "")
    for diagnosis in diagnoses:
        table.add_row(diagnosis.what, Text(diagnosis.state, STYLES[diagnosis.state]), Text(diagnosis.detail))
    results().print(table)
    broken = [diagnosis.what for diagnosis in diagnoses if diagnosis.required and diagnosis.state != "ok"]
    results().print(f"broken: {', '.join(broken)}" if broken else "all that is required works", markup=False)
    return 1 if broken else 0


def _packages() -> Iterator[Diagnosis]:
    yield Diagnosis("python", "ok", platform.python_version())
    for name in ("mixerscope", *REQUIRED):
        try:
            yield Diagnosis(name, "ok", version(name))
        except PackageNotFoundError:
            yield Diagnosis(name, "broken", "not installed")


def _machine() -> Iterator[Diagnosis]:
    import torch

    yield Diagnosis("threads", "ok", f"torch uses {torch.get_num_threads()} of {os.cpu_count()}")
    if torch.cuda.is_available():
        yield Diagnosis("device", "ok", f"CUDA: {torch.cuda.get_device_name()}")
    else:
        yield Diagnosis("device", "ok", "CPU (no CUDA device)")


def _writable(folder: Path) -> Diagnosis:
    """Tries the nearest folder that exists, so that asking leaves nothing behind."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Diagnosis("runs folder", "ok", f"{folder} can be written")
    except OSError as error:
        return Diagnosis("runs folder", "broken", f"{folder} cannot be written: {existing}: {error.strerror}")


def _self_check() -> Diagnosis:
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
        return Diagnosis("self-check", "broken", str(error))
    return Diagnosis("self-check", "ok", f"{len(tested.sites)} sites of a tiny model: identity patches change no bit")


def _backend(name: str) -> Diagnosis:
    """Imported in a process of its own: a broken native library may take the process with it."""
    if importlib.util.find_spec(name) is None:
        return Diagnosis(name, "missing", "optional", required=False)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", f"import {name}; print(getattr({name}, '__version__', ''))"],
            capture_output=True,
            text=True,
            check=False,
            timeout=IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Diagnosis(name, "broken", f"importing it takes more than {IMPORT_SECONDS} s", required=False)
    if tried.returncode == 0:
        return Diagnosis(name, "usable", tried.stdout.strip(), required=False)
    reason = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
    return Diagnosis(name, "broken", reason, required=False)
