"""The study of tracked states: claims decided on made-up models."""

import polars as pl
import pytest

from mixerscope.experiments.task_flip.claims import TESTS, decided, load_claims
from mixerscope.experiments.task_flip.drawing import figure
from mixerscope.experiments.task_flip.evidence import Cells
from mixerscope.experiments.task_flip.models import Erasure, Model, best_of_seeds, models_of
from mixerscope.experiments.task_flip.predictions import predictions
from mixerscope.experiments.task_flip.pretrained import SHAPES, Tuned
from mixerscope.experiments.task_flip.study import (
    AFTER_CLOSE,
    BRACKETS,
    PARITY,
    RECURRENT,
    RESETS,
    S3,
    TRANSFORMER,
    Z6,
)
from mixerscope.experiments.task_flip.tables import SCHEMAS
from mixerscope.report.charts import GREY

LATE, EARLY, GRADUAL = [0, 0, 0, 0.1, 1.0], [0, 0.9, 0.95, 1.0, 1.0], [0, 0.25, 0.5, 0.75, 1.0]
ALL = (TRANSFORMER, *RECURRENT)


def erased(method="leace", damage=0.8, residual=0.5, controls=0.1, peak=2, longer_left=False, refitted=None):
    """At the five boundaries, of which the third reads best; `peak` is hurt most."""
    reads = [0.5, 0.7, 0.9, 0.8, 1.0]
    return [
        Erasure(
            *(at, method, before, residual, residual <= 0.52, damage - 0.1 * abs(at - peak), damage),
            *(controls, controls, longer_left, refitted, 0.7),
        )
        for at, before in enumerate(reads)
    ]


def model(task, name, curve, seed=0, verdict="carried", last=1.0, erasures=(), accuracy=1.0):
    cell = task, name, 4
    return Model(
        *(f"{task}-{name}-{seed}", cell, 1e-3, seed, accuracy, verdict, {}),
        accuracy={1: accuracy, 4: last},
        last={1: accuracy, 4: last},
        guessing={1: 0.5, 4: 0.5},
        curves={("answer", "every"): [value * (1 - 0.01 * seed) for value in curve]},
        erasures=list(erasures),
    )


def study(shapes, seeds=5, **more):
    """By (task, architecture) the curve; a model a seed."""
    return best_of_seeds([model(*cell, curve, seed, **more) for cell, curve in shapes.items() for seed in range(seeds)])


def as_published():
    shapes = {(PARITY, name): LATE for name in RECURRENT} | {(PARITY, TRANSFORMER): GRADUAL}
    shapes |= {(BRACKETS, name): EARLY for name in RECURRENT} | {(BRACKETS, TRANSFORMER): LATE}
    return shapes | {(S3, name): LATE if name in RECURRENT else GRADUAL for name in ALL}


def outcomes(best):
    return {claim.id: found for claim, found in decided(best)}


def found_of(claim, best):
    """Of one claim alone, which is sooner there than that of all."""
    return TESTS[claim](Cells(best))


def test_every_claim_has_a_test_and_says_what_would_contradict_it():
    assert [claim.id for claim in load_claims()] == list(TESTS)
    assert all(claim.contradicted for claim in load_claims())


def test_curves_as_published_support_what_was_claimed_of_curves():
    found = outcomes(study(as_published()))
    for claim in ("C1", "C2", "C3", "C5"):
        assert found[claim].outcome == "supported", claim
        assert found[claim].seeds == 5
    assert found["C3"].low > 0
    waiting = ("C4", "C8", "C10", "C11", "A1", "A2", "A3", "A4")
    assert {found[claim].outcome for claim in waiting} == {"untestable"}


def test_other_curves_contradict_it():
    shapes = as_published()
    other = {cell: EARLY if cell[0] == PARITY else LATE for cell in shapes}
    found = outcomes(study(other))
    assert [found[claim].outcome for claim in ("C1", "C2", "C3", "C5")] == ["contradicted"] * 4
    one = outcomes(study({**shapes, (S3, "GRU"): EARLY}))["C5"]
    assert one.outcome == "contradicted"
    assert "GRU -" in one.effect


