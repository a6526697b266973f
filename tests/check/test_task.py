"""Tasks are checked like mixers: ours pass, and each broken one is refused by the one property it breaks."""

import pytest
import torch

from mixerscope.check import TASK_PROPERTIES, check_task
from mixerscope.check.task import find_task
from mixerscope.cli.check import check
from mixerscope.errors import UnknownName, UserError
from mixerscope.randomness import scrambled
from mixerscope.registry import MIXERS, TASKS
from tests.check.broken_tasks import (
    AnotherEachTime,
    AsksElsewhere,
    AsksTwice,
    ChangesMore,
    ChangesTargets,
    ChangesWhatItIsGiven,
    Cheating,
    ClassOfAnotherSlot,
    ClassOutsideVocabulary,
    CorruptsByChance,
    Counting,
    DrawsFromNumpy,
    DrawsFromPython,
    DrawsFromTorch,
    IgnoresAvoidPresent,
    ImpossibleDefaults,
    LabelsOfOthers,
    LeavesSomeAsTheyWere,
    LongerWithOneQuery,
    LossyJson,
    MovesRoles,
    NamesOneItCannotMake,
    NeverPossible,
    OnePlaceForTwoRoles,
    OneSetOfDocuments,
    OneStateForAll,
    OtherVocabularyForOne,
    OutsideTheClass,
    OutsideVocabulary,
    Predicting,
    ReadsGlobalState,
    RoleInThePadding,
    RouteOfOthers,
    SaysDisjoint,
    SilentlyUnchanged,
    SlotsOfOthers,
    SlotTwice,
    Sound,
    StatesThatAreNoLabels,
    SureGuess,
    ToldByLabels,
    ToldByRoles,
    ToldByTheNextDocument,
    TooFew,
    TooLong,
    Unmarked,
    UnreadableRole,
    VariantInOtherWords,
    WithoutAnything,
    WrongDefault,
    WrongInTestOnly,
    WrongPrediction,
    WrongPreset,
    WrongSolver,
)
from tests.tasks.every import BUILT_IN, PRESETS


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
        (ToldByLabels, "well_posed", "reads roles or labels"),
        (ToldByRoles, "well_posed", "reads roles or labels"),
        (ToldByTheNextDocument, "well_posed", "depend on the other documents of a batch"),
        (CorruptsByChance, "repeatable", "corrupts 'key' in another way the second time"),
        (ClassOutsideVocabulary, "corruption", "the class of 'key', 1 to 62, leaves the vocabulary"),
        (UnreadableRole, "roles", "role 'key&value' is no name"),
        (LongerWithOneQuery, "single_query", "has 10 tokens, max_length is 6"),
        (RouteOfOthers, "routes", "no route of `mechanisms` is made of its roles: key, query"),
        (SlotsOfOthers, "routes", "of `together`, kee, valeu, none is a slot: key"),
        (SlotTwice, "routes", "a slot is named twice"),
        (SureGuess, "guessing", "`guessing` gives 7.0"),
        (VariantInOtherWords, "variants", "101 tokens in the variant 'longer' and 14 else"),
    ],
)
def test_a_broken_task_fails_exactly_where_it_is_broken(task, property_, detail):
    found = refused(task)
    assert list(found) == [property_]
    assert detail in found[property_]
    assert "\n" not in found[property_]


def test_labels_of_other_documents_are_refused_by_name():
    assert refused(LabelsOfOthers)["documents"] == "label 'second' is about 3 documents of 200"


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
