"""Interchange intervention training: the loss under which a model solves the task by one chosen route."""

from collections.abc import Mapping

import torch
from torch import Tensor

from benchmarks.ground_truth.routes import exchange
from mixerscope import AR, UNSCORED, Batch, Model, Objective, register
from mixerscope.randomness import stream


@register("objective", "ground_truth/route")
class ByRoute(Objective):
    """Cross-entropy of documents, of their counterfactuals, and of both mixed runs.

    A mixed run has one document's activations at the carriers and the other's everywhere else, at the boundary between
    the blocks; it must answer as the document at the carriers does. Each document takes either part, so this says both
    that the carriers are enough and that all else is not needed. A document whose asked key is absent has no answer of
    its own: a mixed run must then say whatever the unmixed one says.
    """

    route: str
    """A name in `routes.ROUTES`, or two of them: a mixture."""
    task: AR
    """Whose documents these are."""
    weight: tuple[float, float] = (1.0, 4.0)
    """Of the mixed runs, with the first document and with the last: a model that still has to find out how to match
    keys at all learns it sooner if any route helps a little, and one that has found out must then leave the others."""
    seed: int = 0
    """Of the counterfactuals."""

    def columns(self, documents: Batch) -> Mapping[str, Tensor]:
        made = exchange(self.task, documents, self.route, stream(self.seed, "interchange"))
        weight = torch.linspace(*self.weight, len(documents))
        return {"tokens": made.tokens, "answers": made.answers, "carriers": made.carriers, "weight": weight}

    def loss(self, model: Model, rows: Tensor, read: Tensor, targets: Tensor, more: Mapping[str, Tensor]) -> Tensor:
        b, length = rows.shape[:2]
        table = model.token_embedding.weight
        symbols = torch.arange(table.shape[0], device=rows.device)
        # A product, not a look-up: its gradient is added up in the same order every time.
        others = (more["tokens"][:, :length, None] == symbols).to(table.dtype) @ table
        carriers = torch.cat([more["carriers"][:, :length, None]] * 2)
        first, *blocks = model.layers()
        plain = mixed = first(model.embed_rows(torch.cat([rows, others])))
        for block in blocks:
            mixed = torch.where(carriers, mixed, plain.roll(b, 0))  # the other document's
            plain, mixed = block(torch.cat([plain, mixed])).chunk(2)
        at = read[:, :1, None].expand(-1, -1, table.shape[1])
        last = torch.stack([*plain.chunk(2), *mixed.chunk(2)]).gather(2, at.expand(4, -1, -1, -1))[:, :, 0]
        log_p = model.read_out(last).log_softmax(-1)  # [4, b, v]
        answers = torch.stack([targets[:, 0], more["answers"]] * 2)
        scored = answers != UNSCORED
        wanted = (answers[:, :, None] == symbols).to(log_p.dtype)
        as_unmixed = torch.stack([log_p[0], log_p[1]] * 2).exp().detach()
        wanted = torch.where(scored[:, :, None], wanted, as_unmixed)
        counted = torch.stack([scored[0], scored[1], scored[0], scored[0]]).to(log_p.dtype)  # all but B alone
        losses = -(wanted * log_p).sum(-1) * counted
        return losses[:2].sum() / b + (more["weight"] * losses[2:]).sum() / b
