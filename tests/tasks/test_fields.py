"""Every field of every task matters, and impossible settings are refused when the task is built."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mixerscope.errors import UserError
from mixerscope.registry import TASKS
from mixerscope.spec.base import parse
from mixerscope.tasks import (
    AR,
    ATR,
    MQAR,
    Dyck,
    FlipFlop,
    Grammar,
    GrammarRecipe,
    GroupWord,
    NGram,
    Parity,
    SelectiveCopy,
)
from mixerscope.tasks.grammar import drawn_grammar
from tests.tasks.every import BUILT_IN, generator

FILLED = {"noise": 3, "distractors": 2, "num_fillers": 5}
RECALL = {
    "num_pairs": ({}, 7),
    "min_pairs": ({}, 3),
    "num_keys": ({}, 50),
    "num_values": ({}, 50),
    "num_queries": ({}, 2),
    "query": ({}, "value"),
    "repeated_keys": ({}, 2),
    "distractors": (FILLED, 3),
    "min_distractors": (FILLED, 1),
    "noise": (FILLED, 4),
    "num_fillers": (FILLED, 6),
    "held_out": ({}, 0.5),
    "split_seed": ({"held_out": 0.5}, 1),
}
RECIPE = {
    "head": "left",
    "num_nonterminals": 30,
    "num_terminals": 15,
    "max_depth": 5,
    "max_rule_length": 4,
    "max_rules": 3,
    "terminal_weight": 5.0,
    "seed": 1,
}
STATE = {
    "length": ({}, 20),
    "min_length": ({}, 10),
    "curriculum": ({"min_length": 4}, 0.5),
    "disjoint": ({}, False),
    "only_last": ({}, True),
}
CHANGES = {
    AR: RECALL,
    Parity: STATE,
    GroupWord: STATE | {"group": ({}, "Z6"), "resets": ({}, 0.2), "ask": ({}, "sign")},
    FlipFlop: STATE | {"symbols": ({}, 3), "ignored": ({}, 0.5)},
    Dyck: STATE
    | {
        "types": ({}, 2),
        "depth": ({}, 3),
        "ask": ({}, "next"),
        "noop": ({}, 0.2),
        "after_close": ({}, True),
    },
    MQAR: RECALL | {"length": ({}, 50), "power": ({}, 1.0)},
    NGram: {"n": ({}, 3), "length": ({}, 30), "num_symbols": ({}, 9)},
    SelectiveCopy: {
        "num_copied": ({}, 5),
        "length": ({}, 30),
        "num_symbols": ({}, 9),
        "num_fillers": ({}, 2),
        "num_queries": ({}, 3),
    },
    ATR: {
        "grammar": ({}, GrammarRecipe(seed=5)),
        "relations": ({}, ("sibling",)),
        "max_symbols": ({}, 9),
        "held_out": ({}, 0.5),
        "split_seed": ({"held_out": 0.5}, 1),
        "disjoint": ({}, False),
    },
}
BASES = {MQAR: {"num_queries": 1}}
CASES = [(cls, field, *change) for cls, changes in CHANGES.items() for field, change in changes.items()]


def data(task):
    return tuple(task.sample(60, generator(0), split).sha256() for split in ("train", "dev", "test"))


def test_every_field_of_every_task_is_tried():
    untried = {name for name in BUILT_IN if TASKS.load(name) not in CHANGES}
    assert not untried, f"give CHANGES another value of each field of {untried}"
    for cls, changes in CHANGES.items():
        assert set(changes) == set(cls.model_fields)
    assert set(RECIPE) == set(GrammarRecipe.model_fields)


@pytest.mark.parametrize(("cls", "field", "base", "value"), CASES)
def test_a_field_changed_alone_changes_the_data(cls, field, base, value):
    task = cls(**(BASES.get(cls, {}) | base))
    assert data(task) != data(task.changed(**{field: value}))


@pytest.mark.parametrize("field", RECIPE)
def test_a_field_of_the_grammar_changed_alone_changes_the_data(field):
    recipe = GrammarRecipe()
    assert data(ATR(grammar=recipe)) != data(ATR(grammar=recipe.changed(**{field: RECIPE[field]})))


FLAT = {"max_depth": 1}
ONE_STRING = Grammar(num_terminals=3, bodies=(((0, 1),),), weights=((1.0,),), head_weights=((0.0, 0.0, 1.0),))
FOUR_ZEROS = ONE_STRING.changed(bodies=(((0, 0, 0, 0),),))


@pytest.mark.parametrize(
    ("cls", "fields", "reason"),
    [
        (AR, {"num_pairs": 9, "num_keys": 8}, "needs 9 distinct symbols, but num_keys = 8"),
        (AR, {"num_pairs": 9, "num_values": 8}, "needs 9 distinct symbols, but num_values = 8"),
        (AR, {"num_pairs": 2, "num_queries": 3}, "num_queries = 3 exceeds the 2 pairs"),
        (AR, {"num_pairs": 4, "min_pairs": 4}, "min_pairs = 4 must be below num_pairs = 4"),
        (AR, {"num_pairs": 4, "repeated_keys": 4}, "repeated_keys = 4 must be below"),
        (AR, {"num_pairs": 4, "repeated_keys": 2, "num_queries": 3}, "exceeds the 2 pairs"),
        (AR, {"noise": 2}, "need num_fillers"),
        (AR, {"distractors": 2}, "need num_fillers"),
        (AR, {"num_fillers": 2}, "num_fillers = 2 has no use"),
        (AR, {"distractors": 2, "min_distractors": 2, "num_fillers": 1}, "min_distractors = 2 must be below"),
        (AR, {"num_pairs": 1, "num_keys": 1}, "at least 2 are needed"),
        (AR, {"held_out": 1.0}, "less than 1"),
        (AR, {"held_out": -0.1}, "greater than or equal to 0"),
        (AR, {"split_seed": 1}, "no use without held_out"),
        (AR, {"held_out": 0.01, "num_pairs": 2, "num_keys": 2, "num_values": 2}, "one side of the split empty"),
        (AR, {"num_pair": 2}, "did you mean 'num_pairs'"),
        (MQAR, {"length": 20}, "length = 20 has no room for 8 pairs and 8 queries; they need 26"),
        (MQAR, {"power": 0.0}, "greater than 0"),
        (NGram, {"n": 1}, "greater than or equal to 2"),
        (NGram, {"n": 5, "length": 4}, "no room for an n-gram"),
        (NGram, {"n": 40, "num_symbols": 100}, "too many contexts"),
        (SelectiveCopy, {"num_copied": 9, "length": 8}, "no room in length = 8"),
        (SelectiveCopy, {"num_copied": 4, "num_queries": 4}, "must be below num_copied"),
        (Parity, {"length": 3}, "greater than or equal to 4"),
        (Parity, {"min_length": 16}, "min_length = 16 must be below length = 16"),
        (Parity, {"curriculum": 0.5}, "curriculum has no use without min_length"),
        (GroupWord, {"group": "S9"}, "no group is called 'S9'"),
        (GroupWord, {"group": "Z1"}, "one element"),
        (GroupWord, {"group": "Z500"}, "500 elements is too large"),
        (GroupWord, {"group": "A5", "ask": "sign"}, "of A5 can be asked state"),
        (Dyck, {"types": 8, "depth": 10}, "stacks; at most 50,000"),
        (Dyck, {"types": 1}, "no top to tell apart"),
        (FlipFlop, {"ignored": 1.0}, "less than 1"),
        (ATR, {"relations": ()}, "at least one relation"),
        (ATR, {"relations": ("parent", "parent")}, "none twice"),
        (ATR, {"relations": ("uncle",)}, "no relation named 'uncle'"),
        (ATR, {"relations": ("ancestor-2",)}, "no relation named 'ancestor-2'"),
        (ATR, {"relations": ("grandparent",), "grammar": FLAT}, "deepest tree of the grammar has 1 levels"),
        (ATR, {"relations": ("ancestor-99",)}, "deepest tree of the grammar"),
        (ATR, {"grammar": {"max_depth": 0}}, "greater than 0"),
        (ATR, {"grammar": {"max_rules": 0}}, "greater than 0"),
        (ATR, {"grammar": {"max_rule_length": 1}}, "greater than or equal to 2"),
        (ATR, {"grammar": {"num_terminals": 1}}, "greater than or equal to 2"),
        (ATR, {"grammar": {"max_rule_length": 2, "max_depth": 1}}, "no string of the grammar has the 3 symbols"),
        (ATR, {"max_symbols": 2}, "greater than or equal to 3"),
        (ATR, {"held_out": 1.0}, "less than 1"),
        (ATR, {"split_seed": 3}, "no use without held_out"),
        (ATR, {"held_out": 1e-9}, "no parent query in the test split"),
        (ATR, {"grammar": FOUR_ZEROS, "max_symbols": 4}, "100% more than max_symbols"),
        (ATR, {"grammar": ONE_STRING}, "none is left for .* with disjoint"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_with_the_reason(cls, fields, reason):
    with pytest.raises(UserError, match=reason.replace("(", r"\(")):
        parse(cls, fields)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bodies": ()}, "at least one nonterminal"),
        ({"bodies": ((),)}, "N0 has no rule"),
        ({"bodies": (((),),)}, "empty body"),
        ({"bodies": (((7,),),)}, "symbol that does not exist"),
        ({"bodies": (((-1, 0),),)}, "recursive"),
        ({"weights": ((0.5,),)}, "sum to 1"),
        ({"weights": ()}, "0 rows for 1 nonterminals"),
        ({"head_weights": ((0.5, 0.5),)}, "head_weights of N0 must be 3 probabilities"),
    ],
)
def test_a_broken_grammar_is_refused_with_the_reason(change, reason):
    with pytest.raises(ValidationError, match=reason):
        ONE_STRING.changed(**change)


def test_a_grammar_that_rejects_nearly_everything_stops_instead_of_looping():
    # One string in 300 can be asked about: the other rule gives "t0 t0 t0", whose rightmost t0 is the root.
    grammar = Grammar(
        num_terminals=2,
        bodies=(((0, 0), (1, 1)),),
        weights=((1 - 1 / 300, 1 / 300),),
        head_weights=((1.0, 0.0),),
    )
    task = ATR(grammar=grammar, disjoint=False)
    with pytest.raises(UserError, match=r"only \d+ of \d+ drawn documents can be used: .* no parent query"):
        task.sample(100_000, generator(0))


def test_a_split_that_rejects_nearly_everything_stops_instead_of_looping():
    task = AR(num_pairs=8, num_queries=8, held_out=0.2)
    assert len(task.sample(50, generator(0), "train")) == 50
    with pytest.raises(UserError, match="leave too few pairs to ask in the test split"):
        task.sample(50, generator(0), "test")


RECALL_FIELDS = {
    "num_pairs": st.integers(2, 8),
    "min_pairs": st.none() | st.integers(1, 7),
    "num_keys": st.integers(2, 12),
    "num_values": st.integers(2, 12),
    "num_queries": st.integers(1, 4),
    "query": st.sampled_from(["key", "value"]),
    "repeated_keys": st.integers(0, 3),
    "distractors": st.integers(0, 3),
    "min_distractors": st.none() | st.integers(0, 2),
    "noise": st.integers(0, 4),
    "num_fillers": st.integers(0, 3),
    "held_out": st.sampled_from([0.0, 0.3]),
}
STATE_FIELDS = {
    "length": st.integers(4, 24),
    "min_length": st.none() | st.integers(2, 20),
    "curriculum": st.sampled_from([0.0, 0.5, 1.0]),
    "disjoint": st.booleans(),
    "only_last": st.booleans(),
}
STRATEGIES = {
    Parity: st.fixed_dictionaries(STATE_FIELDS),
    GroupWord: st.fixed_dictionaries(
        STATE_FIELDS
        | {
            "group": st.sampled_from(["S3", "A4", "Z6", "Z2xZ3", "Z1"]),
            "resets": st.sampled_from([0.0, 0.2]),
            "ask": st.sampled_from(["state", "sign", "mod2", "part1"]),
        }
    ),
    FlipFlop: st.fixed_dictionaries(STATE_FIELDS | {"symbols": st.integers(2, 5), "ignored": st.floats(0.1, 0.9)}),
    Dyck: st.fixed_dictionaries(
        STATE_FIELDS
        | {
            "types": st.integers(1, 4),
            "depth": st.integers(1, 5),
            "ask": st.sampled_from(["top", "depth", "next"]),
            "noop": st.sampled_from([0.0, 0.3]),
            "after_close": st.booleans(),
        }
    ),
    AR: st.fixed_dictionaries(RECALL_FIELDS),
    MQAR: st.fixed_dictionaries(RECALL_FIELDS | {"length": st.integers(16, 60), "power": st.floats(0.05, 3.0)}),
    NGram: st.fixed_dictionaries(
        {"n": st.integers(2, 5), "length": st.integers(1, 30), "num_symbols": st.integers(2, 9)}
    ),
    SelectiveCopy: st.fixed_dictionaries(
        {
            "num_copied": st.integers(1, 8),
            "length": st.integers(1, 20),
            "num_symbols": st.integers(2, 5),
            "num_fillers": st.integers(1, 4),
            "num_queries": st.none() | st.integers(1, 8),
        }
    ),
    ATR: st.fixed_dictionaries(
        {
            "grammar": st.builds(
                dict,
                head=st.sampled_from(["left", "right"]),
                num_nonterminals=st.integers(1, 12),
                num_terminals=st.integers(2, 30),
                max_depth=st.integers(1, 6),
                max_rule_length=st.integers(2, 7),
                max_rules=st.integers(1, 4),
                terminal_weight=st.floats(0.5, 30),
                seed=st.integers(0, 10_000),
            ),
            "relations": st.lists(
                st.sampled_from(["parent", "child", "sibling", "grandparent", "ancestor-3"]),
                min_size=1, max_size=3, unique=True,
            ),
            "max_symbols": st.integers(3, 60),
            "held_out": st.sampled_from([0.0, 0.3]),
            "disjoint": st.booleans(),
        }
    ),
}  # fmt: skip


@pytest.mark.parametrize("cls", STRATEGIES)
def test_what_is_not_refused_is_solved(cls):
    built = 0

    @settings(max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(STRATEGIES[cls], st.sampled_from(["train", "dev", "test"]))
    def check(fields, split):
        nonlocal built
        try:
            task = cls(**fields)
        except ValidationError:
            return
        try:
            batch = task.sample(40, generator(0), split)
        except UserError:
            return  # too many rejections; such settings have a test of their own
        built += 1
        assert len(batch) == 40
        assert batch.tokens.shape[1] <= task.max_length
        assert (task.solve(batch) == batch.scored()[1]).all()
        for slot in task.slots:
            assert ((task.corrupt(batch, slot, generator(1)).tokens != batch.tokens).sum(1) == 1).all()

    check()
    assert built > 15


def test_a_task_goes_through_json_and_is_the_same_task():
    for task in (ATR.preset("all-relations"), ATR(grammar=ONE_STRING, disjoint=False), AR.preset("distractors")):
        again = type(task).model_validate_json(task.model_dump_json())
        assert again == task
        assert data(again) == data(task)


def test_a_grammar_written_out_gives_the_same_documents_as_its_recipe():
    recipe = GrammarRecipe(seed=4)
    written = Grammar.model_validate_json(recipe.grammar().model_dump_json())
    assert written == drawn_grammar(recipe)
    assert written.digest == drawn_grammar(recipe).digest
    assert data(ATR(grammar=written)) == data(ATR(grammar=recipe))
    assert written.digest != recipe.changed(seed=5).grammar().digest