def test_what_rests_on_conventions_says_so():
    shapes = as_published()
    found = found_of("C1", study(shapes))
    assert "20 of 20 late" in found.effect
    assert "contradicted by 0 of 26 other sets" in found.effect
    # The largest step is 0.55 of the gain: late, unless 0.6 is asked for.
    hardly = [0, 0, 0.2, 0.45, 1.0]
    found = found_of("C1", study(shapes | {(PARITY, name): hardly for name in ("GRU", "LSTM")}))
    assert found.outcome == "supported"
    assert "the name of 10 of 20 curves moves" in found.effect
    assert "contradicted by 9 of 26 other sets" in found.effect
    assert "parity itself" not in found_of("C5", study(shapes)).effect
    beyond = study(shapes | {(PARITY, "GRU"): [0, 0.7, 0.8, 0.9, 1.0]})
    assert "parity itself is nearer brackets than S3 in GRU" in found_of("C5", beyond).effect


def test_too_few_seeds_that_learned_say_nothing():
    assert all(found.outcome == "untestable" for found in outcomes(study(as_published(), seeds=2)).values())
    assert all(found.outcome == "untestable" for found in outcomes(study(as_published(), accuracy=0.98)).values())


def test_a_single_direction_and_a_refit_are_told_apart():
    """One direction hurts; but what takes all of the label hurts no more than random subspaces."""
    ways = [*erased("single direction", damage=0.6, residual=0.9), *erased("leace", damage=0.3, controls=0.4)]
    found = outcomes(study(as_published(), erasures=ways))
    assert found["C6a"].outcome == "supported"
    assert "still reads 0.90" in found["C6a"].effect
    assert found["C6b"].outcome == "contradicted"
    used = outcomes(study(as_published(), erasures=erased("leace")))
    assert used["C6b"].outcome == "supported"
    assert "by LEACE in 75, by iterated projection in 0 models" in used["C6b"].effect
    left = outcomes(study(as_published(), erasures=erased("leace", residual=0.7)))
    assert left["C6b"].outcome == "untestable", "a probe still reads, so the damage says nothing"


def test_in_longer_documents_what_is_found_there_decides():
    found = outcomes(study(as_published(), erasures=erased(refitted=0.9)))["C7"]
    assert (found.outcome, found.value) == ("supported", pytest.approx(0.8))
    assert "take it there too 0.70" in found.effect, "beside what the training length's erasures do"
    no_more = outcomes(study(as_published(), erasures=erased(refitted=0.1)))["C7"]
    assert no_more.outcome == "contradicted"
    left = outcomes(study(as_published(), erasures=erased(longer_left=True)))["C7"]
    assert left.outcome == "untestable", "a fresh probe of longer documents still reads it"
    assert "take it there too in no cell" in left.effect


def test_where_it_reads_best_and_where_it_hurts_most():
    same = outcomes(study(as_published(), erasures=erased("iterated projection", peak=2)))
    assert same["C9"].outcome == "contradicted"
    other = outcomes(study(as_published(), erasures=erased("iterated projection", peak=1)))
    assert other["C9"].outcome == "supported"
    assert other["C12"].outcome == "supported"
    left = [*erased("iterated projection", peak=1, residual=0.9), *erased("leace", peak=2)]
    assert outcomes(study(as_published(), erasures=left))["C9"].outcome == "contradicted", "by what a refit confirms"
    best = study(as_published(), seeds=3, erasures=erased(peak=2))
    elsewhere = study(as_published(), seeds=3, erasures=erased(peak=1))
    # In 24 of 45 models another one: not the same in half of them, which was to contradict it.
    mixed = {cell: elsewhere[cell] if i < 8 else best[cell] for i, cell in enumerate(best)}
    found = found_of("C9", mixed)
    assert (found.outcome, round(found.value, 2)) == ("supported", 0.53)
    assert "0.5 lies within the interval" in found.effect
    mild = [*erased("leace", damage=0.04, peak=1), *erased("single direction", peak=1)]
    found = outcomes(study(as_published(), erasures=mild))["C9"]
    assert found.outcome == "untestable", "what is missed nowhere is not missed most somewhere"


