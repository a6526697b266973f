"""Subspaces along which the state is exchanged: a planted one is found, and nothing is found where there is none."""

import pytest
import torch

from mixerscope.artifacts.alignments import Alignments
from mixerscope.errors import UserError
from mixerscope.interventions import alignment
from mixerscope.interventions.alignment import Exchange, Span, learn_subspaces
from mixerscope.interventions.members import Members
from mixerscope.interventions.transplant import columns
from mixerscope.mixers.base import Mixer
from mixerscope.randomness import stream
from mixerscope.spec import RunSpec
from mixerscope.stages import Done, Impossible, align
from mixerscope.stages.state_pairs import draw_pairs
from mixerscope.tasks import Dyck, Parity
from mixerscope.tasks.base import FIRST_SYMBOL
from tests.stages.states import fresh, run_stage, spec_of

TASK = Parity(length=8)
SMALL = {"documents": 200, "learned_on": 96, "pairs": 48, "steps": 80, "batch_size": 32}


class Turned(Mixer):
    """A memory whose sign along one direction is the parity; along others, larger, lie the last inputs, unread."""

    def __init__(self, width, rows, answers, seed):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        turn = torch.linalg.qr(torch.randn(width, width, generator=rng)).Q
        self.register_buffer("direction", turn[0])
        self.register_buffer("idle", turn[1:4])
        self.register_buffer("one", rows[FIRST_SYMBOL + 1] - rows[FIRST_SYMBOL])
        self.register_buffer("middle", (rows[FIRST_SYMBOL + 1] + rows[FIRST_SYMBOL]) / 2)
        self.register_buffer("zero", rows[FIRST_SYMBOL])
        self.register_buffer("said", 4.0 * (answers[1] - answers[0]))

    def init_weights(self, rng, rule):
        """There is nothing to initialise."""

    def state_size(self, length):
        return len(self.direction)

    def initial_state(self, x):
        return ((-self.direction).expand_as(x).clone(),)

    def step(self, x, state):
        [held] = state
        is_one = ((x - self.middle) @ self.one > 0) & ((x - self.zero).square().sum(-1) > 0)
        is_one &= (x - self.zero - self.one).square().sum(-1) < 1e-6
        bit = is_one.to(x)[:, None]
        along = (held @ self.direction)[:, None] * (1 - 2 * bit)
        last = torch.cat([2.0 * (2 * bit - 1), (held @ self.idle.T)[:, :-1]], 1)
        held = along * self.direction + last @ self.idle
        return (held @ self.direction)[:, None] * self.said, (held,)

    def forward(self, x):
        state, outputs = self.initial_state(x[:, 0]), []
        for position in range(x.shape[1]):
            y, state = self.step(x[:, position], state)
            outputs.append(y)
        return torch.stack(outputs, 1)


def turned(seed=0):
    spec = spec_of(
        {"align": {**SMALL, "places": ["blocks.0.mixer.state", "both", "state"], "ranks": [1, 2]}}, TASK, "gru"
    )
    model = fresh(spec, seed)
    rng = torch.Generator().manual_seed(seed)
    block = model.layers()[0]
    with torch.no_grad():
        drawn = torch.randn(TASK.vocab_size, 16, generator=rng)
        model.token_embedding.weight.copy_(drawn - drawn.mean(1, keepdim=True))
        for weight in block.mlp.parameters():
            weight.zero_()
    rows = model.token_embedding.weight.detach().clone()
    block.mixer = Turned(16, rows, rows[TASK.answer_tokens(torch.arange(2))], seed)
    block.norm1 = torch.nn.Identity()
    return spec, model


def exchange_of(model, seed=0):
    """Of what the memory holds, between pairs to learn on."""
    members, at, site = Members([model]), 4, "blocks.0.mixer.state"
    pairs = draw_pairs(TASK, 96, at, torch.ones(2, dtype=torch.bool), stream(seed, "test"), "dev")
    known, base, source = (
        {site: x.clone() for site, x in columns(members, batch, at).items()}
        for batch in (TASK.sample(200, stream(0, "axes")), pairs.base, pairs.source)
    )
    return Exchange.between(members, pairs, at, Span.over(known, [site]), base, source)


def basis_of(exchange, seed=0, steps=80):
    [basis] = learn_subspaces(exchange, [1], lambda *what: stream(seed, *what), steps=steps, batch=32, lr=0.05)
    return basis[0, :, 0]


