"""Which erasures are of which places, and what a probe that reads so much reads of the label."""

import pytest

from mixerscope.artifacts import Erased, Erasures

SITES = (
    "blocks.0.resid_pre",
    "blocks.1.resid_pre",
    "blocks.2.resid_pre",
    "blocks.2.resid_post",
    "blocks.0.mixer.state",
    "blocks.2.mixer.state",
)


def erasures(*sites: str, chance: float = 0.5) -> Erasures:
    each = tuple(Erased(site, way, 1, None, 1.0, 0.5, (0.5,), (0.5,)) for site in sites for way in ("leace", "other"))
    return Erasures("answer", (8,), (1.0,), (0.5,), chance, each, ())


def test_places_are_boundaries_between_blocks_and_recurrent_states():
    found = erasures(*SITES)
    assert found.boundaries == list(SITES[:4])
    between = [(one.site, one.method) for one in found.between_blocks()]
    assert between == [(site, way) for site in SITES[1:3] for way in ("leace", "other")]
    assert [one.site for one in found.inside()] == [site for site in SITES[4:] for _ in range(2)]


def test_a_model_of_one_block_has_nothing_between_blocks():
    found = erasures("blocks.0.resid_pre", "blocks.0.resid_post")
    assert (found.between_blocks(), found.inside()) == ([], [])


@pytest.mark.parametrize(
    ("chance", "accuracy", "share"), [(0.5, 0.5, 0.0), (0.5, 1.0, 1.0), (0.2, 0.4, 0.25), (1.0, 1.0, None)]
)
def test_what_is_read_goes_from_chance_to_all_of_it(chance, accuracy, share):
    read = erasures(chance=chance).share_read(accuracy)
    assert read == (None if share is None else pytest.approx(share))
