"""What mutated files and words are given to: the command line, as far as it goes without training.

Each case has a number, from which everything about it follows: `run_case` does one, and says what is wrong with how it
went. `python -m tests.fuzz.cases START COUNT` does many under a limit of memory, and is what `make test-slow` calls.
"""

import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mixerscope.cli import main
from mixerscope.cli import run as run_verb
from mixerscope.errors import MixerscopeError
from mixerscope.results import load_run
from mixerscope.runs import run
from mixerscope.spec import RunSpec
from mixerscope.store import Seal, sha256_of
from mixerscope.work import main as work
from tests.fuzz.mutations import VALUES, as_bytes, damaged, mutated_text

MOST_SECONDS, MOST_BYTES = 5.0, 2 << 30
"""Of one case: seconds of the CPU, and what it may ask for beside what is there before it."""
SPEC: dict[str, Any] = {
    "version": 2,
    "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4, "num_queries": 1},
    "model": {"architecture": "attention", "width": 8, "layers": 2, "options": {"heads": 1}, "init": "small_model"},
    "train": {
        "steps": 2,
        "batch_size": 4,
        "documents": 8,
        "lr": 1e-3,
        "schedule": "cosine",
        "eval_every": 1,
        "eval_documents": 8,
        "precision": "float32",
    },
    "seed": 0,
    "data_seed": 0,
    "stages": {"patch": {"documents": 8, "slots": ["key"]}, "judge": {"rules": {"carries": 0.8}}},
}
SWEEP: dict[str, Any] = {
    "base": SPEC,
    "vary": {"model.architecture": ["attention", "mamba"], "train.lr": [1e-3, 1e-2], "seed": [0, 1]},
    "note": "",
}
PATHS = (
    "seed",
    "data_seed",
    "task",
    "task.name",
    "task.num_pairs",
    "task.num_keys",
    "task.preset",
    "model",
    "model.architecture",
    "model.width",
    "model.layers",
    "model.options",
    "model.options.heads",
    "model.max_length",
    "train",
    "train.steps",
    "train.lr",
    "train.documents",
    "train.batch_size",
    "train.objective",
    "train.precision",
    "train.stop_at_accuracy",
    "stages",
    "stages.patch",
    "stages.patch.slots",
    "stages.patch.documents",
    "stages.patch.edits",
    "stages.patch.sites",
    "stages.judge.rules",
    "stages.emergence.looks",
    "stages.lengths",
    "stages.probes",
    "version",
)


class Made(Exception):
    """The input was accepted: what would follow is training."""


def make_finished(folder: Path) -> Path:
    """A finished run, whose files are then damaged in copies."""
    stages = {"patch": {"documents": 8}, "judge": {}}
    return run(RunSpec.model_validate({**SPEC, "stages": stages}), folder, progress=False).folder.path


def run_case(number: int, here: Path, finished: Path) -> str:
    """Does one case in an empty folder; gives what is wrong, or nothing."""
    rng = random.Random(number)
    kind = (_spec, _setting, _sweep, _files)[number % 4]
    said, out = io.StringIO(), io.StringIO()
    started = time.process_time()
    try:
        with redirect_stderr(said), redirect_stdout(out), patch.object(run_verb, "finished_run", _accept):
            wrong = kind(rng, here, finished)
    except Made:
        wrong = ""
    except MixerscopeError as error:  # from what people call in Python
        wrong = "" if str(error) else "an error without a word"
    except BaseException:  # noqa: BLE001 - that is what is looked for
        wrong = traceback.format_exc()
    seconds = time.process_time() - started
    if seconds > MOST_SECONDS:
        wrong += f"it took {seconds:.1f} s"
    if "Traceback" in said.getvalue():
        wrong += said.getvalue()
    return wrong


def _accept(*arguments: object, **settings: object) -> None:
    raise Made


def _called(words: Sequence[str], here: Path, command: Callable[[Sequence[str]], int] | None = None) -> str:
    """A command: fine, failed, or refused, and then in one line and with nothing written."""
    before = sorted(here.rglob("*"))
    said = sys.stderr
    assert isinstance(said, io.StringIO)
    try:
        code = (command or main)(words)
    except SystemExit as ended:
        return f"`{words}` ended the process with {ended.code}"
    if code not in (0, 1, 2):
        return f"`{words}` gave {code}"
    if code == 2 and len(said.getvalue().splitlines()) != 1:
        return f"`{words}` was refused in other than one line: {said.getvalue()}"
    if code == 2 and sorted(here.rglob("*")) != before:
        return f"`{words}` was refused and wrote something"
    return ""


