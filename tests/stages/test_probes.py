"""Probes: they find what is planted where it is planted, and their controls find nothing."""

import json
from dataclasses import replace

import pytest
import torch

from mixerscope.analysis import proportion_estimate
from mixerscope.analysis.stats import likelihood_estimates
from mixerscope.artifacts import Probes
from mixerscope.errors import UserError
from mixerscope.probing.controls import baselines, contexts, control_labels, usual
from mixerscope.probing.logistic import logistic_accuracy
from mixerscope.probing.ridge import (
    Parts,
    balanced_by_document,
    balanced_share,
    both_parts_by_document,
    fit_probes,
    moments,
    parts_by_document,
)
from mixerscope.stages import Done
from mixerscope.stages.vectors import draw_vectors, label_names
from mixerscope.tasks import Dyck, GroupWord, Parity
from tests.stages.states import fresh, run_stage, spec_of

RNG = torch.Generator


def rng(seed=0):
    return RNG().manual_seed(seed)


def halves(n):
    at = torch.arange(n)
    return Parts(at % 5 < 3, at % 5 == 3, at % 5 == 4)


def planted(n=1500, d=12, classes=3, strength=3.0):
    """Vectors of two models of which the second alone holds the label, in a random direction for each class."""
    label = torch.randint(classes, (n,), generator=rng(1))
    noise = torch.randn(2, n, d, generator=rng(2), dtype=torch.float64)
    directions = torch.randn(classes, d, generator=rng(3), dtype=torch.float64)
    noise[1] += strength * directions[label]
    return noise, label


def test_ridge_reads_what_is_there_and_only_there():
    x, label = planted()
    parts = halves(len(label))
    found = moments(x, parts)
    probe = fit_probes(found, {"label": label}, parts)["label"]
    assert probe.accuracy[0] < 0.42
    assert probe.accuracy[1] > 0.97
    assert (logistic_accuracy(found, label, parts) - probe.accuracy).abs().max() < 0.06
    judged = probe.scores(x)[:, parts.judge].argmax(-1) == label[parts.judge]
    assert torch.equal(judged, probe.right)


def test_what_rounding_makes_of_axes_that_hardly_vary_ends_no_probe():
    """Of an erased recurrence: products of one model are no longer positive, by more than a small penalty adds."""
    x, label = planted()
    x = x.flip(0)  # the first model holds it
    parts = halves(len(label))
    found = moments(x, parts)
    broken = found.gram.clone()
    values, axes = torch.linalg.eigh(broken[0])
    values[0] = -0.02 * values.mean()
    broken[0] = axes @ values.diag() @ axes.mT
    probe = fit_probes(replace(found, gram=broken), {"label": label}, parts)["label"]
    whole = fit_probes(found, {"label": label}, parts)["label"]
    assert probe.weight.isfinite().all()
    assert torch.equal(probe.weight[1], whole.weight[1]), "another model of the stack is as it was"
    assert probe.accuracy[0] > 0.97, "what is there is read all the same"


def test_every_penalty_is_the_ridge_of_the_textbook():
    x, label = planted(n=200)
    parts = halves(len(label))
    for penalty in (1e-3, 1.0, 1e3):
        found = moments(x, parts)
        probe = fit_probes(found, {"label": label}, parts, [penalty])["label"]
        for k in range(2):
            known = x[k, parts.fit]
            z = (known - known.mean(0)) / known.std(0, correction=0)
            gram = z.T @ z
            y = torch.nn.functional.one_hot(label[parts.fit]).double()
            size = penalty * torch.linalg.eigvalsh(gram).mean()
            weight = torch.linalg.solve(gram + size * torch.eye(len(gram), dtype=z.dtype), z.T @ (y - y.mean(0)))
            weight /= known.std(0, correction=0)[:, None]
            torch.testing.assert_close(probe.weight[k], weight, rtol=1e-8, atol=1e-10)


def test_single_precision_tells_all_but_a_vector_in_a_thousand_alike():
    x, label = planted(n=4000, d=48, strength=0.4)
    x[..., :8] *= torch.logspace(-3, 3, 8, dtype=torch.float64)
    x = (x + 20).float()
    parts = halves(len(label))
    single, double = (fit_probes(moments(y, parts), {"": label}, parts)[""] for y in (x, x.double()))
    assert (single.right != double.right).double().mean() < 0.001
    assert torch.equal(single.penalty, double.penalty)
    assert 0.5 < double.accuracy[1] < 0.99, "neither easy nor hopeless"