def planted_in(exchange, model):
    """The planted direction, in the coordinates of the span."""
    return exchange.span.axes[0].mT @ model.layers()[0].mixer.direction.double()


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_rotated_subspace_is_found(seed):
    spec, model = turned(seed)
    [result] = run_stage("align", spec, [model])
    [found] = result.artifacts
    assert isinstance(found, Alignments)
    assert Alignments.from_bytes(found.to_bytes()) == found
    assert found.accuracy == 1.0
    state = "blocks.0.mixer.state"
    learned, random = found.cell(state, "das", 1), found.cell(state, "random", 1)
    assert learned.later.value > 0.95
    assert random.later.value < 0.7, "of four axes one at random lies along it in part"
    assert found.cell(state, "swap").later.value == 1.0, "everything exchanged, everything follows"
    assert found.cell(state, "span").later.value > 0.95
    assert learned.now.value == 0.0, "what is held after an input is read from the next one on"
    assert found.cell("both", "das", 1).now.value > 0.95, "in the stream too it is read at once"
    memory = found.cell("state", "das", 1)
    assert memory.moved.value > 0.95, "late in documents the direction is the same"
    assert memory.earlier.value > 0.95, "and what is held along it is one of two, whatever inputs lie beside"
    assert learned.moved is learned.earlier is found.cell("state", "random", 1).moved is None
    exchange = exchange_of(model, seed)
    assert abs(basis_of(exchange, seed) @ planted_in(exchange, model)) > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_learning_alone_turns_random_directions_to_the_planted_one(seed, monkeypatch):
    """Where answers turn most the planted one lies as it is, so that nothing would have to be learned from there."""
    _, model = turned(seed)
    exchange = exchange_of(model, seed)
    axes = exchange.span.axes.shape[-1]
    drawn = torch.linalg.qr(torch.randn(axes, axes, generator=torch.Generator().manual_seed(seed)).double()).Q
    monkeypatch.setattr(alignment, "turning_directions", lambda *_: drawn[None])
    before, after = (abs(basis_of(exchange, seed, steps) @ planted_in(exchange, model)) for steps in (0, 80))
    assert before < 0.8
    assert after > 0.95


@pytest.mark.parametrize("better", [False, True])
def test_of_two_starts_the_one_counts_from_which_answers_follow_more(better, monkeypatch):
    """Before anything is learned: random directions that are better, or worse, than those that turn answers most."""
    _, model = turned()
    exchange = exchange_of(model)
    planted = planted_in(exchange, model)[:, None]
    others = torch.linalg.qr(torch.cat([planted, torch.eye(len(planted), dtype=planted.dtype)], 1))[0][:, 1:2]
    monkeypatch.setattr(alignment, "any_directions", lambda *_: planted if better else others)
    monkeypatch.setattr(alignment, "turning_directions", lambda *_: (others if better else planted)[None])
    assert abs(basis_of(exchange, steps=0) @ planted[:, 0]) > 0.95


def test_what_probes_read_is_exchanged_too_and_angles_are_told():
    spec, model = turned()
    [result] = run_stage("align", spec, [model])
    found = result.artifacts[0]
    for how in ("probe", "leace"):
        assert found.cell("both", how).later.value > 0.9
    assert found.cell("both", "das", 1).alike > 0.5 > found.cell("both", "random", 1).alike
    rows = list(found.rows())
    assert {row["how"] for row in rows} == {"swap", "span", "probe", "leace", "random", "das"}
    assert {one.place for one in found.spans} == {"blocks.0.mixer.state", "both", "state"}
    assert all(one.variance >= 0.99 and one.axes <= 16 * 3 for one in found.spans)


def test_a_cohort_is_aligned_as_its_members_are_and_one_astray_costs_nothing():
    spec = spec_of(
        {"align": {**SMALL, "steps": 2, "documents": 100, "ranks": [1, 3]}},
        Dyck(types=2, depth=2, length=8),
        "mamba",
        layers=2,
    )
    models = [fresh(spec, seed) for seed in (0, 1)]
    alone = [run_stage("align", spec, [model])[0].artifacts[0] for model in models]
    astray = fresh(spec, 2)
    with torch.no_grad():
        astray.blocks[0].norm1.weight.fill_(float("nan"))
    first, second, lost = run_stage("align", spec, [*models, astray])
    assert isinstance(lost, Impossible)
    for one, other in zip((first, second), alone, strict=True):
        assert isinstance(one, Done)
        together = one.artifacts[0]
        assert [cell.place for cell in together.cells] == [cell.place for cell in other.cells]
        assert [s.axes for s in together.spans] == [s.axes for s in other.spans]
        for a, b in zip(together.cells, other.cells, strict=True):
            if a.how in ("das", "random"):
                continue  # axes of the same span may come in another order
            assert a.later.value == pytest.approx(b.later.value, abs=0.15)


