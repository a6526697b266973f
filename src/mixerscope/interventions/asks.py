"""Which block picks what is asked: where a value is not asked for, it must not arrive.

A block that retrieves brings to the query what is asked and nothing else. One that brings more, all pairs or those like
the one that is asked, leaves it to a later block to pick; key and value arrive there all the same, so that no route
shows it. So it is looked at what stands at the query of a value that is not asked for, because the document is asked
anything else, because its key has gone to another value, or because it is said again with another one, where the last
one counts: that must not matter to what comes behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixerscope.artifacts.effects import half
from mixerscope.artifacts.proof import Unasked
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs
from mixerscope.interventions.plan import boundary_sites
from mixerscope.interventions.programs import Program, runner_of
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.tasks import Batch, Task
from mixerscope.training.objective import answer_correct

QUERY, SWAPPED = "query", "swap-keys"
"""Counterfactuals of a task: something else is asked of the same document; the question stays, and its key stands with
another value."""
ASKED, FEWEST = 640, 96
"""Questions that are asked in all, so that documents with many pairs, which can be asked more, are fewer; and how many
documents there are at least."""
DRAWS, AT_ONCE = 128, 32
"""Questions that are drawn to find all that a document can be asked, some at a time, until nothing new is among them:
one at a time they took longer than all runs of the models."""
AGAIN = 3
"""Places that are drawn to say a key again."""


@dataclass(frozen=True)
class Elsewhere:
    """Documents in which a value is not asked for, in so many ways, [ways, n, t] each."""

    tokens: Tensor
    possible: Tensor
    """[ways, n] whether that can be done to a document."""

    def __getitem__(self, part: slice) -> "Elsewhere":
        return Elsewhere(self.tokens[:, part], self.possible[:, part])


def unasked_at(members: Members, pairs: Pairs, batch_documents: int) -> list[list[Unasked]]:
    """By model, a record for each block; none where nothing else can be asked, or nothing belongs to the question."""
    sites, slot = boundary_sites(members.first)[1:], _belongs(pairs)
    questions = None if len(sites) < 2 or slot is None else _other_questions(pairs, FEWEST)
    if questions is None or slot is None:
        return [[] for _ in members.models]
    count = max(FEWEST, ASKED // len(questions.tokens))
    if min(count, len(pairs)) > FEWEST:
        questions = _other_questions(pairs, count) or questions
    kinds = [each[:count] for each in (questions, _swapped(pairs), *_said_again(pairs))]
    ways = Elsewhere(torch.cat([each.tokens for each in kinds]), torch.cat([each.possible for each in kinds]))
    device, parts = device_of(members.first), []
    here = next(pairs.chunks(min(len(pairs), count))).to(device)
    rows = batching(members.first, here, batch_documents, len(members)).short_rows
    size = max(1, rows // (len(sites) * len(ways.tokens)))
    for start, chunk in zip(range(0, len(here), size), here.chunks(size), strict=True):
        own = ways[start : start + len(chunk)]
        own = Elsewhere(own.tokens.to(device), own.possible.to(device))
        parts.append(members.map(_behind_each(chunk, slot, sites, own, len(questions.tokens))).cpu())
    table = torch.cat(parts, -1)
    left_out = table.new_zeros(*table.shape[:-1], len(pairs) - len(here))
    return [
        [
            Unasked(slot, block, gap > 0, half(share), answered > 0, needed > 0)
            for block, (gap, share, answered, needed) in enumerate(own)
        ]
        for own in torch.cat([table, left_out], -1).transpose(1, 2)  # [k, blocks, 4, n]
    ]


def _belongs(pairs: Pairs) -> str | None:
    """The slot whose token has to be brought to where the answer is read: the value."""
    read = pairs.reads.positions[:, 0]
    known = [slot for slot in pairs.together[1:] if slot in pairs.corrupted and slot in pairs.original.roles]
    return next((slot for slot in known if slot != QUERY and not torch.equal(pairs.original.roles[slot], read)), None)


def _other_questions(pairs: Pairs, documents: int) -> Elsewhere | None:
    """The first documents with every other question, those that they answer where the task knows how to ask them; of
    documents that ask several things, none."""
    if pairs.original.scored()[0].shape[1] != 1:
        return None
    if pairs.task is None or QUERY not in pairs.task.counterfactuals:
        if QUERY not in pairs.corrupted:
            return None
        tokens = pairs.corrupted[QUERY].tokens[:documents]
        return Elsewhere(tokens[None], torch.ones(1, len(tokens), dtype=torch.bool))
    original, rng = pairs.original[:documents], stream(pairs.data_seed, "proof", "other questions")
    several, at = original[torch.arange(len(original)).repeat(AT_ONCE)], original.role(QUERY)[:, None]
    known = original.tokens.gather(1, at)  # [n, questions]
    found: list[Tensor] = []
    first: list[Tensor] = []
    for _ in range(DRAWS // AT_ONCE):
        drawn = pairs.task.counterfactual(QUERY, several, rng).tokens.unflatten(0, (AT_ONCE, -1))
        asked = drawn.gather(2, at.expand(AT_ONCE, *at.shape))[..., 0].T  # [n, at once]
        before, known = known.shape[1], torch.cat([known, asked], 1)
        new = ~(known[:, before:, None] == known[:, None]).tril(before - 1).any(2)
        if not new.any():
            break
        found.append(drawn)
        first.append(new.T)
    if not found:
        return None
    # Each question of a document once, the documents with fewer repeating none: what is not possible is left out.
    tokens, possible = torch.cat(found), torch.cat(first)
    order = torch.argsort(possible.long(), dim=0, descending=True, stable=True)[: int(possible.sum(0).max())]
    return Elsewhere(
        tokens.gather(0, order[..., None].expand(*order.shape, tokens.shape[-1])), possible.gather(0, order)
    )


def _swapped(pairs: Pairs) -> Elsewhere:
    """The documents with the key that is asked at another value, where the task knows how."""
    if pairs.task is None or SWAPPED not in pairs.task.counterfactuals:
        tokens = pairs.original.tokens
        return Elsewhere(tokens[None], torch.zeros(1, len(tokens), dtype=torch.bool))
    swapped = pairs.task.counterfactual(SWAPPED, pairs.original, stream(pairs.data_seed, "proof", SWAPPED))
    return Elsewhere(swapped.tokens[None], swapped.labels["changed"][None] > 0)


def also_elsewhere(task: Task, batch: Batch, slot: str, rng: torch.Generator) -> Batch | None:
    """The documents with the key that is asked at another value, too; none where the task does not know how. There is
    always something that matches then, so what is said where nothing does has no part in it."""
    if slot not in task.together[:1] or SWAPPED not in task.counterfactuals:
        return None
    exchanged = task.counterfactual(SWAPPED, batch, rng)
    if torch.equal(exchanged.tokens, batch.tokens):
        return None
    found = _asked_stays(exchanged, batch, slot)
    return _in_place_of_another(task, batch, slot, rng) if found is None else found


def _asked_stays(exchanged: Batch, batch: Batch, slot: str) -> Batch | None:
    """Documents of exchanged keys, of which the one that is asked is also where it was; none where values are asked,
    which such an exchange leaves where they are."""
    at = batch.role(slot)[:, None]
    asked = batch.tokens.gather(1, at)
    if torch.equal(exchanged.tokens.gather(1, at), asked):
        return None
    return replace(exchanged, tokens=exchanged.tokens.scatter(1, at, asked))


def _in_place_of_another(task: Task, batch: Batch, slot: str, rng: torch.Generator) -> Batch:
    """What else could be asked is replaced, where it stands, by what is: its answer is then that of the question."""
    other, query = task.counterfactual(QUERY, batch, rng), batch.role(QUERY)[:, None]
    instead = other.tokens.gather(1, query)
    before = torch.arange(batch.tokens.shape[1]) < query
    place = ((batch.tokens == instead) & before).int().argmax(1, keepdim=True)
    return replace(other, tokens=batch.tokens.scatter(1, place, batch.tokens.gather(1, batch.role(slot)[:, None])))


def _said_again(pairs: Pairs) -> list[Elsewhere]:
    """The documents with the key that is asked said once more behind its pair, with another value, where documents
    have such: the last one counts."""
    has_such = "repeated" in pairs.original.labels and bool(pairs.original.labels["repeated"].any())
    if pairs.task is None or not has_such:
        return []
    found: list[Elsewhere] = []
    rng, key = stream(pairs.data_seed, "proof", "said again"), pairs.together[0]
    for _ in range(AGAIN if SWAPPED in pairs.task.counterfactuals else 0):
        exchanged = pairs.task.counterfactual(SWAPPED, pairs.original, rng)
        twice = _asked_stays(exchanged, pairs.original, key)
        if twice is None:  # no document says a value twice
            break
        behind = (twice.tokens != pairs.original.tokens).int().argmax(1) > pairs.original.role(key)
        found.append(Elsewhere(twice.tokens[None], (behind & (twice.labels["changed"] > 0))[None]))
    return found


def _behind_each(pairs: Pairs, slot: str, sites: Sequence[str], ways: Elsewhere, questions: int) -> Program:
    """[4, sites, n]: whether the document counts; how far what is said is moved by what stands at the query, behind
    each block, of the slot while it is not asked for, by the way that moves it furthest; whether any of them brings the
    answer back; and whether the answer is lost without what that way shows. The first so many ways are other
    questions."""
    clean, changed = pairs.original.tokens, pairs.corrupted[slot]
    corrupted, is_slot = changed.tokens, changed.tokens != clean
    read, answer = pairs.reads.positions[:, :1], pairs.reads.targets[:, 0]
    tokens = torch.stack([ways.tokens, corrupted.where(is_slot, ways.tokens)]).flatten(0, 2)
    several, count, documents = len(ways.tokens), len(sites), len(clean)
    at, here = read.repeat(several, 1), torch.arange(documents, device=clean.device)

    def program(model: Model | Adapted) -> Tensor:
        runner = runner_of(model)
        found = runner.run(tokens, read.repeat(2 * several, 1), sites, read.repeat(2 * several, 1)).cache
        top, base = (runner.run(each, read, sites, read) for each in (clean, corrupted))
        from_clean, from_corrupted = top.logits[:, 0], base.logits[:, 0]
        right, shares, without = list[Tensor](), list[Tensor](), list[Tensor]()
        way = (from_clean - from_corrupted).abs().amax(-1)
        gap = answer_correct(from_clean, answer) & ~answer_correct(from_corrupted, answer) & (way > 0)
        gap = gap & ways.possible[:questions].any(0)
        for site in sites:
            at_read = found[site].unflatten(0, (2, several, documents))[:, :, here, read[:, 0]]  # [2, ways, n, d]
            stands = (at_read[0] - at_read[1]) * ways.possible[..., None]
            written = base.cache[site][here, read[:, 0]] + stands
            says = runner.read_out(runner.leaves(base, site, at, written.flatten(0, 1)[:, None]))[:, 0]
            right.append(answer_correct(says, answer.repeat(several)).unflatten(0, (several, documents)).any(0))
            moved = (says.unflatten(0, (several, documents)) - from_corrupted).abs().amax(-1)
            furthest = moved.argmax(0)
            shares.append(moved.amax(0) / torch.where(gap, way, torch.ones_like(way)))
            written = top.cache[site][here, read[:, 0]] - stands[furthest, here]
            without.append(runner.read_out(runner.leaves(top, site, read, written[:, None]))[:, 0])
        share = torch.stack(shares)
        kept = answer_correct(torch.cat(without), answer.repeat(count)).unflatten(0, (count, documents))
        told = [gap.expand(count, -1), share, torch.stack(right), ~kept]
        return torch.stack([each.to(share.dtype) for each in told])

    return program