def test_what_a_map_makes_of_vectors_has_the_moments_that_it_makes_of_theirs():
    x, label = planted(n=500)
    parts = halves(len(label))
    matrix = torch.randn(2, 12, 12, generator=rng(5), dtype=torch.float64)
    matrix[..., 3] = 0
    found, again = moments(x, parts).through(matrix), moments(x @ matrix, parts)
    torch.testing.assert_close(found.gram, again.gram)
    one, other = (fit_probes(each, {"": label}, parts)[""] for each in (found, again))
    assert torch.equal(one.right, other.right)
    torch.testing.assert_close(one.weight, matrix @ other.weight)
    nothing = moments(x, parts).through(torch.zeros_like(matrix))
    assert fit_probes(nothing, {"": label}, parts)[""].accuracy.tolist() == pytest.approx([1 / 3] * 2)


def test_numbers_that_never_vary_are_no_trouble():
    x, label = planted(n=300)
    x[..., 4] = 7.0
    parts = halves(len(label))
    probe = fit_probes(moments(x, parts), {"label": label}, parts)["label"]
    assert probe.weight.isfinite().all()
    assert probe.accuracy[1] > 0.9


def test_a_document_is_in_one_part_however_often_it_was_drawn():
    tokens = torch.randint(2, (400, 5), generator=rng())
    parts = parts_by_document(tokens, 3, rng(1))
    assert ((parts.fit.long() + parts.choose.long() + parts.judge.long()) == 1).all()
    in_fit = {tuple(row) for row in tokens.repeat_interleave(3, 0)[parts.fit].tolist()}
    assert not in_fit & {tuple(row) for row in tokens.repeat_interleave(3, 0)[parts.judge].tolist()}
    same, unseen = both_parts_by_document(tokens, 3, rng(1))
    assert all(torch.equal(vars(same)[name], one) for name, one in vars(parts).items())
    assert torch.equal(unseen.judge, parts.judge)
    assert torch.equal(unseen.fit | unseen.choose, parts.choose), "nothing that an erasure is fitted to"
    assert not (unseen.fit & unseen.choose).any()
    assert unseen.usable
    assert not Parts(unseen.fit, unseen.fit & unseen.judge, unseen.judge).usable


def test_balanced_accuracy_counts_every_class_alike():
    label = torch.tensor([0, 0, 0, 0, 2])
    assert balanced_share(torch.tensor([1.0, 1, 1, 1, 0]), label) == 0.5


def test_tables_of_the_last_tokens_and_of_positions_find_what_they_can():
    assert usual(torch.tensor([1, 1, 1, 2]), torch.tensor([0, 1, 1, 0]), torch.tensor([1, 2, 9])).tolist() == [1, 0, 0]
    tokens = torch.randint(3, 6, (600, 9), generator=rng())
    positions = torch.randint(4, 9, (600, 2), generator=rng(1))
    parts = parts_by_document(tokens, 2, rng(2))
    last = tokens.gather(1, positions).flatten() - 3
    every = torch.ones(1200, dtype=torch.bool)
    found = baselines(tokens, positions, last, parts, every)
    assert found["window"] > 0.95
    assert found["chance"] == pytest.approx(1 / 3)
    assert found["position"] < 0.45
    by_position = baselines(tokens, positions, (positions % 2).flatten(), parts, every)
    assert by_position["position"] == 1.0
    control = control_labels(tokens, positions, last, rng(3))
    same = contexts(tokens, positions, 6).flatten()
    assert (control[same == same[0]] == control[0]).all(), "a function of the last six tokens"
    assert torch.bincount(control, minlength=3).min() > 200, "as frequent as the labels"


def test_a_planted_layer_is_found_and_not_before():
    """The state is written into the stream by the second of three blocks: probes must see it from there on."""
    spec = spec_of({"probes": {"documents": 300}}, Parity(length=8), "gru", layers=3, width=12)
    model, task = fresh(spec), spec.task

    def give(tokens):
        states = task.automaton.run(task.inputs_of(tokens))
        return torch.nn.functional.one_hot(states, 12).float() * 4

    block, embed = model.blocks[1], model.embed_tokens

    def remember(tokens):
        block.given = give(tokens)
        return embed(tokens)

    model.embed_tokens = remember
    finish = block.finish
    block.finish = lambda x: finish(x + block.given)
    [result] = run_stage("probes", spec, [model])
    assert isinstance(result, Done)
    [found] = result.artifacts
    assert isinstance(found, Probes)
    assert Probes.from_bytes(found.to_bytes()) == found
    [label] = found.labels
    assert (label.name, label.positions, label.classes) == ("answer", "every", 2)
    table = {row["site"]: row for row in found.rows()}
    early, late = table["blocks.1.resid_pre"], table["blocks.2.resid_pre"]
    assert late["accuracy"] > 0.95
    assert late["untrained"] < late["accuracy"] - 0.2
    assert late["logistic"] == pytest.approx(late["accuracy"], abs=0.1)
    assert early["accuracy"] < 0.9
    assert max(row["shuffled"] for row in table.values()) < 0.7
    assert set(found.boundaries) <= set(found.sites)
    assert "logits" not in found.sites
    assert len(found.curve()) == 4


