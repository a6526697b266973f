"""A sweep as tasks of Ray, on whatever nodes a cluster has: each makes what the others leave of it.

A task whose node is lost is started again by Ray; all of them end with the call.
"""

import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from mixerscope.errors import UserError
from mixerscope.machine import Machine
from mixerscope.signals import refuse_signals
from mixerscope.sweep.executors.base import Executor, Following, logs_of, remove_item, remove_logs
from mixerscope.sweep.executors.knocking import knock
from mixerscope.sweep.items import Item
from mixerscope.sweep.listening import Listener, SweepOutcome
from mixerscope.sweep.plan import Plan

STARTS_WITHIN, DOUBTED = 60.0, 4.0
"""Seconds for a cluster that is there, or that Ray starts on this machine, and where no head said that it is alive."""
LOOKED_EVERY = 2.0
MOST = 1000
"""Tasks: more than a cluster has room for wait in Ray's queue."""


@dataclass(frozen=True)
class Ray(Executor):
    """On the cluster at an address; without one on that of this machine."""

    address: str
    machine: Machine
    own_lines = True

    @classmethod
    def of(cls, address: str, machine: Machine) -> Self:
        """Refuses an address where nobody answers, while nothing is written."""
        if importlib.util.find_spec("ray") is None:
            raise UserError("Ray is not installed here: pip install 'mixerscope[ray]', or use --on local")
        known = address in ("", "auto") or knock(address)
        found = cls(address, machine)
        with found._driver({"tasks": 0, "what": {}}) as driver:
            found._connect(driver, STARTS_WITHIN if known else DOUBTED)
        return found

    def execute(self, plan: Plan, item: Item, listener: Listener) -> SweepOutcome:
        listener.sweep_started(plan)
        item = item.model_copy(update={"leave": True})
        root, logs = Path(item.root), logs_of(item.root, item.call)
        following = Following(plan, root, item.call, listener)
        path = item.write()
        logs.mkdir(parents=True, exist_ok=True)
        what = {"item": str(path), "root": item.root, "logs": str(logs), "folder": os.getcwd()}
        try:
            with self._driver({"tasks": min(len(plan.cohorts), MOST), "what": what}) as driver:
                there = self._connect(driver)
                size = f"{there['nodes']} nodes, {there['CPU']:g} CPUs, {there['GPU']:g} GPUs"
                listener.remark(f"{min(len(plan.cohorts), MOST)} tasks for Ray: {size}; logs are in {logs}")
                try:
                    self._wait(driver, following)
                finally:
                    remove_item(path)  # which ends those who are still at it
                    following.wait_for_others()
        except UserError:  # the cluster has gone since it was asked: nothing was begun
            remove_logs(logs)
            raise
        finally:
            remove_item(path)
            with suppress(OSError):  # of a root that was made for it, nothing is left then
                root.rmdir()
        outcome = following.outcome()
        if outcome.left or outcome.failed:
            listener.remark(f"logs of the tasks are in {logs}")
        else:
            remove_logs(logs)
        return outcome

    def _connect(self, driver: "_Driver", seconds: float = STARTS_WITHIN) -> dict[str, Any]:
        """What the cluster has, asked within so many seconds, importing Ray included."""
        found = driver.next(seconds)
        if found is None or found["kind"] != "connected":
            driver.process.kill()  # nothing was begun, and Ray would ask on
            where = self.address or "this machine"
            said = "" if not driver.said else f" ({driver.said[-1][:300]})"
            raise UserError(f"no Ray cluster answers at {where}{said}; `ray start --head` starts one") from None
        return found

    def _wait(self, driver: "_Driver", following: Following) -> None:
        looked = 0.0
        while True:
            answer = driver.next(0.2)
            refuse_signals()
            if answer is not None and answer["kind"] == "over":
                if driver.process.wait() != 0:
                    where = f" at {self.address}" if self.address else ""
                    following.listener.remark(f"the Ray cluster{where} is lost; what its tasks kept goes on anywhere")
                return
            if answer is not None and answer["kind"] == "lost":
                following.listener.remark(f"a task was lost: {answer['reason']}")
            if time.monotonic() - looked > LOOKED_EVERY:
                looked = time.monotonic()
                following.look()
                if not following.left():
                    return

    @contextmanager
    def _driver(self, asked: dict[str, Any]) -> "Iterator[_Driver]":
        needs = {"cpus": self.machine.threads, "gpus": int(self.machine.device == "cuda")}
        driver = _Driver({"address": self.address, **needs, **asked})
        try:
            yield driver
        finally:
            driver.end()


class _Driver:
    """The process that talks to Ray."""

    def __init__(self, asked: dict[str, Any]) -> None:
        # In a session of its own: a signal to all is for this process, which ends the other.
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "mixerscope.sweep.executors.ray_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.said: list[str] = []
        """On stderr."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
        for target, stream in ((self._answer, self.process.stdout), (self._complain, self.process.stderr)):
            threading.Thread(target=target, args=(stream,), daemon=True).start()

    def _answer(self, stream: IO[str]) -> None:
        for line in stream:
            self.answers.put(json.loads(line))
        self.answers.put({"kind": "over"})

    def _complain(self, stream: IO[str]) -> None:
        for line in stream:
            if line.strip():
                self.said = [*self.said[-20:], line.strip()]

    def next(self, seconds: float) -> dict[str, Any] | None:
        """What it says next, within so many seconds."""
        with suppress(queue.Empty):
            return self.answers.get(timeout=seconds)
        return None

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
