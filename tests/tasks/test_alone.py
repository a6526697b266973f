"""Tasks without the rest of Mixerscope: guessing baselines, text, files."""

import json
import subprocess
import sys
from weakref import WeakKeyDictionary

import polars
import pytest
import torch

from mixerscope.errors import UserError
from mixerscope.tasks import (
    AR,
    ATR,
    UNSCORED,
    Batch,
    NGram,
    Parity,
    SelectiveCopy,
    baselines,
    export,
    guessing_baselines,
)
from mixerscope.tasks.base import FIRST_SYMBOL
from mixerscope.tasks.baselines import best_guess_of_all, ceiling, guessing_of_all
from mixerscope.tasks.render import document, explanation, pieces, tree_lines
from tests.tasks.every import PRESETS, STATES, generator, task_of


def accuracies(task, **sizes):
    return {guess.name: guess for guess in guessing_baselines(task, **sizes)}


def test_baselines_of_recall_are_one_in_the_number_of_pairs():
    guesses = accuracies(AR(num_pairs=4, num_keys=8, num_values=8, num_queries=2))
    assert guesses["position only"].accuracy == pytest.approx(1 / 4, abs=0.04)
    assert guesses["most frequent answer"].accuracy == pytest.approx(1 / 8, abs=0.03)
    assert guesses["last 1 token"].accuracy == pytest.approx(1 / 8, abs=0.03)


def test_baselines_find_what_can_be_guessed():
    # One pair: the answer always stands at position 2. Two symbols that follow each other: the last token tells all.
    assert accuracies(AR(num_pairs=1))["position only"].accuracy == 1.0
    assert accuracies(AR(num_pairs=1))["position only"].rule == "the token at position 2"
    last = accuracies(AR(num_pairs=2, num_keys=2, num_values=2), last=(1, 5))
    assert last["last 1 token"].accuracy == pytest.approx(0.5, abs=0.05)
    assert last["last 5 tokens"].accuracy == 1.0
    root = accuracies(ATR.preset("paper"))["position only"]
    assert root.rule == "the token 2 before the query"
    assert 0.3 < root.accuracy < 0.6


def test_guessing_is_the_best_of_the_baselines():
    task = AR(num_pairs=4, num_keys=8, num_values=8)
    assert task.guessing() == max(guess.accuracy for guess in guessing_baselines(task))
    assert AR(num_pairs=1).guessing() == 1.0
    assert task.guessing() == pytest.approx(1 / 4, abs=0.04)


def test_guessing_is_worked_out_once_for_the_same_settings_and_again_for_others(monkeypatch):
    made = []
    monkeypatch.setattr(baselines, "_BEST", WeakKeyDictionary())
    monkeypatch.setattr(baselines, "guessing_baselines", lambda task: made.append(task) or guessing_baselines(task))
    task = NGram(length=8, num_symbols=4)
    assert task.guessing() == task.guessing() == NGram(length=8, num_symbols=4).guessing()
    assert len(made) == 1
    # What is copied with other fields shares no answer, however it was copied.
    for other in (task.changed(num_symbols=6), task.model_copy(update={"num_symbols": 5})):
        assert other.guessing() == max(guess.accuracy for guess in guessing_baselines(other))
    assert len(made) == 3
    assert task.model_dump() == NGram(length=8, num_symbols=4).model_dump()


def test_guessing_of_all_questions_of_parity():
    """Rules that read the last k bits know all of them up to the k-th answer, and of later ones nothing."""
    found = {guess.name: guess.accuracy for guess in guessing_of_all(Parity(length=8, disjoint=False))}
    for k, known in ((1, 1), (4, 4), (8, 8)):
        share = (known + (8 - known) / 2) / 8
        name = f"last {k} token{'s' if k > 1 else ''}"
        assert found[name] == pytest.approx(share, abs=0.01)
        assert found[f"{name}, by position"] == pytest.approx(share, abs=0.01)
    for nothing in ("most frequent answer", "most frequent answer, by position"):
        assert found[nothing] == pytest.approx(0.5, abs=0.02)
    assert found["position only"] == found["position only, by position"] == 0, "no input is an answer"
    assert best_guess_of_all(Parity(length=8, disjoint=False)) == max(found.values())


def test_guessing_of_all_questions_where_the_last_one_is_asked_alone_is_of_that_one():
    task = Parity(length=12, only_last=True)
    found = {guess.name: guess.accuracy for guess in guessing_of_all(task)}
    assert all(found[guess.name] == guess.accuracy for guess in guessing_baselines(task))
    assert best_guess_of_all(task) == pytest.approx(0.5, abs=0.05)


class Made(Parity):
    """Half of the documents ask once, at position 3 for the token at 1; the others also at 4 for the token at 3, and at
    5 for one of two by a coin."""

    windows = (1,)

    def sample(self, n, rng, split="train"):
        tokens = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + 20, (n, 6), generator=rng)
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, 3] = tokens[:, 1]
        often = torch.arange(n) % 2 == 0
        targets[often, 4] = tokens[often, 3]
        targets[often, 5] = FIRST_SYMBOL + torch.randint(2, (n,), generator=rng)[often]
        return Batch(tokens, targets)


