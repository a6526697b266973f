"""Tasks are checked like mixers: ours pass, and each broken one is refused by the one property it breaks."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import field_serializer, model_validator

from mixerscope.check import TASK_PROPERTIES, check_task
from mixerscope.check.task import find_task
from mixerscope.cli.check import check
from mixerscope.errors import UnknownName, UserError
from mixerscope.randomness import scrambled
from mixerscope.registry import MIXERS, TASKS
from mixerscope.tasks import UNSCORED, Batch, Change, Task
from tests.tasks.every import BUILT_IN, PRESETS


class Sound(Task):
    """Symbols, then a question mark that asks for the first of them. Each broken task below spoils one thing."""

    length: int = 5
    symbols: int = 12

    @property
    def vocab_size(self):
        return self.symbols + 2  # PAD in front, the question mark behind

    @property
    def max_length(self):
        return self.length + 1

    @property
    def slots(self):
        return ("key",)

    def sample(self, n, rng, split="train"):
        tokens = 1 + torch.randint(self.symbols, (n, self.length + 1), generator=rng)
        tokens[:, -1] = self.symbols + 1
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, -1] = tokens[:, 0]
        roles = {"key": torch.zeros(n).long(), "query": torch.full((n,), self.length)}
        return Batch(tokens, targets, roles, {"second": tokens[:, 1]})

    def solve(self, batch):
        return batch.tokens[:, :1]

    def symbol(self, token):
        return f"s{token}"

    def symbol_class(self, slot, symbols):
        return 1, self.symbols


class WithoutAnything(Task):
    pass


class ImpossibleDefaults(Sound):
    @model_validator(mode="after")
    def _never(self):
        raise ValueError("length and symbols do not go together")


class WrongDefault(Sound):
    note: int = "none"  # pyright: ignore


class LossyJson(Sound):
    share: float = 0.25

    @field_serializer("share")
    def _rounded(self, share: float) -> float:
        return round(share)


class WrongPreset(Sound):
    presets = {"fine": {"length": 3}, "odd": {"lenght": 3}}


class TooLong(Sound):
    @property
    def max_length(self):
        return self.length


class OutsideVocabulary(Sound):
    @property
    def vocab_size(self):
        return self.symbols + 1


class TooFew(Sound):
    def sample(self, n, rng, split="train"):
        return super().sample(n, rng, split)[: n - 1 if n == 200 else n]


class WrongSolver(Sound):
    def solve(self, batch):
        return batch.tokens[:, 1:2]


class WrongInTestOnly(Sound):
    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        if split == "test":
            batch.targets[:, -1] = batch.tokens[:, 1]
        return batch


class Cheating(Sound):
    def solve(self, batch):
        return batch.scored()[1]


class OneSetOfDocuments(Sound):
    def sample(self, n, rng, split="train"):
        return super().sample(n, torch.Generator().manual_seed(3), split)


CALLS = []


class AnotherEachTime(Sound):
    def sample(self, n, rng, split="train"):
        CALLS.append(n)
        batch = super().sample(n, rng, split)
        return replace(batch, labels={"call": torch.full((n,), len(CALLS))})


class DrawsFromTorch(Sound):
    def sample(self, n, rng, split="train"):
        torch.rand(1)
        return super().sample(n, rng, split)


class DrawsFromNumpy(Sound):
    def corrupt(self, batch, slot, rng, symbols="query-class", avoid_present=False, change_answer=False):
        np.random.rand()  # noqa: NPY002
        return super().corrupt(batch, slot, rng, symbols, avoid_present, change_answer)


class DrawsFromPython(Sound):
    def sample(self, n, rng, split="train"):
        random.random()
        return super().sample(n, rng, split)


class ReadsGlobalState(Sound):
    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        return replace(batch, labels={"luck": torch.full((n,), torch.initial_seed() % 7)})


class SaysDisjoint(Sound):
    length: int = 2
    symbols: int = 4
    disjoint: bool = True


class OnePlaceForTwoRoles(Sound):
    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        return replace(batch, roles={**batch.roles, "value": batch.roles["key"].clone()})


class RoleInThePadding(Sound):
    @property
    def max_length(self):
        return self.length + 2

    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        tokens = torch.nn.functional.pad(batch.tokens, (0, 1), value=0)
        targets = torch.nn.functional.pad(batch.targets, (0, 1), value=UNSCORED)
        return Batch(tokens, targets, {**batch.roles, "value": torch.full((n,), self.length + 1)})


class AsksTwice(Sound):
    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        batch.targets[:, -2] = batch.tokens[:, 0]
        return batch

    def solve(self, batch):
        return batch.tokens[:, [0, 0]]


class OtherVocabularyForOne(Sound):
    def single_query(self):
        return self if self.symbols == 3 else OtherVocabularyForOne(symbols=3)


class Corrupting(Sound):
    def corrupt(self, batch, slot, rng, symbols="query-class", avoid_present=False, change_answer=False):
        other = super().corrupt(batch, slot, rng, symbols, avoid_present, change_answer)
        return other if avoid_present else self.spoiled(batch, other)


class ChangesTargets(Corrupting):
    def spoiled(self, batch, other):
        return replace(other, targets=other.targets.where(other.targets == UNSCORED, other.tokens[:, :1]))


class ChangesMore(Corrupting):
    def spoiled(self, batch, other):
        other.tokens[0, 2] = 1 + other.tokens[0, 2] % self.symbols
        return other


class LeavesSomeAsTheyWere(Corrupting):
    def spoiled(self, batch, other):
        other.tokens[:3, 0] = batch.tokens[:3, 0]
        return other


class ChangesWhatItIsGiven(Corrupting):
    def spoiled(self, batch, other):
        batch.tokens.copy_(other.tokens)
        return other


class OutsideTheClass(Corrupting):
    def spoiled(self, batch, other):
        other.tokens[:, 0] = 0
        return other


class ClassOfAnotherSlot(Sound):
    def symbol_class(self, slot, symbols):
        return (1, self.symbols) if symbols == "query-class" else (self.symbols + 1, 1)


class IgnoresAvoidPresent(Sound):
    def corrupt(self, batch, slot, rng, symbols="query-class", avoid_present=False, change_answer=False):
        return super().corrupt(batch, slot, rng, symbols)


class Predicting(Sound):
    """Says what replacing the first symbol makes of the answer, and does so where the second is no small one."""

    @property
    def counterfactuals(self):
        return ("value",)

    def alter(self, kind, batch, rng):
        tokens = batch.tokens.clone()
        tokens[:, 0] = 1 + tokens[:, 0] % self.symbols
        return Change(tokens, tokens[:, 0], tokens[:, 1] > 2)


class WrongPrediction(Predicting):
    def alter(self, kind, batch, rng):
        change = super().alter(kind, batch, rng)
        return replace(change, answers=1 + change.answers % self.symbols)


class NamesOneItCannotMake(Sound):
    @property
    def counterfactuals(self):
        return ("swap-keys",)


class NeverPossible(Predicting):
    def alter(self, kind, batch, rng):
        change = super().alter(kind, batch, rng)
        return replace(change, possible=torch.zeros_like(change.possible))


class ByItself(Predicting):
    def counterfactual(self, kind, batch, rng):
        return self.spoiled(super().counterfactual(kind, batch, rng))


class SilentlyUnchanged(ByItself):
    def spoiled(self, made):
        return replace(made, labels={**made.labels, "changed": torch.ones(len(made)).long()})


class Unmarked(ByItself):
    def spoiled(self, made):
        return replace(made, labels={name: at for name, at in made.labels.items() if name != "changed"})


class MovesRoles(ByItself):
    def spoiled(self, made):
        return replace(made, roles={**made.roles, "key": made.roles["key"] + 1})


class AsksElsewhere(ByItself):
    def spoiled(self, made):
        return replace(made, targets=made.targets.roll(1, 1))


class Counting(Sound):
    def states(self, batch):
        return {"position": torch.arange(batch.tokens.shape[1]).expand_as(batch.tokens)}


class OneStateForAll(Counting):
    def states(self, batch):
        return {"position": super().states(batch)["position"][:, 0]}


class StatesThatAreNoLabels(Counting):
    def states(self, batch):
        return {"position": super().states(batch)["position"] / 2}


def refused(task):
    # Some of these draw from the global generators, which is what they are refused for.
    with scrambled(0):
        return {result.name: result.detail for result in check_task(task) if not result.passed}


@pytest.mark.parametrize("task", [Sound, Predicting, Counting])
def test_the_sound_ones_pass_every_property(task):
    results = check_task(task)
    assert [result.name for result in results] == list(TASK_PROPERTIES)
    assert refused(task) == {}


@pytest.mark.parametrize("name", [*BUILT_IN, *(f"{name}:{preset}" for name, preset in PRESETS)])
def test_every_task_and_preset_of_ours_passes(name):
    assert refused(name) == {}


@pytest.mark.parametrize(
    ("task", "property_", "detail"),
    [
        (WithoutAnything, "construction", "abstract"),
        (ImpossibleDefaults, "construction", "do not go together"),
        (WrongDefault, "settings", "note: input should be a valid integer"),
        (LossyJson, "settings", 'read again it is another task: {"length":5,"symbols":12,"share":0'),
        (WrongPreset, "presets", "preset 'odd' is refused: WrongPreset has no field 'lenght'"),
        (TooLong, "documents", "6 tokens, max_length is 5"),
        (OutsideVocabulary, "documents", "tokens outside the vocabulary of 13 in 200 of 200"),
        (TooFew, "documents", "200 documents of train were asked for, 199 came"),
        (WrongSolver, "well_posed", "the targets of train differ"),
        (WrongInTestOnly, "well_posed", "the targets of test differ"),
        (Cheating, "well_posed", "reads the answers"),
        (OneSetOfDocuments, "repeatable", "two seeds give the same"),
        (AnotherEachTime, "repeatable", "other documents of train the second time"),
        (DrawsFromTorch, "random_state", "global generator of torch"),
        (DrawsFromNumpy, "random_state", "global generator of numpy"),
        (DrawsFromPython, "random_state", "global generator of random"),
        (ReadsGlobalState, "random_state", "depend on a global generator"),
        (SaysDisjoint, "splits", "documents are in train and in dev"),
        (OnePlaceForTwoRoles, "roles", "roles 'key' and 'value' are at the same place in all 200"),
        (RoleInThePadding, "roles", "'value' lies outside the document in 200 of 200"),
        (AsksTwice, "single_query", "asks 2 things in 200 of 200"),
        (OtherVocabularyForOne, "single_query", "5 tokens with a single query and 14 without"),
        (ChangesTargets, "corruption", "changes targets, roles or labels"),
        (ChangesMore, "corruption", "changes more in 1 of 200"),
        (LeavesSomeAsTheyWere, "corruption", "'key' is as it was in 3 of 200"),
        (ChangesWhatItIsGiven, "corruption", "changes the documents it is given"),
        (OutsideTheClass, "corruption", "'key' is not of its class in 200 of 200"),
        (ClassOfAnotherSlot, "corruption", "what stands at 'key' is not of the slot's class in 200 of 200"),
        (IgnoresAvoidPresent, "avoid_present", "was in the document already in"),
        (WrongPrediction, "counterfactuals", "targets of counterfactual 'value' differ in"),
        (NamesOneItCannotMake, "counterfactuals", "does not say how to make the counterfactual 'swap-keys'"),
        (NeverPossible, "counterfactuals", "'value' changes none of 200"),
        (SilentlyUnchanged, "counterfactuals", "'changed' does not say what counterfactual 'value' did in"),
        (Unmarked, "counterfactuals", "'value' has no label 'changed'"),
        (MovesRoles, "counterfactuals", "'value' changes roles or labels"),
        (AsksElsewhere, "counterfactuals", "'value' asks elsewhere in 200 of 200"),
        (OneStateForAll, "states", "'position' has the shape [200], the documents [200, 6]"),
        (StatesThatAreNoLabels, "states", "'position' is torch.float32"),
    ],
)
def test_a_broken_task_fails_exactly_where_it_is_broken(task, property_, detail):
    found = refused(task)
    assert list(found) == [property_]
    assert detail in found[property_]
    assert "\n" not in found[property_]


def test_a_field_without_a_default_must_be_given_and_is_said():
    class Needy(Sound):
        depth: int

    with pytest.raises(UserError, match="no default for depth"):
        check_task(Needy)
    [settings] = [result for result in check_task(Needy, fields={"depth": 3}) if result.name == "settings"]
    assert settings.passed
    assert settings.detail == "3 fields, no default for depth"


@pytest.mark.parametrize(
    ("task", "fields", "message"),
    [
        ("arr", {}, "did you mean 'ar'"),
        ("ar:papr", {}, "did you mean 'paper'"),
        ("ar", {"num_pears": 3}, "did you mean 'num_pairs'"),
        ("ar", {"num_pairs": 0}, "num_pairs"),
        (torch.nn.Linear, {}, "must be a subclass of mixerscope.tasks.Task"),
    ],
)
def test_what_is_the_callers_error_is_no_refusal(task, fields, message):
    with pytest.raises(UserError, match=message):
        check_task(task, fields=fields)


def test_a_reference_is_a_task_and_a_preset_is_no_reference(own_task):
    assert find_task(f"{own_task}:Own", {}).task.max_length == 4
    assert find_task("ar:small", {"num_pairs": 3}).given["num_pairs"] == 3


SOURCE = """
import torch
from mixerscope import UNSCORED, Batch, Mixer, Stage, Task