def test_models_are_aligned_alike_in_groups_of_any_size(monkeypatch):
    """Also where another model has room for more ranks, and whatever a subspace starts from."""
    spec = spec_of({"align": {**SMALL, "steps": 5, "ranks": [1, 4, 8], "places": ["both"]}}, TASK, "gru", width=8)
    models = [fresh(spec, seed) for seed in range(3)]
    with torch.no_grad():
        for weight in models[0].blocks[0].mixer.parameters():
            weight.mul_(3.0)
    together = [result.artifacts[0] for result in run_stage("align", spec, models)]
    monkeypatch.setattr(align, "MOST_BYTES", {"cpu": 1})
    alone = [result.artifacts[0] for result in run_stage("align", spec, models)]
    assert len({own.spans[0].axes for own in together}) > 1, "or there is nothing to tell"
    for one, other in zip(together, alone, strict=True):
        assert [(cell.how, cell.rank) for cell in one.cells] == [(cell.how, cell.rank) for cell in other.cells]
        assert max(cell.rank or 0 for cell in one.cells) <= one.spans[0].axes
        for a, b in zip(one.cells, other.cells, strict=True):
            assert (a.alike or 0.0) == pytest.approx(b.alike or 0.0, abs=1e-2), (a, b)
            assert a.later.value == pytest.approx(b.later.value, abs=0.05)


def test_directions_that_are_no_numbers_stop_no_other_model(monkeypatch):
    """As random ones are of a rank that a model has no room for, or learned ones that went astray."""
    spec = spec_of({"align": {**SMALL, "steps": 5, "ranks": [1, 2], "places": ["both"]}}, TASK, "gru", width=8)
    usual = Span.orthonormal

    def narrow(span, directions):
        basis = usual(span, directions).clone()
        basis[1] = torch.nan if directions.shape[-1] > 1 else basis[1]
        return basis

    monkeypatch.setattr(Span, "orthonormal", narrow)
    wide, small = (result.artifacts[0] for result in run_stage("align", spec, [fresh(spec, seed) for seed in (0, 1)]))
    assert {cell.rank for cell in wide.cells if cell.how in ("das", "random")} == {1, 2}
    assert {cell.rank for cell in small.cells if cell.how in ("das", "random")} == {1}


def test_what_models_take_together_is_no_more_than_is_allowed_for(monkeypatch):
    """Gradients of what is written go through every step of the recurrences in the layers behind it."""
    asked = {"documents": 32, "learned_on": 32, "pairs": 16, "steps": 1, "ranks": [1, 2], "places": ["both"]}
    spec = spec_of({"align": asked}, Parity(length=16), "mamba", layers=4, options={"d_state": 64})
    stage, most, kept = spec.stages["align"], [0], dict[int, torch.Tensor]()
    losses = Exchange.losses

    def noted(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def counted(*given):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
            found = losses(*given)
        most[0] = max(most[0], sum(tensor.untyped_storage().nbytes() for tensor in kept.values()))
        return found

    monkeypatch.setattr(Exchange, "losses", counted)
    model = fresh(spec)
    run_stage("align", spec, [model])
    documents = stage._documents(spec, torch.device("cpu"))
    held = columns(Members([model]), documents.known[:1], documents.at)
    each = sum(x.shape[-1] for x in held.values()) * stage._bytes_a_number(documents)
    assert 0.5 * each < most[0] < each
    monkeypatch.setattr(align, "MOST_BYTES", {"cpu": int(4.5 * each)})
    assert [len(group) for group in stage._at_once([model] * 9, documents)] == [3, 3, 3], "not 4, 4 and 1"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"places": ["blocks.7.resid_pre"]}, "no place to align named 'blocks.7.resid_pre'"),
        ({"label": "depth"}, "no label of Parity named 'depth'"),
        ({"position": 8}, "position = 8 leaves no inputs"),
        ({"ranks": [2, 999]}, "999 is more than the 256 axes"),
    ],
)
def test_what_cannot_be_aligned_is_refused(settings, words):
    spec = RunSpec.model_validate(
        {"task": TASK, "model": {"architecture": "gru"}, "stages": {"align": settings}, "train": {"steps": 1}}
    )
    with pytest.raises(UserError, match=words):
        spec.stages["align"].check(spec)


def test_where_less_is_held_than_any_rank_asks_for_nothing_is_learned():
    stage = {
        "documents": 64,
        "learned_on": 16,
        "pairs": 16,
        "steps": 1,
        "ranks": [64],
        "places": ["blocks.0.resid_post"],
    }
    spec = spec_of({"align": stage}, TASK, "gru", width=16)
    [result] = run_stage("align", spec, [fresh(spec)])
    [found] = result.artifacts
    assert {one.how for one in found.cells} == {"swap", "span", "probe", "leace"}
