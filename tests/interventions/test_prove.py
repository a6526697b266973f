"""Routes put to the proof: the whole route alone is enough, nothing else is needed, and any route can be tried."""

import copy
import json
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from mixerscope.artifacts.proof import Proof
from mixerscope.errors import CorruptFile, UnknownName, UserError
from mixerscope.interventions import PairSettings, Route, make_pairs, other_sizes, prove, prove_cohort
from mixerscope.interventions.plan import boundary_sites
from mixerscope.interventions.prove import MOVED, stations
from mixerscope.planted import TASK
from mixerscope.planted.brought_unasked import (
    beside_a_loud_copy,
    every_time_it_was_said,
    gathered_in_code,
    with_neighbour,
)
from mixerscope.planted.exceptions import last_by_default
from mixerscope.planted.mixtures import half_guessing
from mixerscope.planted.models import conv_recurrence, direct_retriever, induction_transformer, two_routes
from mixerscope.planted.separate_ways import SMALLER, gathered, numbered
from mixerscope.planted.several_at_once import quiet_second
from mixerscope.planted.writing import Basis, attention_of, fetch
from mixerscope.randomness import stream
from mixerscope.sites import edit, record
from mixerscope.tasks import AR
from tests.interventions.elsewhere import a_device_elsewhere, send
from tests.interventions.test_one_engine import foreign, make

SETTINGS = PairSettings(documents=24, slots=("key", "value"), avoid_present=True)
PAIRS = make_pairs(TASK, SETTINGS, data_seed=0)


@torch.no_grad()
def said_without_a_match(task, seed: int):
    """Induction, of the last pair too; where nothing matches, the last value is said as loudly."""
    model, basis = last_by_default(task, seed), Basis(task, seed)
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    return model


def slow(model, pairs, slot: str, carriers: tuple[str, ...]) -> tuple[list[float], ...]:
    """Sufficient and necessary of every document by hand, and what is answered then: one document, one run, one hook at
    each station at a time."""
    sites = stations(model, pairs)
    found: tuple[list[float], ...] = ([], [], [], [])
    for i in range(len(pairs)):
        clean, corrupted = pairs.original.tokens[i : i + 1], pairs.corrupted[slot].tokens[i : i + 1]
        read, answer = int(pairs.reads.positions[i, 0]), int(pairs.reads.targets[i, 0])
        at = [int(pairs.positions(role)[i]) for role in carriers]

        def run(tokens, elsewhere=None, at=at):
            def writer(site, place):
                def write(x):
                    y = elsewhere[site].clone()
                    y[0, place] = x[0, place]
                    return y

                return write

            taps = {} if elsewhere is None else {s: writer(s, p) for s, p in zip(sites, at, strict=True)}
            with torch.no_grad(), edit(model, taps):
                return model(tokens)[0]

        def held(tokens):
            with record(model, sites) as seen, torch.no_grad():
                model(tokens)
            return dict(seen)

        low_logits = run(corrupted)[read]
        other = int(pairs.reads.others[slot][i, 0])
        if other in (-100, answer):
            ranked = low_logits.clone()
            ranked[answer] = -torch.inf
            other = int(ranked.argmax())

        def difference(logits, answer=answer, other=other):
            return float(logits[answer] - logits[other])

        high, low = difference(run(clean)[read]), difference(low_logits)
        alone, without = run(clean, held(corrupted))[read], run(corrupted, held(clean))[read]
        found[0].append((difference(alone) - low) / (high - low))
        found[1].append((high - difference(without)) / (high - low))
        for answers, logits in zip(found[2:], (alone, without), strict=True):
            answers.append(int(logits.argmax()) == answer)
    return found


