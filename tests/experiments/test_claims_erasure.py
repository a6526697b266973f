"""Claims about what erasing does, decided on made-up models."""

from dataclasses import replace

import polars as pl
import pytest

from mixerscope.experiments.task_flip.drawing import LEFT, TOOK, UNREAD, damage
from mixerscope.experiments.task_flip.models import Erasure, models_of
from mixerscope.experiments.task_flip.study import (
    PARITY,
    Z6,
)
from mixerscope.experiments.task_flip.tables import SCHEMAS
from tests.experiments.made_up_states import (
    ALL,
    LATE,
    as_published,
    erased,
    found_of,
    outcomes,
    study,
)


def test_a_single_direction_and_a_refit_are_told_apart():
    """One direction hurts; but what takes all of the label hurts no more than random subspaces."""
    ways = [*erased("single direction", damage=0.6, residual=0.9), *erased("leace", damage=0.3, controls=0.4)]
    found = outcomes(study(as_published(), erasures=ways))
    assert found["C6a"].outcome == "supported"
    assert "still reads 0.90" in found["C6a"].effect
    assert "variance" not in found["C6a"].effect, "of runs of which it is not kept"
    little = [replace(one, variance=0.0004) for one in ways]
    assert "; it takes 0.0004 of the variance" in found_of("C6a", study(as_published(), erasures=little)).effect
    assert found["C6b"].outcome == "contradicted"
    used = outcomes(study(as_published(), erasures=erased("leace")))
    assert used["C6b"].outcome == "supported"
    assert "by LEACE in 75, by iterated projection in 0 models" in used["C6b"].effect
    assert "beyond random subspaces of its rank, which take less, +0.80" in used["C6b"].effect
    left = outcomes(study(as_published(), erasures=erased("leace", residual=0.7)))
    assert left["C6b"].outcome == "untestable", "a probe still reads, so the damage says nothing"


def test_in_longer_documents_what_is_found_there_decides():
    found = outcomes(study(as_published(), erasures=erased(refitted=0.9)))["C7"]
    assert (found.outcome, found.value) == ("supported", pytest.approx(0.8))
    assert "with no random subspaces to be held against 0.90" in found.effect
    assert "take it there too 0.70" in found.effect, "beside what the training length's erasures do"
    no_more = outcomes(study(as_published(), erasures=erased(refitted=0.1)))["C7"]
    assert no_more.outcome == "contradicted"
    left = outcomes(study(as_published(), erasures=erased(longer_left=True)))["C7"]
    assert left.outcome == "untestable", "a fresh probe of longer documents still reads it"
    assert "take it there too in no cell" in left.effect


def test_of_longer_documents_those_models_are_asked_that_hold_there():
    """Right at the positions of training and guessing behind them is 0.25 above guessing, and says nothing of these."""
    hurt = study(as_published(), erasures=erased(refitted=0.9))
    lost = study(as_published(), erasures=erased(refitted=0.9), last=0.5)
    found = found_of("C7", lost)
    assert found.outcome == "untestable"
    assert "0 of 50 models hold there" in found.effect
    unhurt = study(as_published(), erasures=erased(refitted=0.1))
    mixed = {cell: lost[cell] if cell[1] == "Mamba" else unhurt[cell] for cell in hurt}
    found = found_of("C7", mixed)
    assert (found.outcome, found.value) == ("contradicted", pytest.approx(0.0)), "not by those that do not hold"
    assert "in 40 of 40 models, 8 cells" in found.effect
    assert "that hold there, of 50" in found.effect


def test_where_it_reads_best_and_where_it_hurts_most():
    same = outcomes(study(as_published(), erasures=erased("iterated projection", peak=2)))
    assert same["C9"].outcome == "contradicted"
    other = outcomes(study(as_published(), erasures=erased("iterated projection", peak=1)))
    assert other["C9"].outcome == "supported"
    assert found_of("C12", study(as_published(), erasures=erased(peak=1))).outcome == "supported"
    left = [*erased("iterated projection", peak=1, residual=0.9), *erased("leace", peak=2)]
    assert outcomes(study(as_published(), erasures=left))["C9"].outcome == "contradicted", "by what a refit confirms"
    best = study(as_published(), seeds=3, erasures=erased(peak=2))
    elsewhere = study(as_published(), seeds=3, erasures=erased(peak=1))
    # In 24 of 45 models another one: not the same in half of them, which was to contradict it.
    mixed = {cell: elsewhere[cell] if i < 8 else best[cell] for i, cell in enumerate(best)}
    found = found_of("C9", mixed)
    assert (found.outcome, round(found.value, 2)) == ("open", 0.53), "written down is what contradicts"
    assert "0.5 lies within the interval" in found.effect
    assert "by chance alone 0.67 of them" in found.effect, "of three inner boundaries"
    assert "on parity, Dyck and S3 in 24 of 45" in found.effect
    contrast = study({(Z6, name): LATE for name in ALL}, seeds=3, erasures=erased(peak=1))
    said = found_of("C9", mixed | contrast).effect
    assert "39 of 60" in said
    assert "on parity, Dyck and S3 in 24 of 45" in said, "of which alone it was said"
    mild = [*erased("leace", damage=0.04, peak=1), *erased("single direction", peak=1)]
    found = outcomes(study(as_published(), erasures=mild))["C9"]
    assert found.outcome == "untestable", "what is missed nowhere is not missed most somewhere"