def test_controls_decide_nothing_that_was_said_of_the_five():
    alone = study(as_published(), erasures=erased())
    with_controls = alone | study({(PARITY, "Mamba, signed"): LATE}, erasures=erased(damage=0.0, residual=0.9))
    found, other = outcomes(alone), outcomes(with_controls)
    assert all(found[claim] == other[claim] for claim in ("C6a", "C6b", "C7", "C9", "C12"))


def test_brackets_that_the_last_token_tells_do_not_make_a_flip_or_a_group():
    best = study(as_published())
    # After closing brackets, the curve of parity.
    masked = {
        cell: [
            Model(**{**one.__dict__, "curves": {**one.curves, ("answer", "hard"): like.curve}})
            for one, like in zip(models, best[PARITY if cell[0] == BRACKETS else cell[0], *cell[1:]], strict=True)
        ]
        for cell, models in best.items()
    }
    found = outcomes(masked)
    assert [found[claim].outcome for claim in ("C3", "C5")] == ["contradicted"] * 2
    assert "does not tell +0.00" in found["C3"].effect
    assert found["C3"].low > 0, "over every position it is seen"


def test_architectures_that_are_not_known_could_be_the_second():
    some = {cell: curve for cell, curve in as_published().items() if cell not in [(PARITY, "GRU"), (PARITY, "LSTM")]}
    assert outcomes(study(some))["C1"].outcome == "untestable"
    two = some | {(PARITY, "Mamba"): EARLY, (PARITY, "Mamba-2"): EARLY}
    assert outcomes(study(two))["C1"].outcome == "contradicted"


def test_erasures_of_longer_documents_are_read_beside_those_of_the_training_length():
    one = {"run_id": "a", "method": "leace", "boundary": 1, "before": 0.9, "residual": 0.5, "speaks": True}
    short = {**one, "length": 8, "damage": 0.5, "clean": 1.0, "guessing": 0.5, "random_variance": 0.9}
    there = {**one, "length": 16, "chance": 0.5, "damage": 0.3, "alike": 0.6}
    for kept, left in ((0.5, False), (0.6, True)):
        rows = {"models": [{"run_id": "a", "task": PARITY, "architecture": "GRU", "layers": 4}]}
        rows |= {"erasures": [short, {**short, "length": 16}], "refitted": [{**there, "kept_residual": kept}]}
        tables = {name: pl.DataFrame(rows.get(name, []), schema=schema) for name, schema in SCHEMAS.items()}
        [[found]] = (model.erasures for model in models_of(tables))
        assert found.longer_left == left
        assert (found.refitted, found.alike) == (pytest.approx(0.3), pytest.approx(0.6))


def test_convolutions_are_grouped_by_what_is_lost_without_them():
    damages = {PARITY: [0.1, 0.2], BRACKETS: [0.9, 0.8], S3: [0.2, 0.2]}
    models = [
        Model(**{**model(task, "Mamba", LATE, seed).__dict__, "taps": taps})
        for task, taps in damages.items()
        for seed in range(3)
    ]
    assert outcomes(best_of_seeds(models))["C11"].outcome == "supported"
    nearer = [Model(**{**one.__dict__, "taps": [0.8, 0.8]}) if one.cell[0] == S3 else one for one in models]
    assert outcomes(best_of_seeds(nearer))["C11"].outcome == "contradicted"


def test_where_convolutions_were_not_measured_it_says_of_what():
    models = [model(task, "Mamba", LATE, seed) for task in (PARITY, BRACKETS, S3) for seed in range(3)]
    known = [Model(**{**one.__dict__, "taps": [0.1]}) if one.cell[0] != PARITY else one for one in models]
    found = outcomes(best_of_seeds(known))["C11"]
    assert found.outcome == "untestable"
    assert "Mamba parity in 0 seeds; Mamba-2 parity in 0 seeds" in found.effect


