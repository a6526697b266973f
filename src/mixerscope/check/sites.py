"""Properties of sites: each fires once, changes nothing by itself, and reaches the output at its position or later."""

import torch
from torch import Tensor

from mixerscope.check.outcome import demand
from mixerscope.check.subject import TOLERANCE, Subject, gap
from mixerscope.sites import Tap, edit, named_sites, record


def sites_fire(subject: Subject) -> str:
    """Every declared site fires exactly once in a forward pass, with document, position and any heads in front."""
    mixer, x = subject.build(), subject.documents(2, 7)
    sites = named_sites(mixer)
    for name, site in sites.items():
        with record(mixer, [name]) as seen, torch.no_grad():
            mixer(x)
        found = list(seen[name].shape)
        demand(found[:2] == [2, 7], f"site {name!r} holds {found}, expected [document = 2, position = 7, ...]")
        heads = site.heads == 1 or found[2:3] == [site.heads]
        demand(heads, f"site {name!r} holds {found}, expected [document = 2, position = 7, head = {site.heads}, ...]")
    return ", ".join(sites) or "no sites declared"


def sites_identity(subject: Subject) -> str:
    """Writing back what a site held changes no bit of the output."""
    mixer, x = subject.build(), subject.documents(2, 7)
    with torch.no_grad():
        y = mixer(x)
        for name in named_sites(mixer):
            with edit(mixer, {name: torch.clone}):
                again = mixer(x)
            demand(torch.equal(again, y), f"writing back what site {name!r} held changed the output")
    return f"{len(named_sites(mixer))} sites, bit-equal"


def sites_noise(subject: Subject) -> str:
    """Noise at one position of one document changes that document from there on, and nothing else."""
    length, at = 9, 5  # off the middle, so that a site in reversed time shows
    mixer, x = subject.build(), subject.documents(2, length)

    def disturb(activation: Tensor) -> Tensor:
        noise = torch.zeros_like(activation)
        noise[0, at] = 1.0 + activation[0, at].abs()
        return activation + noise

    with torch.no_grad():
        y = mixer(x)
        for name in named_sites(mixer):
            with edit(mixer, {name: disturb}):
                moved = mixer(x)
            before, other = gap(moved[0, :at], y[0, :at]), gap(moved[1], y[1])
            demand(before <= TOLERANCE, f"noise at site {name!r}, position {at}, moved an earlier output")
            demand(other <= TOLERANCE, f"noise at site {name!r} in one document moved another document")
            after = gap(moved[0, at:], y[0, at:])
            demand(after > TOLERANCE, f"noise at site {name!r} changed nothing: the output does not pass through it")
    return f"{len(named_sites(mixer))} sites"


def movers(subject: Subject) -> str:
    """The parts said to move information name sites of the mixer, in the order in which they fire."""
    mixer, x = subject.build(), subject.documents(2, 7)
    sites = named_sites(mixer)
    for mover in mixer.movers:
        demand(mover.site in sites, f"{mover.component!r} names the site {mover.site!r}, which the mixer does not have")
    declared = [mover.site for mover in mixer.movers]
    fired: list[str] = []

    def note(name: str) -> Tap:
        def tap(activation: Tensor) -> Tensor:
            fired.append(name)
            return activation

        return tap

    with edit(mixer, {name: note(name) for name in declared}), torch.no_grad():
        mixer(x)
    demand(fired == declared, f"the movers are declared in the order {declared}, but fire in the order {fired}")
    return " -> ".join(mover.component for mover in mixer.movers) or "none declared"