def test_hard_positions_are_told_apart():
    spec = spec_of({"probes": {"documents": 200, "sites": ["embed"]}}, Dyck(length=10), "gru")
    [result] = run_stage("probes", spec, [fresh(spec)])
    [found] = result.artifacts
    rows = {(row["label"], row["positions"]): row for row in found.rows()}
    assert {name for name, _ in rows} == {"answer", "depth"}
    # Right after a bracket opens it is the last token; after one closes the last token does not say what is open.
    assert rows["answer", "every"]["accuracy"] > rows["answer", "hard"]["accuracy"] + 0.2
    assert found.curve("nothing") is None


def test_labels_and_sites_that_do_not_exist_are_refused():
    for settings, reason in (({"labels": ["sin"]}, "no label of GroupWord named 'sin'"), ({"sites": ["x"]}, "site to")):
        spec = spec_of({"probes": settings}, GroupWord(length=8))
        with pytest.raises(UserError, match=reason):
            spec.stages["probes"].check(spec)


def test_documents_that_leave_nothing_to_judge_by_are_refused():
    with pytest.raises(UserError, match="first = 9 leaves no position"):
        run_stage("probes", spec_of({"probes": {"first": 9}}), [])
    short = spec_of({"probes": {"documents": 40}}, Parity(length=4))
    with pytest.raises(UserError, match="too few different ones"):
        run_stage("probes", short, [fresh(short)])


def test_another_label_alone_is_probed_without_the_answer():
    task = GroupWord(length=6)
    both, alone = ({"documents": 200, "sites": ["blocks.0.resid_post"], "labels": own} for own in ([], ["sign"]))
    [of_both], [of_one] = (
        run_stage("probes", spec, [fresh(spec)])[0].artifacts
        for spec in (spec_of({"probes": settings}, task) for settings in (both, alone))
    )
    assert [label.name for label in of_one.labels] == ["sign"]
    assert of_one.accuracy == of_both.accuracy[1:]


def test_what_is_true_of_a_state_is_probed_once():
    assert label_names(GroupWord()) == ["answer", "sign"]
    assert label_names(GroupWord(ask="sign")) == ["answer", "state"]
    assert label_names(Dyck()) == ["answer", "depth"]
    drawn = draw_vectors(Dyck(after_close=True, noop=0.2), 100, 4, None, ["answer"], 0)
    used = drawn.parts.fit | drawn.parts.choose | drawn.parts.judge
    assert drawn.hard[used].all()


def test_documents_scatter_as_the_balanced_share_does():
    """Vectors of one document are right or wrong together, classes are of different sizes: of 400 draws of documents,
    95 in 100 intervals must hold the truth, which one over vectors would miss far more often."""
    chances, sizes = torch.tensor([0.9, 0.6, 0.3]), torch.tensor([0.7, 0.2, 0.1])
    truth, held, naive, draws, documents, each = chances.mean().item(), 0, 0, 400, 150, 4
    draw = rng(5)
    document = torch.arange(documents).repeat_interleave(each)
    for _ in range(draws):
        label = torch.multinomial(sizes, documents, True, generator=draw).repeat_interleave(each)
        right = (torch.rand(documents, generator=draw).repeat_interleave(each) < chances[label])[None]
        values = balanced_by_document(right, label, document)
        assert values.shape == (1, documents)
        assert values.mean().item() == pytest.approx(balanced_share(right, label).item())
        [found] = likelihood_estimates(values)
        held += found.low <= truth <= found.high
        alone = proportion_estimate(right[0])
        naive += abs(found.value - truth) <= (alone.high - alone.low) / 2
    assert 0.92 * draws <= held <= 0.99 * draws
    assert naive < 0.8 * draws


def test_an_accuracy_has_its_interval_and_a_table_from_before_has_none():
    spec = spec_of({"probes": {"documents": 80, "logistic": False}}, Parity(length=6), "gru", width=8)
    [result] = run_stage("probes", spec, [fresh(spec)])
    [found] = result.artifacts
    for row in found.rows():
        assert 0 <= row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"] <= 1
    assert any(row["accuracy_low"] < row["accuracy"] for row in found.rows())
    said = json.loads(found.to_bytes())
    del said["accuracy_low"], said["accuracy_high"]
    before = Probes.from_bytes(json.dumps(said).encode())
    assert {row["accuracy_low"] for row in before.rows()} == {None}


def test_no_document_has_more_positions_than_it_has():
    batches = [draw_vectors(Parity(length=8), 60, each, None, ["answer"], 0) for each in (9, 100)]
    assert batches[1].positions.shape == (60, 9)
    assert torch.equal(batches[0].labels["answer"], batches[1].labels["answer"])