@pytest.mark.parametrize(
    ("signed", "usual", "outcome"),
    [(0.99, 0.5, "supported"), (0.5, 0.5, "contradicted"), (0.7, 0.5, "contradicted"), (0.99, None, "untestable")],
)
def test_a_sign_must_make_parity_hold(signed, usual, outcome):
    lasts = {"Mamba, signed": signed, "Mamba": usual}
    models = [
        model(PARITY, name, LATE, seed, last=last + seed / 1000)
        for name, last in lasts.items()
        if last is not None
        for seed in range(5)
    ]
    assert outcomes(best_of_seeds(models))["A4"].outcome == outcome


def test_contrasts_tell_the_accounts_apart():
    structure = as_published() | {(Z6, name): as_published()[PARITY, name] for name in ALL}
    found = outcomes(study(structure))
    assert (found["A1"].outcome, found["A2"].outcome) == ("contradicted", "supported")
    order = structure | {(S3, name): as_published()[BRACKETS, name] for name in ALL}
    found = outcomes(study(order))
    assert (found["A1"].outcome, found["A2"].outcome) == ("supported", "contradicted")
    local = structure | {(RESETS, name): as_published()[BRACKETS, name] for name in ALL}
    local |= {(AFTER_CLOSE, name): as_published()[PARITY, name] for name in ALL}
    assert outcomes(study(local))["A3"].outcome == "supported"
    # What moves brackets away from parity on the whole, or nowhere, does not move them towards it.
    beyond = [0, 1.0, 1.0, 0.9, 1.0]
    for curve in (beyond, EARLY):
        away = local | {(AFTER_CLOSE, name): curve for name in RECURRENT}
        assert found_of("A3", study(away | {(AFTER_CLOSE, TRANSFORMER): LATE})).outcome == "contradicted"


def test_the_best_rate_of_a_seed_is_taken_before_the_gate():
    slow = model(PARITY, "GRU", LATE, accuracy=0.5)
    fast = Model(**{**slow.__dict__, "lr": 3e-3, "dev_accuracy": 1.0, "accuracy": {1: 1.0}})
    assert best_of_seeds([slow, fast]) == {(PARITY, "GRU", 4): [fast]}
    assert best_of_seeds([slow]) == {(PARITY, "GRU", 4): []}


def test_of_rates_that_are_equally_good_the_lowest_counts_or_the_highest():
    low = model(PARITY, "GRU", LATE)
    high = Model(**{**low.__dict__, "lr": 3e-3})
    assert best_of_seeds([high, low]) == {(PARITY, "GRU", 4): [low]}
    assert best_of_seeds([low, high], highest=True) == {(PARITY, "GRU", 4): [high]}


def test_verdicts_that_foretell_are_seen_to():
    models = [
        model(task, name, LATE, seed, "carried" if seed % 2 else "recomputed", 1.0 if seed % 2 else 0.5)
        for task in (PARITY, S3)
        for name in ALL
        for seed in range(4)
    ]
    found = {one.by: one for one in predictions(models)}
    verdict = found["verdict"]
    assert verdict.models == len(models)
    assert verdict.overall.value == verdict.within.value == 1.0
    assert (verdict.within.low, verdict.within.high) == (1.0, 1.0)
    assert found["architecture alone"].overall.value == found["task alone"].overall.value == 0.5
    assert found["accuracy at the training length"].overall.value == 0.5
    assert verdict.inside.value == 1.0
    assert found["architecture and task"].inside.value == 0.5, "of one cohort they tell nothing"