def test_guessing_of_all_questions_is_a_mean_over_documents_and_may_know_the_position():
    found = {guess.name: guess.accuracy for guess in guessing_of_all(Made())}
    # Two before the query, and of the other questions by luck.
    assert found["position only"] == pytest.approx((1 + (1 + 2 / 20) / 3) / 2, abs=0.01)
    assert found["position only, by position"] == pytest.approx((1 + (1 + 1 + 1 / 20) / 3) / 2, abs=0.01)
    assert found["most frequent answer"] == pytest.approx((1 / 20 + (2 / 20 + 1 / 2) / 3) / 2, abs=0.02)


class Turned(Made):
    """Asks at 3 for the token there, at 4 for the other one of two."""

    def sample(self, n, rng, split="train"):
        tokens = torch.randint(FIRST_SYMBOL, FIRST_SYMBOL + 2, (n, 6), generator=rng)
        targets = torch.full_like(tokens, UNSCORED)
        targets[:, 3], targets[:, 4] = tokens[:, 3], 2 * FIRST_SYMBOL + 1 - tokens[:, 4]
        return Batch(tokens, targets)


def test_what_follows_the_last_tokens_may_depend_on_where_they_stand():
    found = {guess.name: guess.accuracy for guess in guessing_of_all(Turned())}
    assert found["last 1 token"] == pytest.approx(0.5, abs=0.03)
    assert found["last 1 token, by position"] == 1.0
    assert best_guess_of_all(Turned()) == 1.0


def test_tasks_have_no_state_labels_unless_they_say_so():
    task = AR(num_pairs=2)
    assert task.states(task.sample(2, generator(0))) == {}


def test_ceiling_is_below_one_where_strings_have_several_derivations():
    assert ceiling(AR(), n=50) == 1.0
    task = ATR(grammar={"seed": 1})
    expected = 1 - task.ambiguous(task.sample(2000, generator(5), "test")).double().mean().item()
    assert 0.85 < ceiling(task) < 1.0
    assert ceiling(task) == pytest.approx(expected, abs=0.03)


def test_baselines_are_the_same_again():
    assert guessing_baselines(NGram(), fit=500, score=200) == guessing_baselines(NGram(), fit=500, score=200)
    assert guessing_baselines(NGram(), fit=500, score=200) != guessing_baselines(NGram(), fit=500, score=200, seed=1)


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_documents_as_text(name, preset):
    task = task_of(name, preset)
    batch = task.sample(3, generator(0))
    for i in range(3):
        shown = pieces(task, batch, i)
        roles = {piece.role for piece in shown if piece.role}
        at = {role: int(positions[i]) for role, positions in batch.roles.items()}
        assert len(roles) == len(set(at.values()))
        for role in roles:
            assert shown[at[role]].role == role
        plain = json.loads(json.dumps(document(task, batch, i)))
        assert plain["symbols"] == [piece.symbol for piece in shown]
        assert plain["roles"] == at
        answer = task.symbol(next(iter(plain["targets"].values())))
        stands = "" if name in STATES else f", which stands at {at['value']}"
        assert f"asks for {answer}{stands}" in explanation(task, batch, i)


def test_a_tree_is_drawn_with_one_line_for_each_symbol():
    task = ATR.preset("paper")
    batch = task.sample(20, generator(0))
    for i in range(20):
        lines = tree_lines(task, batch, i)
        size = int(batch.labels["length"][i])
        assert len(lines) == size
        assert lines[0].startswith(f"{task.symbol(int(batch.tokens[i, size]))} @{size}")
        # Indentation is depth: three columns a level.
        for line in lines:
            symbol = line.lstrip("│├└─ ")
            at = int(symbol.split("@")[1].split()[0])
            depth, up = 0, at
            while (up := int(batch.labels["parents"][i, up])) >= 0:
                depth += 1
            assert len(line) - len(symbol) == 3 * depth
    assert sum("<- key" in line for line in lines) == 1
    assert tree_lines(AR(), AR().sample(1, generator(0)), 0) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("task", [ATR.preset("paper"), SelectiveCopy(num_queries=2)])
def test_export_holds_what_was_sampled(tmp_path, suffix, task):
    path = export(task, tmp_path / f"documents{suffix}", 30, generator(0))
    batch = task.sample(30, generator(0))
    if suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = polars.read_parquet(path).to_dicts()
    assert [row["tokens"] for row in rows] == batch.tokens.tolist()
    assert [row["targets"] for row in rows] == batch.targets.tolist()
    for name, at in batch.roles.items():
        assert [row[f"role_{name}"] for row in rows] == at.tolist()
    for name, label in batch.labels.items():
        assert [row[f"label_{name}"] for row in rows] == label.tolist()
    assert list(tmp_path.iterdir()) == [path]


def test_export_refuses_other_files_and_writes_nothing(tmp_path):
    with pytest.raises(UserError, match=r"must end in .jsonl or .parquet"):
        export(AR(), tmp_path / "documents.csv", 3, generator(0))
    with pytest.raises(UserError, match="there is no folder"):
        export(AR(), tmp_path / "nowhere" / "documents.jsonl", 3, generator(0))
    assert not list(tmp_path.iterdir())


def test_tasks_import_without_tables_and_terminals():
    code = (
        "import sys\n"
        "for name in ('polars', 'rich', 'altair', 'cyclopts', 'jinja2'): sys.modules[name] = None\n"
        "from mixerscope.tasks import ATR; import torch\n"
        "import mixerscope.tasks.render\n"
        "ATR().sample(2, torch.Generator().manual_seed(0))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
