"""Half a block as one operator: what its modules give, and only where nobody looks inside."""

import pytest
import torch
from torch.func import functional_call, stack_module_state

from mixerscope import kernels
from mixerscope.model import backbone, build_model
from mixerscope.model import residual_mlp as mlp
from mixerscope.sites import record
from mixerscope.spec import ModelSpec

SITE = "blocks.1.mlp_out"


@pytest.fixture
def uses(monkeypatch):
    """As if this were a GPU; counts how often the operator is taken."""
    seen = []

    def counted(x, *modules):
        seen.append(x.shape)
        return mlp.residual_mlp(x, *modules)

    monkeypatch.setattr(backbone, "fits", lambda x: True)
    monkeypatch.setattr(backbone, "residual_mlp", counted)
    return seen


def a_model(seed=0):
    return build_model(ModelSpec(architecture="attention", width=6, max_length=8), 11, seed).double()


TOKENS = torch.arange(12).view(2, 6) % 11


def test_it_is_what_the_modules_compute(uses):
    models = [a_model(seed) for seed in (0, 1)]
    params = {name: param.detach().requires_grad_() for name, param in stack_module_state(models)[0].items()}

    def gradients():
        loss = torch.vmap(lambda own: functional_call(models[0], own, (TOKENS,)).square().mean())
        return torch.autograd.grad(loss(params).sum(), list(params.values()))

    found = gradients()
    assert len(uses) == 2, "once a block"
    with kernels.switched("plain"):
        expected = gradients()
    assert len(uses) == 2, "`--kernels plain` passes it by"
    for name, ours, theirs in zip(params, found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


def test_only_steps_that_nobody_looks_into_take_it(uses):
    model = a_model()
    with record(model, [SITE]) as seen:
        model(TOKENS)
    assert seen[SITE].shape == (2, 6, 6)
    assert len(uses) == 1, "the other block"
    hook = model.blocks[0].mlp.register_forward_hook(lambda *_: None)
    model(TOKENS)
    assert len(uses) == 2
    hook.remove()
    with torch.no_grad():
        model(TOKENS)
    model.eval()(TOKENS)
    assert len(uses) == 2


def test_the_compiler_takes_it_and_is_told_the_right_shapes(uses):
    model = a_model()
    params = {name: param.detach()[None].requires_grad_() for name, param in model.named_parameters()}
    stacked = torch.vmap(lambda own: functional_call(model, own, (TOKENS,)).square().mean())
    compiled = torch.compile(lambda own: stacked(own), backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad(stacked(params), list(params.values()))
    found = torch.autograd.grad(compiled(params), list(params.values()))
    for name, ours, theirs in zip(params, found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)
    x, gain, up = torch.ones(2, 7, 5), torch.ones(2, 5), torch.ones(2, 20, 5)
    inputs = (x, gain, gain, up, up[..., 0], up.mT.contiguous(), gain, 1e-5)
    for operator, given in ((mlp._residual_mlp, inputs), (mlp._residual_mlp_backward, (x, *inputs))):
        torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))