def test_every_architecture_is_drawn_in_a_colour_and_controls_apart():
    controls = ("LSTM, plain", "Mamba, signed", "Transformer, no positions", "Transformer, learned positions")
    shapes = as_published() | {(PARITY, name): LATE for name in (*controls, "DeltaNet, signed", "RWKV")}
    best = study(shapes, erasures=erased())
    drawn = figure(best, [one for models in best.values() for one in models])
    read, hurt, flipped, longer = drawn["vconcat"]
    colour = read["spec"]["layer"][0]["encoding"]["color"]["scale"]
    assert set(colour["domain"]) == {name for _, name in shapes}, "what is not in the domain is not drawn at all"
    hues = dict(zip(colour["domain"], colour["range"], strict=True))
    assert hues["LSTM, plain"] == hues["LSTM"] != hues["GRU"]
    assert hues["RWKV"] == GREY
    dashes = dict(
        zip(colour["domain"], read["spec"]["layer"][0]["encoding"]["strokeDash"]["scale"]["range"], strict=True)
    )
    assert dashes["Transformer, no positions"] != dashes["Transformer, learned positions"] != dashes["Transformer"]
    assert read["facet"]["sort"] == [PARITY, BRACKETS, S3, f"{PARITY}, controls"]
    assert {row["task"] for row in hurt["data"]["values"]} == {"LEACE", "random, as LEACE's"}
    count = sum(map(len, best.values()))
    assert len(hurt["data"]["values"]) == 2 * 3 * count, "not behind the last block, where the head reads what is there"
    assert len(flipped["hconcat"]) == 3
    assert longer["facet"]["sort"] == [f"carried ({count})"]
    broken = longer["spec"]["layer"][0]["encoding"]["strokeDash"]["scale"]
    assert dict(zip(broken["domain"], broken["range"], strict=True)) == dashes, "a control is not drawn as its mixer is"
    assert {row["value"] for row in longer["data"]["values"]} == {1.0}
    assert len(figure({}, [])["vconcat"]) == 4


def tuned(shape, task, reads, seed=0, damage=None, recovered=1.0, weights="pretrained"):
    """A fine-tuned model with this readability at its boundaries, and this damage by a single direction."""
    kind, layers = SHAPES[shape]
    single = damage or [0.0] * (layers + 1)
    rows = [
        {
            "readability": reads[at],
            "single_damage": single[at],
            "single_accuracy": 1 - single[at] / 2,
            "clean": 1.0,
            "damage": single[at],
            "residual": 0.5,
            "recovered": recovered,
            "recovered_later": 0.0,
        }
        for at in range(layers + 1)
    ]
    return Tuned(shape, kind, weights, task, layers, seed, True, rows)


def ramp(layers, late):
    return [0.0] * layers + [1.0] if late else [min(1.0, 2 * at / layers) for at in range(layers + 1)]


def test_claims_about_pretrained_models_wait_for_seeds_and_are_then_decided():
    late = {("Mamba-130M", PARITY): True, ("Mamba-130M", BRACKETS): False, ("Mamba-130M", S3): True}
    late |= {("Pythia-160M", PARITY): False, ("Pythia-160M", BRACKETS): True}
    middle = [max(0.0, 0.9 - 0.3 * abs(at - 6)) for at in range(13)]

    def models(seeds, flipped=True, damage=middle, recovered=0.95, direction=0.1):
        return [
            tuned(
                *(shape, task, ramp(SHAPES[shape][1], late[shape, task] == flipped), seed),
                damage=damage if shape == "Pythia-160M" else [direction] * (SHAPES[shape][1] + 1),
                recovered=recovered,
            )
            for shape, task in late
            for seed in range(seeds)
        ]

    def found(fine):
        return {claim.id: said for claim, said in decided({}, fine) if claim.id in ("C4", "C8", "C10")}

    assert {said.effect for said in found([]).values()} == {"pretrained weights were not at hand"}
    few = found(models(2))
    assert {said.outcome for said in few.values()} == {"untestable"}
    assert "Pythia-160M Dyck 2" in few["C8"].effect
    good = found(models(3))
    assert {said.outcome for said in good.values()} == {"supported"}
    assert "0.90 of what is known, 45 points" in good["C8"].effect
    early = [0.0, 0.9, *[0.1] * 11]
    bad = found(models(3, flipped=False, damage=early, recovered=0.8))
    assert {said.outcome for said in bad.values()} == {"contradicted"}
    assert found(models(3, direction=0.8))["C10"].outcome == "contradicted", "one direction breaks it"
