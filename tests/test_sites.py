"""Sites: what is recorded is what flowed, what is edited is what flows on, and nothing stays behind."""

import pytest
import torch
from torch import Tensor, nn

from mixerscope.errors import SiteFiredAgain, SiteNeverFired, UnknownName
from mixerscope.sites import Site, edit, named_sites, record


class Toy(nn.Module):
    def __init__(self, fires: int = 1) -> None:
        super().__init__()
        self.a, self.b, self.fires = Site(), Site(), fires

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x) + 1
        for _ in range(self.fires):
            x = self.b(x) * 2
        return x


X = torch.arange(3.0)


def test_names_are_paths():
    assert list(named_sites(nn.ModuleDict({"toy": Toy()}))) == ["toy.a", "toy.b"]


def test_record_keeps_what_flowed():
    toy = Toy()
    with record(toy, ["a", "b"]) as found:
        toy(X)
    assert torch.equal(found["a"], X)
    assert torch.equal(found["b"], X + 1)


def test_edit_replaces_what_flows_on_and_is_gone_afterwards():
    toy = Toy()
    with edit(toy, {"a": lambda x: x * 10}):
        assert torch.equal(toy(X), (X * 10 + 1) * 2)
    assert torch.equal(toy(X), (X + 1) * 2)


def test_nested_edits_apply_from_the_outside_in_and_unwind():
    toy = Toy()
    with edit(toy, {"a": lambda x: x + 1}):  # noqa: SIM117
        with record(toy, ["a"]) as found, edit(toy, {"b": lambda x: -x}):
            toy(X)
    assert torch.equal(found["a"], X + 1)
    assert all(site.taps == () for site in named_sites(toy).values())


def test_a_site_that_does_not_fire_is_an_error():
    toy = Toy(fires=0)
    with pytest.raises(SiteNeverFired, match="'b' never fired"), record(toy, ["b"]):
        toy(X)
    with pytest.raises(SiteNeverFired, match="'b' never fired"), edit(toy, {"b": lambda x: x}):
        toy(X)


def test_a_site_that_fires_twice_is_an_error():
    toy = Toy(fires=2)
    with pytest.raises(SiteFiredAgain, match="'b' fired 2 times"), record(toy, ["b"]):
        toy(X)


def test_an_error_inside_leaves_no_tap_and_is_not_masked():
    toy = Toy()

    def boom(x: Tensor) -> Tensor:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"), edit(toy, {"a": boom, "b": lambda x: x}):
        toy(X)
    assert all(site.taps == () for site in named_sites(toy).values())


def test_unknown_site_names_the_nearest():
    with pytest.raises(UnknownName, match=r"no site named 'aa'; did you mean 'a'\?"), edit(Toy(), {"aa": lambda x: x}):
        pass