def test_ranks_of_what_a_refit_confirms_stand_beside_those_of_all_boundaries():
    # Of five boundaries the first cannot be erased, and is hurt all the same.
    alike = [
        Erasure(at, "leace", read, left, left <= 0.52, damage, damage, 0.1, 0.1)
        for at, (read, damage, left) in enumerate(zip(range(5), (9, 1, 2, 3, 4), (0.9, *[0.5] * 4), strict=True))
    ]
    found = found_of("C12", study(as_published(), seeds=3, erasures=[*erased("iterated projection"), *alike]))
    assert "0.00, above 0.8 in 0 of 15 cells, where a refit says that it took the state 1.00" in found.effect


def test_ranks_by_the_published_ablation_stand_beside_those_by_erasures():
    both = [*erased(peak=1), *erased("single direction", damage=0.9, peak=4)]
    found, alone = (found_of("C12", study(as_published(), seeds=3, erasures=own)) for own in (both, erased(peak=1)))
    assert found.effect == f"{alone.effect}; by one direction, no refit 0.90"
    assert (found.outcome, found.value, found.low) == (alone.outcome, alone.value, alone.low), "it decides nothing"


def test_controls_decide_nothing_that_was_said_of_the_five():
    alone = study(as_published(), erasures=erased())
    with_controls = alone | study({(PARITY, "Mamba, signed"): LATE}, erasures=erased(damage=0.0, residual=0.9))
    found, other = outcomes(alone), outcomes(with_controls)
    assert all(found[claim] == other[claim] for claim in ("C6a", "C6b", "C7", "C9", "C12"))


def test_erasures_of_longer_documents_are_read_beside_those_of_the_training_length():
    one = {"run_id": "a", "method": "leace", "boundary": 1, "before": 0.9, "residual": 0.5, "speaks": True}
    short = {
        **one,
        "length": 8,
        "damage": 0.5,
        "clean": 1.0,
        "guessing": 0.5,
        "random_variance": 0.9,
        "variance": 0.25,
        "random_rank": 0.8,
    }
    there = {**one, "length": 16, "chance": 0.5, "damage": 0.3, "alike": 0.6, "unseen": 0.51}
    for kept, left in ((0.5, False), (0.6, True)):
        rows = {"models": [{"run_id": "a", "task": PARITY, "architecture": "GRU", "layers": 4}]}
        rows |= {"erasures": [short, {**short, "length": 16}], "refitted": [{**there, "kept_residual": kept}]}
        tables = {name: pl.DataFrame(rows.get(name, []), schema=schema) for name, schema in SCHEMAS.items()}
        [[found]] = (model.erasures for model in models_of(tables))
        assert found.longer_left == left
        assert (found.refitted, found.alike) == (pytest.approx(0.3), pytest.approx(0.6))
        assert (found.variance, found.by_rank) == (pytest.approx(0.25), pytest.approx(0.4))
        assert (found.speaks, found.gone_there, found.refitted_there) == (False, True, found.refitted), "nobody looked"
    # What was looked for elsewhere, and found there, is still gone where it was erased.
    rows["erasures"] = [{**one, "chance": 0.5, "unseen": 0.9, "speaks": False} for one in rows["erasures"]]
    rows["refitted"] = [{**one, "residual": 0.5, "unseen": 0.9, "speaks": False} for one in rows["refitted"]]
    [[found]] = (
        model.erasures
        for model in models_of({name: pl.DataFrame(rows.get(name, []), schema=SCHEMAS[name]) for name in SCHEMAS})
    )
    assert (found.speaks, found.refitted) == (False, None)
    assert (found.gone_there, found.refitted_there) == (True, pytest.approx(0.3))


def test_what_is_left_elsewhere_decides_and_what_is_left_where_it_was_found_stands_beside():
    looked = study(as_published(), erasures=erased(refitted=0.6))
    assert found_of("C6b", looked).outcome == "supported"

    def unseen(one):
        return replace(one, speaks=False, refitted=None, gone_there=one.speaks, refitted_there=one.refitted)

    for claim in ("C6b", "C7", "C9"):
        before = found_of(claim, looked)
        hidden = {
            key: [replace(one, erasures=[*map(unseen, one.erasures)]) for one in own] for key, own in looked.items()
        }
        found = found_of(claim, hidden)
        assert (found.outcome, found.value) == ("untestable", None)
        assert found.effect.endswith(before.effect)
        assert "which is no test" in found.effect
    left = study(as_published(), erasures=erased(residual=0.9))
    assert "no test" not in found_of("C6b", left).effect, "nothing is gone anywhere"


def test_what_nobody_read_elsewhere_is_not_drawn_as_still_there():
    def drawn(**how):
        best = study({(PARITY, "GRU"): LATE}, seeds=1, erasures=erased())
        models = {
            key: [replace(one, erasures=[replace(own, **how) for own in one.erasures]) for one in models]
            for key, models in best.items()
        }
        rows = damage(models, ["GRU"]).to_dict()["data"]["values"]
        return {row["said"] for row in rows if row["task"] == "LEACE"}

    assert drawn(speaks=True, gone_there=True) == {TOOK}
    assert drawn(speaks=False, gone_there=True) == {UNREAD}
    assert drawn(speaks=False, gone_there=False) == {LEFT}
