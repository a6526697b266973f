"""Compiled training: which sums are cut, that this changes no number, and that a compiled stack keeps its members."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from mixerscope import kernels
from mixerscope.kernels.precision import exact_products
from mixerscope.machine import MATMUL_PRECISION, Machine
from mixerscope.training import compile_cohort, compiling, train_cohort, trainer
from mixerscope.training import product as products
from mixerscope.training.compiling import BetterProducts, number_of_parts
from mixerscope.training.stack import Stack
from tests.conftest import tiny_spec

aten = torch.ops.aten
COMPILED = Machine(compile=True)


@pytest.mark.parametrize(
    ("left", "right", "parts"),
    [
        # Gradients of weights in seven models of width 64, over 32 documents of 35 tokens.
        ((7, 192, 1120), (7, 1120, 64), 7),
        ((7, 256, 1120), (7, 1120, 64), 5),
        ((7, 64, 1120), (7, 1120, 64), 14),  # 20 parts would fill the processors, but be shorter than pays
        ((7, 16, 1120), (7, 1120, 16), 14),
        ((21, 192, 1120), (21, 1120, 64), 4),  # with three times the models, 3 would do, if it divided the sum
        # What is large enough or short enough as it is.
        ((7, 768, 1120), (7, 1120, 256), 1),
        ((7, 1120, 64), (7, 64, 192), 1),
        ((7, 64, 508), (7, 508, 64), 1),
        # Lengths that cannot be cut into equal parts at all, or only into parts that fast kernels would refuse.
        ((7, 64, 1123), (7, 1123, 64), 1),
        ((7, 64, 1118), (7, 1118, 64), 1),
    ],
)
def test_a_sum_is_cut_into_the_fewest_parts_that_keep_a_gpu_busy(left, right, parts: int):
    assert number_of_parts(torch.Size(left), torch.Size(right)) == parts


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


class Products(fx.Interpreter):
    """Runs a graph and notes the shapes of its products, and whether their factors lie where the inputs do."""

    def __init__(self, module: fx.GraphModule, inputs: list[Tensor]) -> None:
        super().__init__(module)
        self.shapes: list[tuple[int, ...]] = []
        self.copies = 0
        places = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        self.is_copy = lambda tensor: tensor.untyped_storage().data_ptr() not in places

    def call_function(self, target, args, kwargs):
        if target is aten.bmm.default:
            self.shapes.append(tuple(args[0].shape))
            self.copies += sum(map(self.is_copy, args))
        return super().call_function(target, args, kwargs)


def after_cutting(function, *inputs: Tensor) -> tuple[Tensor, Products]:
    module = make_fx(function, tracing_mode="fake")(*inputs)
    BetterProducts()(module.graph)
    module.graph.lint()
    module.recompile()
    products = Products(module, list(inputs))
    return products.run(*inputs), products


@pytest.mark.parametrize(
    ("models", "terms", "rows", "columns", "parts"), [(2, 512, 24, 8, 8), (1, 640, 8, 16, 10), (7, 560, 192, 64, 7)]
)
def test_a_gradient_of_a_weight_is_cut_and_has_the_same_numbers(
    models: int, terms: int, rows: int, columns: int, parts: int
):
    def gradient(of_output: Tensor, x: Tensor) -> Tensor:
        return aten.bmm(of_output.mT, x) + 1

    inputs = random(models, terms, rows), random(models, terms, columns)
    found, products = after_cutting(gradient, *inputs)
    assert products.shapes == [(models * parts, rows, terms // parts)]
    assert products.copies == 0
    torch.testing.assert_close(found, inputs[0].mT @ inputs[1] + 1, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("which", ["left", "right"])
def test_what_would_have_to_be_copied_is_left_alone(which: str):
    """A row of the left factor, or a column of the right, that lies in one piece: the parts of a sum do not."""
    left = random(2, 24, 512) if which == "left" else random(2, 512, 24).mT
    right = random(2, 8, 512).mT if which == "right" else random(2, 512, 8)
    assert number_of_parts(left.shape, right.shape) > 1
    found, products = after_cutting(lambda a, b: aten.bmm(a, b), left, right)
    assert products.shapes == [(2, 24, 512)]
    torch.testing.assert_close(found, left @ right, rtol=1e-12, atol=1e-12)


def test_only_long_sums_are_cut_and_every_use_of_them_sees_the_result():
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        long = aten.bmm(x.mT, y)
        return aten.bmm(long, long), long * 2

    x, y = random(2, 512, 8), random(2, 512, 8)
    (product, doubled), products = after_cutting(function, x, y)
    assert products.shapes == [(16, 8, 64), (2, 8, 8)]
    torch.testing.assert_close(doubled, 2 * (x.mT @ y), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(product, (x.mT @ y) @ (x.mT @ y), rtol=1e-12, atol=1e-9)


def test_so_are_transposes_whose_pieces_are_asked_for():
    def gradients(x: Tensor, of_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = aten.permute(aten.bmm(x.mT, of_output), [0, 2, 1])
        used = aten.permute(aten.bmm(x.mT, x), [0, 2, 1])
        return aten.slice(asked, 1, 0, 8), aten.slice(asked, 1, 8, 24), aten.slice(used, 1, 0, 4) + 1

    x, of_output = random(2, 48, 8), random(2, 48, 24)
    (first, rest, _), products = after_cutting(gradients, x, of_output)
    assert sorted(products.shapes) == [(2, 8, 48), (2, 24, 48)]
    assert products.copies == 0
    assert first[0].is_contiguous()
    assert rest[0].is_contiguous()
    torch.testing.assert_close(torch.cat([first, rest], 1), of_output.mT @ x, rtol=1e-12, atol=1e-12)


def test_the_transpose_of_a_product_is_the_product_of_transposes_where_nobody_else_asks_for_it():
    def gradients(x: Tensor, of_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked = aten.permute(aten.bmm(x.mT, of_output), [0, 2, 1])
        also_used = aten.permute(aten.bmm(x.mT, x), [0, 2, 1])
        return asked, also_used, also_used + 1

    x, of_output = random(2, 48, 8), random(2, 48, 24)
    (asked, also_used, _), products = after_cutting(gradients, x, of_output)
    assert sorted(products.shapes) == [(2, 8, 48), (2, 24, 48)]
    assert products.copies == 0
    assert asked.is_contiguous()
    assert not also_used.is_contiguous()
    torch.testing.assert_close(asked, of_output.mT @ x, rtol=1e-12, atol=1e-12)


def test_a_product_that_was_turned_is_cut_as_well():
    def gradient(x: Tensor, of_output: Tensor) -> Tensor:
        return aten.permute(aten.bmm(x.mT, of_output), [0, 2, 1])

    x, of_output = random(2, 512, 8), random(2, 512, 24)
    found, products = after_cutting(gradient, x, of_output)
    assert products.shapes == [(16, 24, 64)]
    assert products.copies == 0
    torch.testing.assert_close(found, of_output.mT @ x, rtol=1e-12, atol=1e-12)


def test_products_that_pay_are_handed_over_whole_wherever_their_factors_lie(monkeypatch):
    """And a gradient of a weight still as the product of transposes."""
    monkeypatch.setattr(products, "pays", lambda left, right: left.shape[1] > 8)

    def gradients(x: Tensor, of_output: Tensor) -> tuple[Tensor, Tensor]:
        turned = aten.permute(aten.bmm(x.mT, of_output), [0, 2, 1])
        return turned, aten.bmm(x.mT, x) + 1

    x, of_output = random(2, 512, 8), random(2, 512, 24)
    given = []
    monkeypatch.setattr(products, "body", lambda name, inputs, plain, **_: given.append(inputs) or plain)
    (turned, cut), left_to_the_library = after_cutting(gradients, x, of_output)
    assert left_to_the_library.shapes == [(16, 8, 64)], "the other is too small, and cut as before"
    [(left, right, *how)] = given
    assert how == [True, False, 2]
    assert (left.data_ptr(), right.data_ptr()) == (of_output.data_ptr(), x.data_ptr())
    assert turned.is_contiguous()
    torch.testing.assert_close(turned, of_output.mT @ x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(cut, x.mT @ x + 1, rtol=1e-12, atol=1e-12)


def test_what_was_compiled_for_other_products_is_not_found_again():
    found = set()
    for precision in ("highest", "high"):
        for wanted in ("auto", "plain"):
            with MATMUL_PRECISION.held(precision), kernels.switched(wanted):
                found.add(BetterProducts().uuid())
    assert len(found) == 4


@pytest.fixture
def uncompiled(monkeypatch):
    """All that is done for compiled stacks, without waiting for the compiler; returns how many there were."""
    asked = []
    monkeypatch.setattr(compiling, "compiled", lambda function: asked.append(function) or function)
    return asked


def test_a_compiled_stack_keeps_its_size_and_those_who_leave_harm_no_other(uncompiled, monkeypatch):
    spec = tiny_spec("attention", schedule="constant", warmup=0.0, steps=9)
    specs = [spec.changed(seed=i, train=spec.train.changed(lr=lr)) for i, lr in enumerate((1e-3, 1e300, 1e-2))]
    eager = train_cohort(specs, dtype=torch.float64)
    shown = []
    observer = trainer.Observer((2, 9), lambda step, weights: shown.append((step, sorted(weights))))
    monkeypatch.setattr(Stack, "keep", lambda stack, slots: pytest.fail("a compiled stack was made smaller"))
    members = train_cohort(specs, observer=observer, machine=COMPILED, dtype=torch.float64)
    assert len(uncompiled) == 1
    assert [member.outcome for member in members] == ["finished", "diverged", "finished"]
    assert shown == [(2, [0, 1, 2]), (9, [0, 2])]
    for member, want in zip(members, eager, strict=True):
        assert (member.outcome, member.steps) == (want.outcome, want.steps)
        assert [point.step for point in member.history] == [point.step for point in want.history]
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-8, atol=1e-10, equal_nan=True)


def test_a_member_that_has_reached_its_accuracy_keeps_the_weights_of_that_step(uncompiled):
    train = {"steps": 9, "eval_documents": 500, "stop_at_accuracy": 1e-9, "schedule": "constant", "warmup": 0.0}
    specs = [tiny_spec("attention", **train).changed(seed=seed) for seed in range(4)]
    eager = train_cohort(specs, dtype=torch.float64)
    assert len({member.steps for member in eager}) > 1, "all leave at once, so nobody stays in the stack"
    for member, want in zip(train_cohort(specs, machine=COMPILED, dtype=torch.float64), eager, strict=True):
        assert (member.outcome, member.steps) == (want.outcome, want.steps)
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-8, atol=1e-10)


def test_compiling_ahead_builds_a_stack_of_each_size_and_trains_none(uncompiled, monkeypatch):
    built = []
    monkeypatch.setattr(trainer, "fitting", lambda *_: [[0, 1], [2, 3], [4]])
    monkeypatch.setattr(Stack, "compile", lambda stack, share, of: built.append(len(stack.flat)))
    monkeypatch.setattr(Stack, "advance", lambda stack, steps: pytest.fail("trained"))
    spec = tiny_spec("attention")
    compile_cohort([spec.changed(seed=seed) for seed in range(5)], COMPILED)
    assert sorted(built) == [1, 2]
    assert len(uncompiled) == 2


@pytest.mark.slow
@pytest.mark.parametrize("handed_over", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler, about itself
def test_a_compiled_cohort_trains_the_weights_that_an_eager_one_does(monkeypatch, tmp_path, handed_over: bool):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # where nothing is known from last time
    cut = []
    do_cut = BetterProducts._cut
    monkeypatch.setattr(BetterProducts, "_cut", staticmethod(lambda *args: cut.append(args[-1]) or do_cut(*args)))
    asked = []
    monkeypatch.setattr(products, "pays", lambda *_: handed_over)
    monkeypatch.setattr(products, "body", lambda name, inputs, plain, **_: asked.append(name) or plain)
    spec = tiny_spec("attention", warmup=0.0, batch_size=128, documents=256, steps=3)
    spec = spec.changed(model=spec.model.changed(layers=1))
    specs = [spec, spec.changed(seed=1, train=spec.train.changed(lr=1e-2, weight_decay=0.1))]
    in_a_row: list[bool] = []
    take_grad = torch.autograd.grad

    def grad(*inputs, **named):
        gradients = take_grad(*inputs, **named)
        if not named:  # the compiler, which differentiates too, calls it otherwise
            in_a_row.extend(gradient.is_contiguous() for gradient in gradients)
        return gradients

    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd, "grad", grad)
        members = train_cohort(specs, machine=COMPILED, dtype=torch.float64)
    assert bool(cut) == (not handed_over), "no sum was long enough"
    assert bool(asked) == handed_over
    assert in_a_row
    assert all(in_a_row)
    for member, want in zip(members, train_cohort(specs, dtype=torch.float64), strict=True):
        assert member.history[-1].loss == pytest.approx(want.history[-1].loss, rel=1e-9)
        for name, weight in want.weights.items():
            torch.testing.assert_close(member.weights[name], weight, rtol=1e-8, atol=1e-10)


def test_a_step_may_ask_how_exact_products_are(monkeypatch):
    """The compiler cannot look into that question, and must not keep an answer that has changed."""
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, options, **more: compile_(f, backend="eager", **more))
    function = compiling.compiled(lambda x: x * (2 if exact_products() else 3))
    for precision, factor in (("highest", 2), ("high", 3), ("highest", 2)):
        with MATMUL_PRECISION.held(precision):
            assert function(torch.ones(1)).item() == factor


@pytest.mark.parametrize("asked", [None, "0"])
def test_importing_the_compiler_starts_no_process_that_could_take_the_gpu(asked):
    started = int(asked is None and find_spec("triton") is not None)  # there is nothing else to start them for
    code = (
        "import os\n"
        "from mixerscope.training import compiling\n"
        "compiling.import_all()\n"
        f"assert os.environ.get('TORCH_WARM_POOL') == {asked!r}\n"
        "from torch._inductor.async_compile import AsyncCompile\n"
        "made = AsyncCompile.process_pool.cache_info\n"
        "assert made().currsize == 0\n"
        "compiling.start_workers()\n"
        f"assert made().currsize == {started}\n"
    )
    env = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2", **({} if asked is None else {"TORCH_WARM_POOL": asked})}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
