"""Every command in README and docs runs as it stands, or says what it needs; those that do are counted."""

import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from mixerscope.cli import make_app
from tests.commands import KNOWN_NEEDS, PAGES, ROOT, Command, all_commands, commands_of

SCRIPT = Path(sys.executable).parent / "mixerscope"
RUN_AS_THEY_STAND = 35
"""At least so many commands are run by a test."""
MOST_MARKED = 40
"""At most so many need what a test does not have."""


def test_commands_are_run_or_say_what_they_need_and_are_counted():
    needed = Counter(need for command in all_commands() for need in command.needs)
    assert set(needed) <= KNOWN_NEEDS
    run = [command for command in all_commands() if not command.needs]
    assert len(run) >= RUN_AS_THEY_STAND
    assert len(all_commands()) - len(run) <= MOST_MARKED, dict(needed)


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.text)
def test_every_command_can_be_read(command: Command):
    """Also those that need a GPU or a cluster: verbs, options and targets are there."""
    first, *rest = command.words
    if first == "mixerscope":
        make_app().parse_args(rest, print_error=False, exit_on_error=False)
    elif first == "make":
        target = next(word for word in rest if "=" not in word)
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
    elif first in ("python", "python3"):
        assert (
            rest[0] != "-m"
            or (ROOT / "src" / rest[1].replace(".", "/")).with_suffix(".py").exists()
            or (ROOT / rest[1].replace(".", "/")).with_suffix(".py").exists()
            or (ROOT / rest[1].replace(".", "/")).is_dir()
        ), command.text
    elif first == "pip":
        extra = re.search(r"mixerscope\[(\w+)\]", command.text)
        assert extra, command.text
        assert extra[1] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    elif first != "sh":
        assert command.needs, f"nobody knows how to try {command.text!r}"


INLINE = re.compile(r"`mixerscope ([a-z]+)((?: [^`]*)?)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_within_sentences_have_verbs_and_options_that_there_are(page: Path):
    """Their files are anybody's, so they are not run."""
    app = make_app()
    for verb, rest in INLINE.findall(page.read_text(encoding="utf-8")):
        command = app[verb] if app[verb].default_command else app[verb][(rest.split() or ["spec"])[0]]
        known = {name for argument in command.assemble_argument_collection() for name in argument.names}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, f"{verb}{rest}"


MINE = """
import torch
from torch import Tensor

import mixerscope as ms


class Mine(ms.Mixer):
    \"\"\"A running mean with a start.\"\"\"

    def __init__(self, width: int, *, start: float = 0.0) -> None:
        super().__init__()
        self.start = start
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)[:, None]
        return self.out((x.cumsum(1) + self.start) / steps)

    def state_size(self, length: int) -> int:
        return length * self.out.in_features
"""


TINY = """{
    "base": {
        "task": {"name": "ar", "num_pairs": 2, "num_keys": 4, "num_values": 4},
        "model": {"architecture": "attention"},
        "train": {"steps": 4, "batch_size": 4, "documents": 16, "eval_every": 2, "eval_documents": 8},
        "stages": {"patch": {"documents": 8}, "judge": {}}
    },
    "vary": {"model.width": [8, 16, 24]}
}"""
"""A sweep of three cohorts, for the pages that have one called mine.json."""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder as the pages assume it: what is kept of the paper, a mixer, a task, sweeps."""
    for name in ("reproduction", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("results", "__pycache__"))
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "my.py").write_text(MINE)
    (tmp_path / "my_task.py").write_text(_class_of("05_own_task.py", "First", "MyTask"))
    lab = tmp_path / "my_lab"
    lab.mkdir()
    (lab / "__init__.py").write_text("")
    (lab / "mixer.py").write_text(MINE.replace("Mine", "MyMixer"))
    (tmp_path / "mine.json").write_text(TINY)
    (lab / "sweeps.py").write_text(
        f"import mixerscope as ms\n\n\ndef widths():\n    return ms.Sweep.model_validate({TINY})\n"
    )
    subprocess.run([SCRIPT, "sweep", "mine.json", "--out", "runs/mine"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def _class_of(example: str, name: str, renamed: str) -> str:
    """An example up to what it does when it is run, under the name that the docs use."""
    text = (ROOT / "examples" / example).read_text().replace(name, renamed)
    return re.split(r"^(?:if __name__|spec = |result = |print\(|pairs = )", text, maxsplit=1, flags=re.M)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(not c.needs for c in commands_of(p))], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_run_in_its_order(page: Path, desk: Path):
    for command in commands_of(page):
        if command.needs:
            continue
        first, *rest = command.words
        if first == "make":
            subprocess.run(["make", "--dry-run", *rest], cwd=ROOT, check=True, capture_output=True)
        elif first == "pip":
            continue  # what it installs is read above; where the tests run there may be no network
        elif rest[0] == "serve":
            _serves([str(SCRIPT), *rest], desk)
        else:
            words = [{"mixerscope": str(SCRIPT), "sh": "sh"}.get(first, sys.executable), *rest]
            ran = subprocess.run(words, cwd=desk, capture_output=True, text=True)
            assert ran.returncode == 0, f"{command.text}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
            if "--dry-run" in rest:
                (desk / "mine.json").write_text(TINY)  # a page's own sweep was read; what is made is a tiny one


def _serves(words: list[str], folder: Path) -> None:
    """Says where it serves, and ends when it is told to."""
    server = subprocess.Popen(
        [*words, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        deadline = time.monotonic() + 60
        while "http://127.0.0.1:" not in (line := server.stdout.readline()):
            assert line, "the server ended without an address"
            assert time.monotonic() < deadline
    finally:
        server.terminate()
        server.wait(30)


def test_the_mark_of_a_command_is_read(tmp_path: Path):
    page = tmp_path / "page.md"
    marked = "<!-- needs: gpu -->\n```sh\nmixerscope ls  # x\n```\n"
    page.write_text(marked + "\n```sh\nmixerscope ls\nmixerscope show mamba  # needs: cluster\n```\n")
    assert [set(command.needs) for command in commands_of(page)] == [{"gpu"}, set(), {"cluster"}]
