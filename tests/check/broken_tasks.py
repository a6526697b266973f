"""A sound task, and tasks that spoil one thing each."""

import os
import random
from dataclasses import replace

import numpy as np
import torch
from pydantic import field_serializer, model_validator

from mixerscope.artifacts.effects import Mechanism
from mixerscope.tasks import UNSCORED, Batch, Change, Task


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


class ToldByLabels(Sound):
    """Nobody could know which of two symbols is asked for."""

    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        answer = batch.tokens[torch.arange(n), torch.randint(2, (n,), generator=rng)]
        targets = batch.targets.scatter(1, torch.full((n, 1), self.length), answer[:, None])
        return replace(batch, targets=targets, labels={"answer": answer})

    def solve(self, batch):
        return batch.labels["answer"][:, None]


class ToldByRoles(Sound):
    """Nobody could know which symbol is asked for."""

    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        key = torch.randint(self.length, (n,), generator=rng)
        targets = batch.targets.scatter(1, torch.full((n, 1), self.length), batch.tokens.gather(1, key[:, None]))
        return replace(batch, targets=targets, roles={**batch.roles, "key": key})

    def solve(self, batch):
        return batch.tokens.gather(1, batch.roles["key"][:, None])


class ToldByTheNextDocument(Sound):
    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        answer = batch.tokens[:, :1].roll(1, 0)
        return replace(batch, targets=batch.targets.scatter(1, torch.full((n, 1), self.length), answer))

    def solve(self, batch):
        return batch.tokens[:, :1].roll(1, 0)


class LabelsOfOthers(Sound):
    def sample(self, n, rng, split="train"):
        return replace(super().sample(n, rng, split), labels={"second": torch.arange(3)})


class CorruptsByChance(Sound):
    def corrupt(self, batch, slot, rng, *args, **settings):
        rng = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "big"))
        return super().corrupt(batch, slot, rng, *args, **settings)


class ClassOutsideVocabulary(Sound):
    def symbol_class(self, slot, symbols):
        return 1, self.symbols + 50


class UnreadableRole(Sound):
    def sample(self, n, rng, split="train"):
        batch = super().sample(n, rng, split)
        return replace(batch, roles={**batch.roles, "key&value": torch.full((n,), 2)})


class LongerWithOneQuery(Sound):
    def single_query(self):
        return self.changed(length=self.length + 4)


class RouteOfOthers(Sound):
    mechanisms = (Mechanism(("kee", "query"), "direct retrieval"),)


class SlotsOfOthers(Sound):
    together = ("kee", "valeu")


class SlotTwice(Sound):
    @property
    def slots(self):
        return ("key", "key")


class SureGuess(Sound):
    def guessing(self):
        return 7.0


class VariantInOtherWords(Sound):
    def variants(self):
        return {"longer": self.changed(symbols=99)}
