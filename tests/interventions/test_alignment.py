"""The algebra of subspaces that are exchanged."""

import torch

from mixerscope.interventions.alignment import _orthonormal


def test_orthonormal_columns_span_what_householder_reflections_give_and_so_do_their_gradients():
    rng = torch.Generator().manual_seed(0)
    columns = torch.randn(3, 20, 5, generator=rng, dtype=torch.float64).requires_grad_()
    weight = torch.randn(3, 20, 20, generator=rng, dtype=torch.float64)
    alive = torch.ones(3, 20, 1, dtype=torch.float64)
    alive[1, 15:] = 0

    def of_span(basis: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        span = basis @ basis.mT
        return span.detach(), torch.autograd.grad((span * weight).sum(), columns)[0]

    ours, theirs = of_span(_orthonormal(columns, alive)), of_span(torch.linalg.qr(columns * alive).Q)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


def test_a_model_that_went_astray_stops_no_other():
    columns = torch.eye(4, 2, dtype=torch.float64).repeat(2, 1, 1)
    columns[0] = float("nan")
    found = _orthonormal(columns, torch.ones(2, 4, 1, dtype=torch.float64))
    assert found[0].isnan().all()
    torch.testing.assert_close(found[1], columns[1])