def _spec(rng: random.Random, here: Path, finished: Path) -> str:
    (here / "it.json").write_bytes(as_bytes(SPEC, rng))
    return _called(["run", str(here / "it.json"), "--out", str(here / "runs")], here)


def _setting(rng: random.Random, here: Path, finished: Path) -> str:
    (here / "it.json").write_text(json.dumps(SPEC))
    words: list[str] = []
    for _ in range(rng.choice((1, 1, 2))):
        path = rng.choice(PATHS)
        if rng.random() < 0.1:
            path = mutated_text(path, rng)
        value = json.dumps(rng.choice(VALUES))
        value = mutated_text(value, rng) if rng.random() < 0.2 else value
        words += ["--set", f"{path}={value}"]
    return _called(["run", str(here / "it.json"), "--out", str(here / "runs"), *words], here)


def _sweep(rng: random.Random, here: Path, finished: Path) -> str:
    if rng.random() < 0.2:  # as a worker elsewhere is given it
        from mixerscope.sweep.items import Item

        whole = Item(call="abc", root=str(here / "runs"), runs=[SPEC])
        (here / "it.json").write_bytes(as_bytes(whole.model_dump(mode="json"), rng))
        with patch("mixerscope.sweep.execute.execute", _accept):
            return _called([str(here / "it.json")], here, work)
    (here / "it.json").write_bytes(as_bytes(SWEEP, rng))
    return _called(["sweep", str(here / "it.json"), "--out", str(here / "runs"), "--dry-run"], here)


def _files(rng: random.Random, here: Path, finished: Path) -> str:
    """A finished run of which one file is changed: often with a seal that agrees, so that what is in it is read."""
    folder = here / "runs" / finished.name
    shutil.copytree(finished, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "timing.json")
    files += [path for path in files if path.name == Seal.file] * 3
    path = rng.choice(files)
    data = path.read_bytes()
    path.write_bytes(as_bytes(json.loads(data), rng) if path.suffix == ".json" else damaged(data, rng))
    if path.name != Seal.file and rng.random() < 0.7:
        seal = json.loads((path.parent / Seal.file).read_text())
        seal["files"][path.name] = sha256_of(path.read_bytes())
        (path.parent / Seal.file).write_text(json.dumps(seal))
    root, words = str(here / "runs"), rng.random()
    if words < 0.35:
        return _called(["verify", root], here)
    if words < 0.6:
        return _called(["ls", "runs", "--out", root], here)
    if words < 0.7:
        return _called(["status", root], here)
    if words < 0.72:
        return _called(["report", root, "--out", str(here / "page.html")], here)
    if words < 0.8:
        return _called(["judge", root], here)
    return _looked_at(folder)


def _looked_at(folder: Path) -> str:
    """As people do in Python."""
    result = load_run(folder)
    _ = result.record, result.status, result.curve, result.provenance, result.stages
    _ = result.verdicts, result.scores, result.self_test, list(result.effects.rows()), result.spec
    result.model()
    return ""


def limited() -> None:
    """From here on this process cannot ask for more than a case may have beside what is there."""
    asked = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (asked + MOST_BYTES, resource.RLIM_INFINITY))


def many(start: int, count: int, bounded: bool = False) -> dict[int, str]:
    """Does so many cases, each with no more memory than it may have, and gives what went wrong."""
    wrong: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        finished = make_finished(Path(temporary) / "finished")
        for number in range(start, start + count):
            here = Path(temporary) / str(number)
            here.mkdir()
            if bounded:
                limited()
            if complaint := run_case(number, here, finished):
                wrong[number] = complaint
            shutil.rmtree(here)
    return wrong


if __name__ == "__main__":
    many(0, 40)  # so that everything is imported
    found = many(int(sys.argv[1]), int(sys.argv[2]), bounded=True)
    for number, complaint in found.items():
        sys.stdout.write(f"case {number}: {complaint}\n")
    sys.stdout.write(f"{sys.argv[2]} cases, {len(found)} went wrong\n")
    sys.exit(1 if found else 0)
