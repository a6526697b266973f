"""Settings of the whole process: held by those who agree on them, and set back by the last."""

import json
import platform
import subprocess
import sys
import threading

import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.machine import Agreed, Machine, matmuls, torch_threads
from mixerscope.training import train_cohort
from tests.conftest import tiny_spec


@pytest.fixture(autouse=True)
def before():
    """A setting that nothing here asks for, so that setting back shows; and a check that it was."""
    found = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    left = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(found)
    assert left == "medium"


class Elsewhere:
    """Trains or waits in a thread of its own until it is let go."""

    def __init__(self, precision: str) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work, args=(precision,))

    def _work(self, precision: str) -> None:
        def wait(done: int, members: list) -> None:
            self.inside.set()
            assert self.go.wait(30)

        train_cohort([tiny_spec("attention", steps=1, precision=precision)], wait)

    def __enter__(self) -> "Elsewhere":
        self.thread.start()
        assert self.inside.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.mark.parametrize(("precision", "setting"), [("float32", "highest"), ("tf32", "high"), ("bfloat16", "highest")])
def test_products_are_computed_as_the_precision_says(precision: str, setting: str):
    with matmuls(precision):
        assert torch.get_float32_matmul_precision() == setting
        with matmuls(precision):
            pass
        assert torch.get_float32_matmul_precision() == setting, "set back while someone still holds it"


def test_it_is_set_back_after_an_error():
    with pytest.raises(ZeroDivisionError), matmuls("tf32"):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == "medium"
    with matmuls("float32"):  # nobody holds the other one any more
        assert torch.get_float32_matmul_precision() == "highest"


def test_it_is_set_back_after_a_training_that_failed():
    def fail(done: int, members: list) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_cohort([tiny_spec("attention", steps=1, precision="tf32")], fail)
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.parametrize(("there", "here"), [("tf32", "float32"), ("float32", "tf32"), ("tf32", "bfloat16")])
def test_two_trainings_at_once_must_agree(there: str, here: str):
    spec = tiny_spec("attention", steps=1, precision=here)
    with Elsewhere(there):
        held = torch.get_float32_matmul_precision()
        with pytest.raises(UserError, match="must agree on tf32 or not"):
            train_cohort([spec])
        assert torch.get_float32_matmul_precision() == held, "the one that came first was disturbed"
    assert torch.get_float32_matmul_precision() == "medium"
    assert train_cohort([spec])[0].outcome == "finished"


def test_two_trainings_that_agree_run_at_once_and_the_last_sets_back():
    with Elsewhere("float32") as other:
        assert train_cohort([tiny_spec("attention", steps=1, precision="bfloat16")])[0].outcome == "finished"
        assert torch.get_float32_matmul_precision() == "highest"
        with matmuls("float32"):
            other.go.set()
            other.thread.join(30)
            assert torch.get_float32_matmul_precision() == "highest", "the first to come is not the last to go"


def test_any_setting_can_be_agreed_on():
    written = ["before"]
    setting = Agreed("the weather", lambda: written[-1], written.append)
    with setting.held("rain"), setting.held("rain"), pytest.raises(UserError, match="agree on the weather"):
        setting.held("sun").__enter__()
    assert written == ["before", "rain", "before"]


def test_torch_threads_are_set_back():
    found = torch.get_num_threads()
    with torch_threads(found + 1):
        assert torch.get_num_threads() == found + 1
    assert torch.get_num_threads() == found


def test_a_machine_that_makes_no_sense_is_refused():
    with pytest.raises(UserError, match="threads = 0 should be at least 1"):
        Machine(threads=0)


def test_what_is_compiled_for_a_gpu_is_not_called_repeatable(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    machines = [Machine(), Machine(compile=True), Machine("cuda"), Machine("cuda", compile=True)]
    assert [machine.repeatable for machine in machines] == [True, True, True, False]


def test_room_for_a_cohort_is_more_than_nothing():
    with pytest.raises(UserError, match="memory_gib = 0 should be more than 0"):
        Machine(memory_gib=0.0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such limit")
def test_freed_memory_is_kept_for_the_next_tensor():
    # In a process of its own: what others have freed there moves the limit too.
    code = (
        "import resource, torch\n"
        "from mixerscope.machine import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "def pages():\n"
        "    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    ((torch.ones(1 << 20) + 1) * 2).exp().sum()\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start\n"
        "print([pages() for _ in range(30)])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    pages = json.loads(ran.stdout)
    assert sum(pages[10:]) < pages[0]
