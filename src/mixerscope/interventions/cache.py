"""First looks: activations by site and role, and what the model would answer if it ended there."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mixerscope.artifacts.effects import JOINT
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.batching import device_of
from mixerscope.interventions.pairs import role_positions
from mixerscope.interventions.resume import pick, run_and_record, split_site
from mixerscope.interventions.states import state_sites
from mixerscope.model import Model
from mixerscope.sites import named_sites
from mixerscope.tasks import Batch

_RESIDUAL = ("resid_pre", "resid_mid", "resid_post")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every module is in the mode it was in, also after an error."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def activations(
    model: nn.Module, batch: Batch, sites: Iterable[str], roles: Iterable[str], batch_documents: int = 64
) -> dict[tuple[str, str], Tensor]:
    """What the model holds at each (site, role): [n, ...], or [n, p, ...] for p roles joined such as `key&value`."""
    sites, roles = list(sites), list(roles)
    known = [*named_sites(model), *state_sites(model)]
    for site in sites:
        if site not in known or site == "logits":
            raise UnknownName("site with positions", site, [name for name in known if name != "logits"])
    batch = batch.to(device_of(model))
    places = {role: torch.stack([role_positions(batch, part) for part in role.split(JOINT)], 1) for role in roles}
    parts: dict[tuple[str, str], list[Tensor]] = {(site, role): [] for site in sites for role in roles}
    with evaluating(model), torch.no_grad():
        for start in range(0, len(batch), batch_documents):
            rows = slice(start, start + batch_documents)
            tokens = batch.tokens[rows]
            _, found = run_and_record(model, tokens, torch.zeros_like(tokens[:, :1]), sites)
            for site, role in parts:
                parts[site, role].append(pick(found[site], places[role][rows]))
    joined = {key: torch.cat(rows) for key, rows in parts.items()}
    return {(site, role): x if JOINT in role else x[:, 0] for (site, role), x in joined.items()}


def logit_lens(
    model: Model, batch: Batch, roles: Iterable[str], sites: Iterable[str] | None = None, batch_documents: int = 64
) -> dict[tuple[str, str], Tensor]:
    """Logits [n, v] that the residual stream would give if the model ended at each (site, role).

    By default at every boundary between blocks. At the last one, and the position that is read, they are the model's.
    """
    count = len(model.blocks)
    boundaries = [*(f"blocks.{i}.resid_pre" for i in range(count)), f"blocks.{count - 1}.resid_post"]
    sites = boundaries if sites is None else list(sites)
    for site in sites:
        if site in named_sites(model) and (site == "logits" or split_site(site)[1] not in _RESIDUAL):
            raise UserError(f"the logit lens reads the residual stream ({', '.join(_RESIDUAL)}), not {site!r}")
    found = activations(model, batch, sites, roles, batch_documents)
    with evaluating(model), torch.no_grad():
        return {key: model.read_out(x) for key, x in found.items()}
