"""Sites: named points of a model that can be read and edited.

A site is an identity module. Its name is its path in the model (`blocks.0.mixer_out`), so the same string serves in
specs, tables, plots and errors. Dimension 0 of what flows through it is the document, dimension 1 the position.
`record` and `edit` hold for exactly one forward pass: a site that did not fire, or fired twice, is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from mixerscope.errors import SiteFiredAgain, SiteNeverFired, UnknownName

Tap = Callable[[Tensor], Tensor]


class Site(nn.Module):
    """The identity, unless a tap is in place. Where dimension 2 is the head, the site knows how many there are."""

    def __init__(self, heads: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.taps: tuple[Tap, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        for tap in self.taps:
            x = tap(x)
        # Vectorised functions round differently on strided memory. An edited activation is laid out afresh, so the
        # unedited one must be too, or writing back what is there would change the last bits of what follows.
        return x.contiguous()


def named_sites(model: nn.Module) -> dict[str, Site]:
    """All sites of a model by name, in the order in which they were declared."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Site)}


def unseen(module: nn.Module) -> bool:
    """Whether nobody looks at what flows inside: no site has a tap, nothing has a hook of torch's."""
    return not any(
        part._forward_hooks or part._forward_pre_hooks or (isinstance(part, Site) and part.taps)
        for part in module.modules()
    )


def find_site(model: nn.Module, name: str) -> Site:
    site: object = model
    for part in name.split("."):  # by its path: a walk over all modules would take longer than a small forward pass
        site = getattr(site, "_modules", {}).get(part)
    if not isinstance(site, Site):
        raise UnknownName("site", name, named_sites(model))
    return site


@contextmanager
def _tapped(site: Site, name: str, tap: Tap) -> Iterator[None]:
    fired = 0

    def counting(x: Tensor) -> Tensor:
        nonlocal fired
        fired += 1
        if fired > 1:
            raise SiteFiredAgain(f"site {name!r} fired {fired} times in one forward pass")
        return tap(x)

    before = site.taps
    site.taps = (*before, counting)
    try:
        yield
    finally:
        site.taps = before
    if fired == 0:
        raise SiteNeverFired(
            f"site {name!r} never fired: the forward pass did not go through it (a fused path or an unused layer?)"
        )


@contextmanager
def edit(model: nn.Module, edits: Mapping[str, Tap]) -> Iterator[None]:
    """Replaces what flows through each named site during one forward pass."""
    found = {name: find_site(model, name) for name in edits}
    with ExitStack() as stack:
        for name, tap in edits.items():
            stack.enter_context(_tapped(found[name], name, tap))
        yield


@contextmanager
def record(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collects what flows through the named sites during one forward pass; filled when the block ends."""
    activations: dict[str, Tensor] = {}

    def keep(name: str) -> Tap:
        def tap(x: Tensor) -> Tensor:
            activations[name] = x
            return x

        return tap

    with edit(model, {name: keep(name) for name in names}):
        yield activations