class Own(Task):
    @property
    def vocab_size(self): return 5
    @property
    def max_length(self): return 4
    @property
    def slots(self): return ("key",)
    def sample(self, n, rng, split="train"):
        tokens = 1 + torch.randint(4, (n, 4), generator=rng)
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, 3] = tokens[:, {asked}]
        return Batch(tokens, targets, {{"key": torch.zeros(n).long(), "query": torch.full((n,), 3)}})
    def solve(self, batch): return batch.tokens[:, :1]
    def symbol(self, token): return str(token)
    def symbol_class(self, slot, symbols): return 1, 4

class Doing(Stage):
    pass
"""


@pytest.fixture
def own_task(tmp_path):
    path = tmp_path / "own_task.py"
    path.write_text(SOURCE.format(asked=0))
    known = set(TASKS._entries)
    yield path
    for name in set(TASKS._entries) - known:
        del TASKS._entries[name], TASKS._loaded[name]
        TASKS._adopted.pop(name, None)


def test_the_command_finds_out_that_a_class_is_a_task(own_task, capsys):
    assert check(f"{own_task}:Own") == 0
    assert f"Own passed all {len(TASK_PROPERTIES)} tests" in capsys.readouterr().out
    own_task.write_text(SOURCE.format(asked=1))
    assert check(f"{own_task}:Own") == 1
    assert "Own is refused: well_posed" in capsys.readouterr().out


def test_the_command_knows_tasks_by_name_and_preset(capsys):
    assert check("selective_copy:small", set_=["num_symbols=5"]) == 0
    assert "selective_copy:small passed all" in capsys.readouterr().out
    assert not set(MIXERS.names()) & set(TASKS.names()), "a name means one thing"


def test_the_command_refuses_what_it_cannot_check(own_task):
    with pytest.raises(UnknownName, match="no mixer or task named 'mambo'; did you mean 'mamba'"):
        check("mambo")
    with pytest.raises(UserError, match="ar is a task, which has no width"):
        check("ar", width=8)
    with pytest.raises(UserError, match="is a kind of stage; mixers and tasks can be checked"):
        check(f"{own_task}:Doing")
