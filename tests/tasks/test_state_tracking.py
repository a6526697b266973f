"""Tasks that track a state: tables against definitions, documents against automata written out by hand."""

import itertools
from pathlib import Path

import pytest
import torch

from mixerscope.analysis.state_rules import StateRules
from mixerscope.errors import UserError
from mixerscope.registry import TASKS
from mixerscope.tasks import Dyck, FlipFlop, GroupWord, Parity, guessing_baselines
from mixerscope.tasks.automaton import NOTHING
from mixerscope.tasks.base import PAD, UNSCORED
from mixerscope.tasks.baselines import best_guess_of_all
from mixerscope.tasks.groups import group
from tests.tasks.every import PRESETS, STATES, generator, task_of

GROUPS = {"Z2": 2, "Z6": 6, "Z2xZ3": 6, "S3": 6, "A4": 12, "S4": 24, "A5": 60, "S5": 120}
EVERY = [(name, preset) for name, preset in PRESETS if name in STATES]


@pytest.mark.parametrize(("name", "order"), GROUPS.items())
def test_tables_are_groups(name, order):
    found = group(name)
    table = found.table
    assert table.shape == (order, order)
    every = torch.arange(order)
    assert torch.equal(table[0], every)
    assert torch.equal(table[:, 0], every)
    assert torch.equal(table[table], table[:, table]), "(a b) c = a (b c)"
    assert ((table == 0).sum(1) == 1).all(), "one inverse each"
    assert ((table == 0) == (table == 0).T).all(), "on both sides"
    assert torch.equal(table, table.T) == name.startswith("Z")
    for label in found.labels.values():  # what a smaller group sees is a product there too
        images = {(int(label[a]), int(label[b])): int(label[table[a, b]]) for a in every for b in every}
        assert all(images[int(label[a]), int(label[b])] == int(label[table[a, b]]) for a in every for b in every)
        assert 1 < len(set(label.tolist())) < order


def test_products_of_permutations_apply_the_new_one_first():
    found = group("S3")
    at = found.names.index
    # "102" exchanges the first two, "021" the last two: x = "021" first sends 1 to 2, then s = "102" leaves 2.
    assert found.names[found.table[at("102"), at("021")]] == "120"
    assert found.names[found.table[at("021"), at("102")]] == "201"


def by_hand(task, names):
    """The answer after each input of one document, by the definition of the task and nothing else."""
    said, stack, held, total = [], [], "none", None
    for name in names:
        if isinstance(task, Parity):
            total = ((total or 0) + int(name)) % 2
            said.append(str(total))
        elif isinstance(task, FlipFlop):
            held = held if name == "ignore" else name.removeprefix("w")
            said.append(held)
        elif isinstance(task, GroupWord):
            identity = group(task.group).names[0]
            before = identity if total is None else total
            total = identity if name == "reset" else product_by_hand(task.group, before, name)
            said.append(sign_by_hand(total) if task.ask == "sign" else total)
        else:
            if name.startswith("("):
                stack.append(name[1:])
            elif name != "noop":
                assert stack.pop() == name[:-1], "what closes is what opened last"
            assert len(stack) <= task.depth
            top = stack[-1] if stack else "empty"
            said.append(str(len(stack)) if task.ask == "depth" else top)
    return said


def product_by_hand(name, s, x):
    if name == "Z6":
        return str((int(s) + int(x)) % 6)
    return "".join(s[int(i)] for i in x)


def sign_by_hand(permutation):
    return str(sum(a > b for a, b in itertools.combinations(permutation, 2)) % 2)


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_targets_are_those_of_an_automaton_written_out_by_hand(name, preset):
    task = task_of(name, preset).changed(min_length=4)
    batch = task.sample(100, generator(0))
    lengths = batch.labels["length"]
    assert lengths.min() == 4
    assert lengths.max() == task.length
    for row in range(len(batch)):
        length = int(lengths[row])
        assert (batch.tokens[row, length + 1 :] == PAD).all()
        words = [task.symbol(token) for token in batch.tokens[row, 1 : length + 1].tolist()]
        for position, said in enumerate(by_hand(task, words), 1):
            target = int(batch.targets[row, position])
            if target == UNSCORED:
                continue
            expected = f"{said})" if isinstance(task, Dyck) and task.ask == "next" else f"={said}"
            assert task.symbol(target) == expected


