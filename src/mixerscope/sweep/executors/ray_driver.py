"""The part of `--on ray` that talks to Ray, in a process of its own: one that can be ended when nobody answers.

It is told in one JSON object on standard input what to start, and says in JSON lines on standard output how that goes.
Ray is given JSON strings and gives back paths.
"""

import importlib
import json
import logging
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mixerscope.signals import ended_when, parent_gone

SHOWN_WITHIN = 60.0
"""Seconds after which a shared file system shows what another machine wrote."""
RETRIES = 3
"""Of a task whose node or worker was lost; what fails for its own reason is not tried again."""
LEFT_TO_OTHERS = (0, 1)
"""Exit codes of a process that did what it could: what failed is in the table."""


def made(asked: str) -> str:
    """Runs in a worker of Ray: has an item made, and gives the root that its results are below."""
    what = json.loads(asked)
    item, log = Path(what["item"]), Path(what["logs"]) / f"{platform.node()}-{os.getpid()}.log"
    until = time.monotonic() + SHOWN_WITHIN
    while not item.exists():
        if time.monotonic() > until:
            raise FileNotFoundError(f"{item} is not seen from {platform.node()}: all nodes must share that folder")
        time.sleep(0.5)
    words = [sys.executable, "-m", "mixerscope.work", str(item), "--with-parent"]
    folder = what["folder"] if Path(what["folder"]).is_dir() else None
    with log.open("ab") as file:
        code = subprocess.run(words, cwd=folder, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=False)
    if code.returncode not in LEFT_TO_OTHERS:
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise RuntimeError(f"ended with {code.returncode}: {said[-1] if said else 'it said nothing'}")
    return what["root"]


def main() -> None:
    """Starts so many tasks, and says of each how it ended."""
    asked = json.loads(sys.stdin.readline())
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed must not look like an answer

    def say(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    ray: Any = importlib.import_module("ray")
    ray.init(address=asked["address"] or None, log_to_driver=False, logging_level=logging.ERROR)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    say(kind="connected", nodes=len(nodes), **{key: ray.cluster_resources().get(key, 0) for key in ("CPU", "GPU")})
    needs = {"num_cpus": asked["cpus"], "num_gpus": asked["gpus"], "max_retries": RETRIES}
    task = ray.remote(**needs)(made)
    waiting = [task.remote(json.dumps(asked["what"])) for _ in range(asked["tasks"])]
    while waiting:
        ended, waiting = ray.wait(waiting, num_returns=1)
        try:
            say(kind="ended", path=ray.get(ended[0]))
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            say(kind="lost", reason=" ".join(str(cause).split())[:500])
    ray.shutdown()


if __name__ == "__main__":
    with ended_when(parent_gone()):
        main()
