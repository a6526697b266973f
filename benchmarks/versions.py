"""Workers that wait for work, each in a process of its own: of this version of Mixerscope, or of an earlier one."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent.parent


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A temporary folder with the source of an earlier commit."""
    ran = subprocess.run(["git", "archive", commit, "src"], cwd=HERE, capture_output=True)
    if ran.returncode:
        raise SystemExit(f"commit {commit} is not in this clone; fetch all of its history first: git fetch --unshallow")
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(ran.stdout)) as source:
            source.extractall(folder, filter="data")
        yield Path(folder)


class Worker:
    """`python -m <module>` on the source below a folder: one JSON object in for each line, one out."""

    def __init__(self, module: str, tree: Path = HERE) -> None:
        path = os.pathsep.join([str(tree / "src"), str(HERE)])
        self.source = tree / "src" / "mixerscope"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; meanwhile all other workers wait."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"source": str(self.source), **request}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the worker on {self.source} ended; what it says is above")
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