def test_what_is_asked_is_what_the_settings_say():
    batch = Parity().sample(50, generator(0))
    assert (batch.targets[:, 1:] != UNSCORED).all()
    dyck = Dyck(after_close=True)
    batch = dyck.sample(50, generator(0))
    closing = dyck.closes(dyck.inputs_of(batch.tokens))
    assert torch.equal(batch.targets != UNSCORED, closing)
    dyck = Dyck(ask="next")
    batch = dyck.sample(50, generator(0))
    asked = batch.targets[:, :-1] != UNSCORED
    assert torch.equal(batch.tokens[:, 1:][asked], batch.targets[:, :-1][asked]), "the next token, where it closes"
    assert torch.equal(asked[:, 1:], dyck.closes(dyck.inputs_of(batch.tokens))[:, 2:])
    batch = FlipFlop(ignored=0.9).sample(200, generator(0))
    assert (batch.targets[:, 1] == UNSCORED).any(), "before the first write nothing is asked"


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_two_ways_to_run_an_automaton_agree_and_states_are_labelled(name, preset):
    task = task_of(name, preset)
    batch = task.sample(20, generator(1))
    inputs = task.inputs_of(batch.tokens)
    if task.automaton.num_states < 1000:
        assert torch.equal(task.automaton.run(inputs), task.automaton.composed(inputs))
    states = task.states(batch)
    assert (states["state"][:, 0] == task.automaton.start).all()
    for label, found in task.automaton.labels.items():
        assert torch.equal(states[label], found[states["state"]])
    half = inputs.shape[1] // 2
    later = task.automaton.run(inputs[:, half:], states["state"][:, half - 1])
    assert torch.equal(later, states["state"][:, half:]), "a run can go on from any state"
    assert task.automaton.possible(inputs).all()


def test_positions_behind_the_end_have_no_state():
    task = Parity(min_length=4)
    batch = task.sample(50, generator(0))
    assert torch.equal(task.states(batch)["state"] == NOTHING, batch.tokens == PAD)


def test_lengths_grow_with_a_curriculum_in_training_only():
    task = Parity(min_length=4, length=20, curriculum=0.5)
    lengths = task.sample(4000, generator(0)).labels["length"]
    assert lengths[0] == 4
    assert (lengths[1:] >= lengths[:-1]).all()
    assert lengths[1000] == 12
    assert (lengths[2000:] == 20).all()
    assert (task.sample(100, generator(0), "dev").labels["length"] == 20).all()


@pytest.mark.parametrize("name", sorted(STATES))
def test_variants_are_longer_documents_over_the_same_symbols(name):
    task = TASKS.load(name)(min_length=4, curriculum=0.2)
    for times, other in task.variants().items():
        batch = other.sample(10, generator(0), "test")
        assert (batch.labels["length"] == int(times[:-1]) * task.length).all()
        assert [task.symbol(i) for i in range(task.vocab_size)] == [other.symbol(i) for i in range(other.vocab_size)]


def test_uniform_inputs_cannot_be_guessed_and_brackets_can():
    for task, chance in ((Parity(), 1 / 2), (GroupWord(), 1 / 6), (GroupWord(group="Z6"), 1 / 6)):
        assert all(guess.accuracy < chance + 0.05 for guess in guessing_baselines(task)), task
    windows = {guess.name: guess.accuracy for guess in guessing_baselines(Dyck())}
    assert windows["last 4 tokens"] > windows["last 1 token"] > windows["most frequent answer"]
    assert Dyck().guessing() > Dyck(after_close=True, noop=0.2).guessing()
    # Depths are even at even positions: half of them can be ruled out, unless there are inputs that do nothing.
    depth = {noop: guessing_baselines(Dyck(ask="depth", noop=noop))[0].accuracy for noop in (0.0, 0.2)}
    assert depth[0.0] > 1.5 * depth[0.2]
    assert GroupWord(resets=0.1).guessing() > 0.3


def test_brackets_as_small_as_they_are_by_default_run_are_guessed_as_the_docs_say():
    small = Dyck.presets["small"]
    two, three = (best_guess_of_all(Dyck(**small | more)) for more in ({}, {"types": 3}))
    said = " ".join((Path(__file__).parents[2] / "docs" / "states.md").read_text().split())
    assert f"guessing gives {two:.2f} of the answers" in said
    assert f"with `--set task.types=3` it gives {three:.2f}" in said
    assert three < StateRules().solves <= two


def test_too_few_documents_to_split_are_refused():
    with pytest.raises(UserError, match="too few different ones; make documents longer, or set disjoint to false"):
        Parity(min_length=2, length=4).sample(500, generator(0), "dev")
    assert len(Parity(min_length=2, length=4, disjoint=False).sample(500, generator(0), "dev")) == 500
