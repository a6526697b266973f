"""Which body an operator runs: a kernel that is wrong in any way is never used."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from mixerscope import kernels
from mixerscope.kernels import choice
from tests.kernels import stand_ins
from tests.kernels.stand_ins import never, plain


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def chosen(x):
    return kernels.body("op", (x,), plain)


def test_a_kernel_that_agrees_is_used(kernel):
    kernel("right")
    assert chosen(numbers(3, 4)) is stand_ins.right
    assert kernels.used() == {"op": "kernel"}


def test_a_kernel_that_is_slower_is_not_asked(kernel):
    kernel("raising")
    assert kernels.body("op", (numbers(3, 4),), plain, faster="wide") is plain
    assert kernels.used() == {"op": "plain: wide"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("a_little_off", "output 0 of the kernel has a relative error of 1.0e-04"),
        ("not_a_number", "output 0 of the kernel has a relative error of nan"),
        ("not_zero", "output 1 of the kernel has a relative error of 3.5e-04"),
        ("another_type", "output 0 of the kernel is torch.float64"),
        ("raising", "RuntimeError: out of registers$"),
        ("absent", "AttributeError: .* 'absent'"),
    ],
)
def test_a_kernel_that_does_not_is_refused_with_one_warning(kernel, wrong, reason):
    kernel(wrong)
    with pytest.warns(RuntimeWarning, match=f"op on interpreter runs without its kernel; plain: {reason}"):
        assert chosen(numbers(3, 4)) is plain
    # A second warning would be an error here.
    assert chosen(numbers(3, 4, seed=1)) is plain
    assert chosen(numbers(3, 5)) is plain
    assert kernels.used()["op"].startswith("plain: ")


def test_bfloat16_has_a_tolerance_of_its_own_and_float64_stays_plain(kernel):
    kernel("a_little_off")
    assert chosen(numbers(3, 4).bfloat16()) is stand_ins.a_little_off
    assert chosen(numbers(3, 4).double()) is plain
    assert kernels.used() == {"op": "kernel; plain: float64"}


def test_an_operator_that_was_asked_for_less_has_a_tolerance_of_its_own(kernel):
    kernel("a_little_off")
    assert kernels.body("op", (numbers(3, 4),), plain, tolerance=1e-3) is stand_ins.a_little_off
    with pytest.warns(RuntimeWarning, match="relative error"):
        assert chosen(numbers(3, 4)) is plain, "and what was found with it does not hold without"
    kernel("a_little_off")
    with pytest.warns(RuntimeWarning, match="relative error"):
        assert chosen(numbers(3, 4)) is plain


def test_an_error_that_the_plain_body_has_too_is_no_fault_of_the_kernel(kernel):
    kernel("what_is_left")
    x = numbers(1, 6)
    assert (stand_ins.what_is_left(x) - x).norm() / x.norm() > 1e-3, "few digits are left, whoever computes it"
    assert kernels.body("op", (x,), lambda x: stand_ins.what_is_left(x)) is stand_ins.what_is_left


def test_a_member_that_has_diverged_does_not_hide_the_others(kernel, tmp_path):
    x = numbers(3, 4)
    x[0] = float("nan")
    kernel("right")
    assert chosen(x) is stand_ins.right
    kernel("a_little_off")
    [kept] = (tmp_path / "mixerscope" / "agreements").iterdir()
    kept.unlink()
    with pytest.warns(RuntimeWarning, match="relative error"):
        assert chosen(x) is plain


def test_where_nothing_is_finite_nothing_is_learned(kernel):
    kernel("right")
    with pytest.warns(RuntimeWarning, match="output 0 is finite nowhere"):
        assert chosen(numbers(3, 4) * float("nan")) is plain
    kernel("right")
    assert chosen(numbers(3, 4)) is stand_ins.right


def test_the_agreement_is_kept_for_other_processes(kernel):
    kernel("right")
    chosen(numbers(3, 4))
    kernel("right")
    assert kernels.body("op", (numbers(3, 4),), never) is stand_ins.right
    assert stand_ins.runs == ["right"], "a known kernel is compiled, by running it once, before threads share it"
    with pytest.warns(RuntimeWarning, match="never"):
        assert kernels.body("op", (numbers(3, 5),), never) is never, "other shapes are another question"


def test_a_refusal_is_kept_too(kernel):
    kernel("a_little_off")
    with pytest.warns(RuntimeWarning, match="relative error"):
        chosen(numbers(3, 4))
    kernel("right")  # from the same source file, so the file knows better
    with pytest.warns(RuntimeWarning, match="relative error"):
        assert chosen(numbers(3, 4)) is plain
    assert stand_ins.runs == [], "what is known to be wrong is not run again"


@pytest.mark.parametrize("content", ["{", "[1]", '{"kernel": "another", "agreement": "kernel"}', "\x00"])
def test_a_broken_file_costs_the_file_only(kernel, tmp_path, content):
    kernel("right")
    chosen(numbers(3, 4))
    [path] = (tmp_path / "mixerscope" / "agreements").iterdir()
    sound = path.read_text()
    path.write_text(content)
    kernel("right")
    assert chosen(numbers(3, 4)) is stand_ins.right
    assert path.read_text() == sound
    assert list(path.parent.iterdir()) == [path]


def test_agreements_of_processes_that_find_them_at_once_are_all_kept(tmp_path):
    finding = "import sys; from mixerscope.kernels.agreements import remember; [remember(x, '') for x in sys.argv[1:]]"
    labels = [[f"{process}/{i}" for i in range(30)] for process in range(4)]
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    finders = [subprocess.Popen([sys.executable, "-c", finding, *mine], env=settings) for mine in labels]
    assert [finder.wait(120) for finder in finders] == [0] * 4
    assert len(list((tmp_path / "mixerscope" / "agreements").iterdir())) == 4 * 30


def test_kernels_are_kept_in_one_place_whoever_compiles_first(kernel, tmp_path, monkeypatch):
    for name in ("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    kernel("right")
    chosen(numbers(3, 4))
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "mixerscope" / "triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", "elsewhere")
    kernels.one_triton_cache()
    assert os.environ["TRITON_CACHE_DIR"] == "elsewhere", "unless somebody chose"


@pytest.mark.parametrize(
    ("chosen", "place"), [("TORCHINDUCTOR_CACHE_DIR", "mine/triton"), ("TRITON_HOME", "mine/.triton/cache")]
)
def test_the_place_of_others_is_theirs_to_choose(tmp_path, monkeypatch, chosen, place):
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # so that it is put back
    del os.environ["TRITON_CACHE_DIR"]
    monkeypatch.setenv(chosen, str(tmp_path / "mine"))
    kernels.one_triton_cache()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / place)


def test_a_place_that_cannot_be_written_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    del os.environ["TRITON_CACHE_DIR"]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
    kernels.one_triton_cache()
    assert "TRITON_CACHE_DIR" not in os.environ


def test_a_directory_that_cannot_be_written_costs_nothing(kernel, tmp_path):
    kernel("right")
    (tmp_path / "mixerscope").write_text("a file where the directory should be")
    assert chosen(numbers(3, 4)) is stand_ins.right


def test_plain_can_be_asked_for_and_holds_until_the_last_has_left(kernel):
    kernel("right")
    x = numbers(3, 4)
    first, second = kernels.switched("plain"), kernels.switched("plain")
    with kernels.switched("auto"):
        assert chosen(x) is stand_ins.right
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert chosen(x) is plain
    second.__exit__(None, None, None)
    assert chosen(x) is stand_ins.right
    assert kernels.used() == {"op": "kernel; plain: asked for"}


def test_without_a_gpu_or_without_triton_it_is_plain(kernel, monkeypatch):
    kernel("right")
    monkeypatch.setattr(choice, "_triton_version", lambda: None)
    assert chosen(numbers(3, 4)) is plain
    monkeypatch.delenv("TRITON_INTERPRET")
    assert chosen(numbers(3, 4)) is plain
    assert kernels.used() == {"op": "plain: triton is not installed; plain: not on a GPU"}


def test_nothing_is_compared_while_a_graph_is_captured(kernel, monkeypatch):
    kernel("right")
    chosen(numbers(3, 4))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert chosen(numbers(3, 4)) is stand_ins.right
    with pytest.raises(AssertionError, match="warm up first"):
        chosen(numbers(3, 5))


def test_threads_compare_once(kernel):
    kernel("right")
    x = numbers(3, 4)
    threads = [threading.Thread(target=chosen, args=(x,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stand_ins.runs == ["right"]


def test_importing_the_compute_path_does_not_import_triton():
    code = (
        "import sys\n"
        "import mixerscope.runs, mixerscope.training, mixerscope.interventions, mixerscope.mixers.mamba\n"
        "assert 'triton' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_was_found_holds_only_for_the_same_definition(kernel):
    kernel("right")
    x = numbers(3, 4)
    found = choice._label("op", (x,), plain, None, x.device)
    assert found == choice._label("op", (numbers(3, 4, seed=1),), plain, None, x.device)
    assert found != choice._label("op", (x,), lambda x: plain(x), None, x.device), "written in another file"