@pytest.mark.parametrize("kind", ["attention", "mamba", "deltanet", "three layers", "foreign"])
def test_shares_of_any_route_equal_those_found_by_hand(kind: str):
    models = {
        "three layers": lambda: induction_transformer(TASK, 0, idle_before=1).double(),
        "foreign": lambda: foreign().double(),
    }
    model = models[kind]() if kind in models else make(architecture=kind)
    task = TASK if kind == "three layers" else None
    pairs = PAIRS if task else make_pairs(make_task(), replace_documents(6), data_seed=0)
    pairs = next(pairs.chunks(6))
    count = len(stations(model, pairs))
    for slot, carriers in (("key", ("value", "query", "key")[:count]), ("value", ("query", "value", "key")[:count])):
        [found] = prove(model, pairs, carriers, slot).routes
        sufficient, necessary, answered, kept = (torch.tensor(each) for each in slow(model, pairs, slot, carriers))
        counts = found.gap
        assert torch.equal(found.answered, answered)
        assert torch.equal(found.kept, kept)
        torch.testing.assert_close(found.sufficient[counts].float(), sufficient[counts], rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(found.necessary[counts].float(), necessary[counts], rtol=2e-3, atol=2e-3)


def make_task():
    from tests.interventions.test_one_engine import TASK as SMALL

    return SMALL


def replace_documents(count: int) -> PairSettings:
    return SETTINGS.changed(documents=count)


def test_the_route_that_was_planted_passes_and_any_other_fails():
    model = induction_transformer(TASK, 0)
    for role in ("key", "value", "next_key", "divider", "query"):
        [route] = prove(model, PAIRS, role).routes
        both = torch.minimum(route.sufficient, route.necessary)[route.gap]
        assert route.gap.sum() > 10
        assert bool((both > 0.9).all()) == (role == "value"), role
        assert bool((both < 0.1).all()) == (role != "value"), role


def test_a_route_through_three_layers_is_tested_as_a_whole():
    model = induction_transformer(TASK, 0, idle_before=1)
    right, wrong = (prove(model, PAIRS, path).routes[0] for path in (("key", "value"), ("value", "value")))
    assert (torch.minimum(right.sufficient, right.necessary)[right.gap] > 0.9).all()
    assert (wrong.sufficient[wrong.gap] < 0.1).all()


def test_inside_a_single_block_the_stations_are_its_parts():
    model = conv_recurrence(TASK, 0)
    assert stations(model, PAIRS) == ("blocks.0.mixer.conv_out",)
    [route] = prove(model, PAIRS, "next_key").routes
    assert (torch.minimum(route.sufficient, route.necessary)[route.gap] > 0.9).all()


def test_models_of_a_cohort_are_tried_with_routes_of_their_own():
    models = [induction_transformer(TASK, seed) for seed in range(3)]
    routes = [[Route("key", ("value",))], [Route("key", ("query",)), Route("value", ("value",))], []]
    together = prove_cohort(models, PAIRS, routes, other_sizes(PAIRS, SETTINGS, 8))
    for model, own, proof in zip(models, routes, together, strict=True):
        alone = prove_cohort([model], PAIRS, [own], other_sizes(PAIRS, SETTINGS, 8))[0]
        assert [(r.slot, r.carriers, r.on) for r in proof.routes] == [(r.slot, r.carriers, r.on) for r in alone.routes]
        for mine, other in zip(proof.routes, alone.routes, strict=True):
            assert torch.equal(mine.gap, other.gap)
            torch.testing.assert_close(mine.sufficient, other.sufficient, rtol=1e-2, atol=1e-2)
            torch.testing.assert_close(mine.necessary, other.necessary, rtol=1e-2, atol=1e-2)
        for mine, other in zip(proof.followed, alone.followed, strict=True):
            assert mine.kind == other.kind
            assert torch.equal(mine.right, other.right)
        assert [variant.name for variant in proof.variants] == ["7 pairs"]


def test_counterfactuals_are_followed_by_a_model_that_retrieves():
    proof = prove(direct_retriever(TASK, 0, block=0, layers=2), PAIRS, "query")
    assert [followed.kind for followed in proof.followed] == ["query", "swap-keys", "value", MOVED]
    for followed in proof.followed:
        assert len(followed.right) > 500
        assert followed.right.all()


def test_documents_that_are_longer_than_learned_positions_are_not_tried():
    model = induction_transformer(TASK, 0)  # knows the positions of its own task alone
    proof = prove(model, PAIRS, "value", variants=other_sizes(PAIRS, SETTINGS, 8))
    [variant] = proof.variants
    assert "longer than the" in variant.reason
    assert len(variant.right) == 0
    assert all(route.on == "" for route in proof.routes)


def test_a_proof_elsewhere_is_the_proof_here():
    models = [make(seed) for seed in range(2)]
    pairs = make_pairs(make_task(), replace_documents(6), data_seed=0)
    routes = [[Route("key", ("value",))], [Route("value", ("query",))]]
    with a_device_elsewhere():
        away = [copy.deepcopy(model).float() for model in models]
        for model in away:
            send(model)
        found = prove_cohort(away, pairs, routes)
    for mine, other in zip(found, prove_cohort([m.float() for m in models], pairs, routes), strict=True):
        for a, b in zip(mine.routes, other.routes, strict=True):
            torch.testing.assert_close(a.sufficient, b.sufficient, rtol=1e-2, atol=1e-2)


def test_a_proof_is_kept_as_it_is():
    proof = prove(induction_transformer(TASK, 0), PAIRS, "value", variants=other_sizes(PAIRS, SETTINGS, 8))
    kept = Proof.from_bytes(proof.to_bytes())
    assert kept.to_bytes() == proof.to_bytes()
    assert list(kept.rows()) == list(proof.rows())
    assert torch.equal(kept.routes[0].sufficient, proof.routes[0].sufficient)
    for damaged in (b"", proof.to_bytes()[:-3], b"\0" * 400):
        with pytest.raises(CorruptFile):
            Proof.from_bytes(damaged)


@pytest.mark.parametrize(("architecture", "foreign_too"), [("attention", True), ("mamba", False)])
def test_what_stands_of_a_value_that_is_not_asked_is_found_as_by_hand(architecture: str, foreign_too: bool):
    task = make_task()
    pairs = make_pairs(task, replace_documents(6), data_seed=0)
    swapped = task.counterfactual("swap-keys", pairs.original, stream(0, "proof", "swap-keys"))
    at, new = pairs.positions("value"), pairs.corrupted["value"].tokens
    for model in [make(architecture=architecture), *([foreign().double()] if foreign_too else [])]:
        model.eval()
        sites = boundary_sites(model)
        for block, found in enumerate(prove(model, pairs, ["value"] * (len(sites) - 2)).unasked):
            assert (found.slot, found.block) == ("value", block)
            site = sites[block + 1]
            for i in range(len(pairs)):
                read, target = int(pairs.reads.positions[i, 0]), int(pairs.reads.targets[i, 0])

                def run(tokens, change=None, model=model, site=site, read=read):
                    def tap(x):
                        x = x.clone()
                        x[0, read] += change
                        return x

                    taps = {} if change is None else {site: tap}
                    with record(model, [site]) as seen, edit(model, taps), torch.no_grad():
                        logits = model(tokens)[0, read]
                    return logits, seen[site][0, read]

                def stands(tokens, i=i, run=run):
                    gone = tokens.clone()
                    gone[0, at[i]] = new[i, at[i]]
                    return run(tokens)[1] - run(gone)[1]

                document = pairs.original.tokens[i : i + 1]
                questions = [document.clone() for _ in range(task.num_pairs)]
                for pair, asked in enumerate(questions):
                    asked[0, read] = document[0, 1 + 2 * pair]
                others = [asked for asked in questions if not torch.equal(asked, document)]
                assert len(others) == task.num_pairs - 1
                ways = [stands(tokens) for tokens in (*others, swapped.tokens[i : i + 1])]
                (clean, _), (corrupted, _) = run(document), run(new[i : i + 1])
                edited = [run(new[i : i + 1], change)[0] for change in ways]
                counts = int(clean.argmax()) == target != int(corrupted.argmax())
                assert bool(found.gap[i]) == counts
                assert bool(found.answered[i]) == any(int(said.argmax()) == target for said in edited)
                if counts:
                    moved = max((said - corrupted).abs().max() for said in edited) / (clean - corrupted).abs().max()
                    assert found.share[i].item() == pytest.approx(moved.item(), rel=1e-2, abs=1e-2)


@pytest.mark.parametrize(
    ("build", "task", "all_of_it"),
    [
        (induction_transformer, TASK, ()),
        (lambda task, seed: direct_retriever(task, seed, 0, 2), TASK, ()),
        (gathered, SMALLER, (0,)),
        (lambda task, seed: gathered(task, seed, said_again=True), SMALLER, (0,)),
        (numbered, TASK, (0,)),
        (lambda task, seed: numbered(task, seed, picks=0), TASK, ()),
        (gathered_in_code, SMALLER, (0,)),
        (lambda task, seed: gathered_in_code(task, seed, apart=True), SMALLER.changed(num_keys=4, num_values=4), (0,)),
        (with_neighbour, AR(num_pairs=6, num_keys=8, num_values=8), (0,)),
    ],
)
def test_a_block_that_brings_what_is_not_asked_is_known(build, task, all_of_it: tuple[int, ...]):
    pairs = make_pairs(task, SETTINGS, data_seed=0)
    found = prove(build(task, 0), pairs, "value").unasked
    assert len(found) == 2
    for one in found:
        assert one.gap.sum() > 10
        assert one.kept_out(0.5).double().mean().item() == (one.block not in all_of_it)


@pytest.mark.parametrize(
    ("build", "task", "low", "high"),
    [
        (beside_a_loud_copy, SMALLER, 0.5, 0.8),  # a third has another key that is answered in the same way
        (every_time_it_was_said, TASK.changed(repeated_keys=1), 0.2, 0.7),  # all but the last pair can be said again
        (lambda task, seed: direct_retriever(task, seed, 1, 3), TASK, 1.0, 1.0),
    ],
)
def test_what_is_brought_for_some_questions_is_known_whatever_stands_there_for_others(build, task, low, high):
    pairs = make_pairs(task, SETTINGS, data_seed=0)
    [second] = [one for one in prove(build(task, 0), pairs, ["value"] * 2).unasked if one.block == 1]
    assert low <= second.kept_out(0.5).double().mean().item() <= high


@pytest.mark.parametrize(
    ("build", "share"), [(induction_transformer, 0.0), (last_by_default, 0.25), (said_without_a_match, 0.0)]
)
def test_answers_that_need_no_key_are_told_from_those_that_are_guessed_without(build, share: float):
    pairs = make_pairs(TASK, SETTINGS.changed(documents=128), data_seed=0)
    key, value = prove(build(TASK, 0), pairs, "value").unmoved
    assert (key.slot, value.slot) == ("key", "value")
    last = pairs.original.labels["pair"] == TASK.num_pairs - 1
    assert torch.equal(key.whatever(0.2), last if share else torch.zeros_like(last))
    assert torch.equal(key.stays, last if build is not induction_transformer else torch.zeros_like(last))
    assert not value.stays.any()


def test_answers_that_stay_when_the_document_changes_are_counted():
    half = prove(half_guessing(TASK, 0), PAIRS, "value").followed
    whole = prove(induction_transformer(TASK, 0), PAIRS, "value").followed
    for kind, lucky, read_off in zip((*TASK.counterfactuals, MOVED), half, whole, strict=True):
        assert lucky.kind == read_off.kind == kind
        assert read_off.given_up().all()
        # A fifth of the right answers are the first value, which swapping keys leaves there; its own change does not.
        share = lucky.given_up().double().mean().item()
        assert share == 1 if kind == "value" else 0.72 < share < 0.88, kind


def test_a_proof_that_asked_what_blocks_write_for_a_question_is_read_by_that():
    proof = prove(gathered(SMALLER, 0), make_pairs(SMALLER, SETTINGS, data_seed=0), "value")
    data = proof.to_bytes()
    header = json.loads(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["proof"])
    header |= {"version": 3, "asked": [{"slot": "query", "block": block} for block in (0, 1)]}
    del header["unasked"], header["unmoved"]
    later = ("unasked", "unmoved")
    tensors = {n: t for n, t in safetensors.torch.load(data).items() if not n.startswith(later) and "stays" not in n}
    gap = torch.tensor([True, True, False])
    for block, good in ((0, False), (1, True)):
        tensors |= {f"asked.{block}.gap": gap.clone(), f"asked.{block}.answered": torch.full_like(gap, good)}
        tensors[f"asked.{block}.share"] = torch.full(gap.shape, float(good), dtype=torch.float16)
    for followed in header["followed"]:
        followed.pop("stays", None)
    older = Proof.from_bytes(safetensors.torch.save(tensors, metadata={"proof": json.dumps(header)}))
    assert [one.kept_out(0.5).tolist() for one in older.unasked] == [[False, False], [True, True]]
    assert all(followed.stays is None for followed in older.followed)


def test_a_proof_from_before_answers_were_kept_is_read_by_its_shares():
    proof = prove(induction_transformer(TASK, 0), PAIRS, "value")
    data = proof.to_bytes()
    tensors = {n: t for n, t in safetensors.torch.load(data).items() if not n.endswith(("answered", "kept"))}
    header = json.loads(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["proof"])
    del header["unasked"], header["unmoved"]
    older = safetensors.torch.save(tensors, metadata={"proof": json.dumps({**header, "version": 2})})
    [route], unasked = Proof.from_bytes(older).routes, Proof.from_bytes(older).unasked
    assert unasked == ()
    assert torch.equal(route.brings_back(0.5), proof.routes[0].sufficient[route.gap] > 0.5)
    assert torch.equal(route.takes_away(0.5), proof.routes[0].necessary[route.gap] > 0.5)


@pytest.mark.parametrize(
    ("build", "answered", "kept"),
    [
        (lambda: two_routes(TASK, 0, induction=0.9, direct=0.5), False, False),  # most of it, and yet no answer
        (lambda: quiet_second(TASK, 0), True, True),  # most of it is lost, and yet not the answer
    ],
)
def test_most_of_a_logit_difference_is_not_yet_an_answer(build, answered: bool, kept: bool):
    model = build()
    [route] = prove(model, PAIRS, ("value", "query")[: len(stations(model, PAIRS))]).routes
    assert (torch.minimum(route.sufficient, route.necessary)[route.gap] > 0.5).all()
    assert (route.answered[route.gap] == answered).all()
    assert (route.kept[route.gap] == kept).all()
    assert not (route.brings_back(0.5) & route.takes_away(0.5)).any()


@pytest.mark.parametrize(
    ("route", "slot", "message"),
    [
        (["value", "value"], "key", "names a role at each of blocks.1.resid_pre, got value, value"),
        ([], "key", "got none"),
        ("vale", "key", "role"),
        ("*", "key", "names a role at each of blocks.1.resid_pre, and '\\*' is none"),
        ("value", "kee", "no slot that is corrupted named 'kee'"),
        (None, "key", "the name of a role at each station, such as 'value', not None"),
        ([3], "key", "not \\[3\\]"),
    ],
)
def test_a_route_that_the_model_cannot_have_is_refused_in_a_sentence(route, slot: str, message: str):
    with pytest.raises((UserError, UnknownName), match=message):
        prove(induction_transformer(TASK, 0), PAIRS, route, slot)


def test_documents_without_a_task_are_proven_without_counterfactuals():
    bare = replace(PAIRS, task=None)
    proof = prove(induction_transformer(TASK, 0), bare, "value")
    assert proof.followed == ()
    assert other_sizes(bare) == {}
