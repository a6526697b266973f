"""Verdicts: a route is proposed by the grid, put to the proof, and named only if no test refutes it.

    key -> value -> query      induction: the association is stored at the value, then retrieved
    key -> query               direct retrieval: one block goes from key to query
    key -> next_key -> query   association one step later: stored at the position after the value
    value -> query             value copy: with the value corrupted; says nothing about how it was found

Everything is a pure function of the table of effects, the proof and the rules, and needs no model.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from mixerscope.analysis.documents import Path, SlotDocuments, candidate_paths
from mixerscope.analysis.evidence import MOST, NO_ROUTE, moves, together_text
from mixerscope.analysis.proofs import ABOUT, NECESSARY, SUFFICIENT, TAKES, arrival, passed_by, taken_by, tested
from mixerscope.analysis.questions import Questions, interval, percent, slot_documents
from mixerscope.analysis.rules import (
    CONTRADICTED,
    UNDETERMINED,
    UNPROVEN,
    RulesLike,
    as_rules,
    mechanism_of,
)
from mixerscope.analysis.stats import proportion_estimate
from mixerscope.artifacts.effects import ANYWHERE, DIRECTIONS, EffectTable, corrupted
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.proof import Proof, TestedRoute
from mixerscope.artifacts.verdicts import Test, Verdict, Verdicts
from mixerscope.errors import UnknownName, UserError

MOST_ROUTES = 6
"""Routes of a slot that are put to the proof."""
LEAST_COMMON = 0.02
"""Share of the documents that must take a route, judged by single stations, for it to be worth a proof."""
NEITHER, ASKS, AT_ONCE = "neither", "brings only what is asked", "all of it at once"
Counts = Callable[[Path], dict[str, Tensor]]
"""For one path, by test: [documents that count] whether they pass."""


def judge(table: EffectTable, rules: RulesLike = None, proof: Proof | None = None) -> Verdicts:
    """The verdict of every slot of the grid; with `rules="published"` the published reading, which tests nothing."""
    return Verdicts(tuple(judge_slot(table, slot, rules, proof) for slot in table.slots))


def judge_slot(table: EffectTable, slot: str, rules: RulesLike = None, proof: Proof | None = None) -> Verdict:
    """The verdict of one slot."""
    if slot not in table.slots:
        raise UnknownName("slot in this grid", slot, table.slots)
    if not table.facts.boundaries:
        raise UserError("a verdict is read off at the boundaries of blocks, and this foreign model has none by name")
    return _Case(table, slot, as_rules(rules), proof).verdict()


def hypotheses(table: EffectTable, rules: RulesLike = None) -> list[tuple[str, Path]]:
    """Slots and paths that the grid proposes, for a proof to test."""
    rules = as_rules(rules)
    return [
        (slot, path)
        for slot in dict.fromkeys([*table.slots, *table.facts.together])
        if corrupted(slot) in table.unedited
        for path in candidate_paths(slot_documents(table, slot, rules), MOST_ROUTES, LEAST_COMMON)
    ]


class _Case(Questions):
    """One slot of one model, from the first question to the last."""

    # The questions, in order.

    def verdict(self) -> Verdict:
        if self.gap is None:
            return self.unnamed(UNDETERMINED, "the likelihood of some answer is not finite, though nothing was edited")
        if self.rules.reading == "published":
            return self.published()
        for question in (self.solves, self.enough, self.follows, self.reads):
            ended = question()
            if ended is not None:
                return ended
        if not self.facts.read:
            return self.unnamed(UNDETERMINED, "no role stands where the answer is read, so no route can end there")
        return self._route()

    def _route(self) -> Verdict:
        paths = candidate_paths(self.documents, MOST_ROUTES, LEAST_COMMON)
        if not paths:
            self.found = {NEITHER: 1.0}
            return self.unnamed(UNDETERMINED, together_text(self.documents, self.facts.stations, self.rules))
        tried = self.proof is not None and self.proof.route(self.slot, paths[0]) is not None
        taken, counts = self._taken_by_proof(paths) if tried else self._taken_by_stations(paths)
        by_path = Counter(path for path in taken if path is not None)
        path = by_path.most_common(1)[0][0] if by_path else paths[0]
        # Of the documents that are answered whatever the key is, no route of it is that by which they are.
        without = torch.zeros(self._unmoved(), dtype=torch.bool)
        share = proportion_estimate(torch.cat([torch.tensor([one == path for one in taken]), without]))
        self.found = self._fractions(taken, len(without))
        informative = any(place != ANYWHERE for place in path)
        if informative:
            for name, passed in counts(path).items():
                value = proportion_estimate(torch.cat([passed, without]) if name == TAKES else passed)
                self.tests.append(Test(name, value.low > self.rules.names, value, self.rules.names, ABOUT[name]))
        else:
            self.tests.append(Test("sufficient and necessary", None, about="one block, with nothing to see inside it"))
        if informative and not share.low > self.rules.names:
            mixture = ", ".join(f"{name} in {percent(value)}" for name, value in self.found.items())
            reason = mixture if self.found.get(NEITHER, 0) < 0.5 else f"{mixture}; {self._why_neither(path, counts)}"
            return self.said(UNDETERMINED, (), reason, share)
        return self._named(path, [one == path for one in taken], share, tried)

    def _named(self, path: Path, takes: Sequence[bool], share: Estimate, tried: bool) -> Verdict:
        carriers, route = self._carriers(path), self._collapsed(self.slot, path)
        refuted = self._meets(carriers) or self._asks(carriers) or self._at_once(carriers, takes) or self._robust(path)
        beside = self._beside()
        name = mechanism_of(route, self.slot, self.facts.mechanisms, beside)
        if refuted is not None:
            return refuted
        found = self.said(name, route, "", share)
        found = replace(found, moves=moves(self.documents, self.facts, carriers, path, self.rules))
        if not tried:
            reason = "the proof of this route was not taken while the model was at hand"
            return replace(found, mechanism=f"{UNPROVEN}: {name}", reason=reason)
        unseen = [slot for m in self.facts.mechanisms if m.name == name for slot, _ in m.beside if slot not in beside]
        if unseen and not self.facts.one_block:
            reason = f"the {unseen[0]} was not corrupted, so whether it goes along is not known"
            return replace(found, mechanism=f"{UNPROVEN}: {name}", reason=reason)
        return found

    def _why_neither(self, path: Path, counts: Counts) -> str:
        """Of a path that few documents take, though it may be the best there is."""
        said = together_text(self.documents, self.facts.stations, self.rules)
        if said != NO_ROUTE:
            return said
        alone, needed = (percent(float(counts(path)[name].double().mean())) for name in (SUFFICIENT, NECESSARY))
        route = " → ".join(self._carriers(path))
        return f"{said}: {route} alone gives the answer in {alone}, and without it the answer is lost in {needed}"

    # Routes, by document.

    def _collapsed(self, slot: str, path: Path) -> tuple[str, ...]:
        """The places a slot's information goes through, each once."""
        carriers = (slot, *(() if self.facts.one_block else path), self.facts.read[0])
        return tuple(c for i, c in enumerate(carriers) if i == 0 or c != carriers[i - 1])

    def _carriers(self, path: Path) -> tuple[str, ...]:
        """Who carries the information at each boundary."""
        middle = () if self.facts.one_block else path
        return (self.slot, *middle, self.facts.read[0])

    def _name(self, path: Path) -> str:
        """What a path is called among others, with the block that brings the information to where it is read."""
        name = mechanism_of(self._collapsed(self.slot, path), self.slot, self.facts.mechanisms)
        return name if self.facts.one_block else f"{name} (block {arrival(self._carriers(path))})"

    def _taken_by_proof(self, paths: Sequence[Path]) -> tuple[list[Path | None], Counts]:
        """The path that each document takes: it alone is sufficient and necessary."""
        tried = tested(self.proof, self.slot, paths)
        return self._taken(self.documents, tried), lambda path: passed_by(tried[path], self.rules.carries)

    @cached_property
    def _other_paths(self) -> dict[str, tuple[SlotDocuments, list[Path | None]]]:
        return {slot: self._paths(slot) for slot in self._others()}

    def _paths(self, slot: str) -> tuple[SlotDocuments, list[Path | None]]:
        """Of another slot: the path of each document, by the proof where it was taken."""
        documents = slot_documents(self.table, slot, self.rules)
        tried = tested(self.proof, slot, candidate_paths(documents, MOST_ROUTES, LEAST_COMMON))
        return documents, self._taken(documents, tried) if tried else documents.paths()

    def _taken(self, documents: SlotDocuments, tried: dict[Path, TestedRoute]) -> list[Path | None]:
        """Of the documents that count. Where two answers tie, the grid and the proof, which run the model in batches of
        their own, may not agree on which do; what the proof does not count takes no route."""
        paths = taken_by(tried, self.rules.carries, self.table, self.proof.unasked if self.proof else ())
        gap = next(iter(tried.values())).gap
        by_document = dict(zip(gap.nonzero()[:, 0].tolist(), paths, strict=True))
        return [by_document.get(document) for document in documents.counts.nonzero()[:, 0].tolist()]

    def _taken_by_stations(self, paths: Sequence[Path]) -> tuple[list[Path | None], Counts]:
        """The same as far as single stations show it."""
        taken = self.documents.paths()

        def counts(path: Path) -> dict[str, Tensor]:
            found: dict[str, Tensor] = {}
            for direction, name in zip(DIRECTIONS, (SUFFICIENT, NECESSARY), strict=True):
                goes = [self.documents.goes(s, p, direction) for s, p in zip(self.facts.stations, path, strict=True)]
                found[name] = torch.stack([one for one in goes if one is not None]).all(0)
            return {**found, TAKES: torch.tensor([one == path for one in taken])}

        return taken, counts

    def _unmoved(self) -> int:
        """Documents that are answered rightly whatever stands at the slot: those in which it has no say; or, if these
        are more, right answers that stay more often than luck leaves them, which is right no oftener than guessing."""
        known = [one for one in (self.proof.unmoved if self.proof else ()) if one.slot == self.slot]
        return sum(max(int(one.whatever(self.rules.reads).sum()), self._beyond_luck(one.stays)) for one in known)

    def _beyond_luck(self, stays: Tensor) -> int:
        answers, guessing = stays[self.documents.right], self.facts.guessing
        if guessing is None or not len(answers) or proportion_estimate(answers).low <= guessing:
            return 0
        return int(answers.sum()) - round(guessing * len(answers))

    def _fractions(self, taken: Sequence[Path | None], unmoved: int) -> dict[str, float]:
        counted: Counter[str] = Counter()
        for path, count in Counter(taken).most_common():
            counted[NEITHER if path is None else self._name(path)] += count
        ordered = [item for item in counted.most_common() if item[0] != NEITHER]
        ordered += [(f"whatever the {self.slot} is", unmoved), (NEITHER, counted[NEITHER])]
        return {name: count / max(1, len(taken) + unmoved) for name, count in ordered if count}

    # Does the rest agree?

    def _beside(self) -> dict[str, tuple[str, ...]]:
        """The usual route of the other slots, as far as it can be seen."""
        found: dict[str, tuple[str, ...]] = {}
        for slot, (_, taken) in self._other_paths.items():
            paths = Counter(path for path in taken if path is not None)
            if paths and not self.facts.one_block:
                found[slot] = self._collapsed(slot, paths.most_common(1)[0][0])
        return found

    def _others(self) -> list[str]:
        """Slots whose information must meet that of this one before the answer."""
        if self.slot not in self.facts.together[:1]:
            return []
        return [
            slot
            for slot in self.facts.together
            if slot != self.slot and slot not in self.facts.read and corrupted(slot) in self.table.unedited
        ]

    def _meets(self, carriers: tuple[str, ...]) -> Verdict | None:
        """The other slots' information must arrive in the block in which this one's does."""
        block = arrival(carriers)
        for slot, (documents, paths) in self._other_paths.items():
            name = f"meets the {slot}"
            if self.facts.one_block:
                self.tests.append(Test(name, None, about="one block, so it can be in no other"))
                continue
            if documents.number < self.rules.min_documents:
                self.tests.append(Test(name, None, about=f"changing the {slot} changes {documents.number} answers"))
                return self.unnamed(UNDETERMINED, f"changing the {slot} changes {documents.number} answers only")
            ends = [None if path is None else arrival((slot, *path, self.facts.read[0])) for path in paths]
            share = proportion_estimate(torch.tensor([end == block for end in ends]))
            passed = share.low > self.rules.names
            about = f"documents in which the {slot} arrives in block {block}, as the {self.slot} does"
            self.tests.append(Test(name, passed, share, self.rules.names, about))
            if passed:
                ways = [None if path is None else self._collapsed(slot, path) for path in paths]
                split = self._goes_one_way(slot, ways)
                if split is not None:
                    return split
                continue
            others = Counter(end for end in ends if end is not None and end != block).most_common(1)
            if others and proportion_estimate(torch.tensor([end == others[0][0] for end in ends])).low > 0.5:
                return self.unnamed(
                    CONTRADICTED,
                    f"the {self.slot} arrives in block {block}, but the {slot} arrives in block {others[0][0]}"
                    f" (in {percent(others[0][1] / len(ends))} of the documents)",
                )
            located = percent(sum(end is not None for end in ends) / len(ends))
            return self.unnamed(
                UNDETERMINED,
                f"the {self.slot} arrives in block {block}, the {slot} in {interval(share)} of the documents only, and"
                f" it stands in one place in {located}; {together_text(documents, self.facts.stations, self.rules)}",
            )
        return None

    def _goes_one_way(self, slot: str, ways: Sequence[tuple[str, ...] | None]) -> Verdict | None:
        """What belongs to a route goes one way too: two of them that end in the same block are two mechanisms."""
        counted = Counter(way for way in ways if way is not None).most_common()
        share = proportion_estimate(torch.tensor([way == counted[0][0] for way in ways]))
        passed = share.low > self.rules.names
        about = f"documents in which the {slot} goes by {' → '.join(counted[0][0])}"
        self.tests.append(Test(f"one way of the {slot}", passed, share, self.rules.names, about))
        if passed:
            return None
        told = ", ".join(f"{' → '.join(way)} in {percent(count / len(ways))}" for way, count in counted)
        return self.unnamed(UNDETERMINED, f"the {self.slot} goes one way, but the {slot} goes by {told}")

    def _asks(self, carriers: tuple[str, ...]) -> Verdict | None:
        """The block in which key and value arrive must bring what is asked and nothing else, or it retrieves nothing:
        it brings the whole document along, and a later block picks."""
        if not self._others() or self.facts.one_block:
            return None
        block, blocks = arrival(carriers), {each.block: each for each in (self.proof.unasked if self.proof else ())}
        if block not in blocks or int(blocks[block].gap.sum()) < self.rules.min_documents:
            self.tests.append(Test(ASKS, None, about="not tried, or too few documents can be asked something else"))
            return None
        if block == max(blocks):  # what is said follows what is asked, and nobody comes after
            self.tests.append(Test(ASKS, None, about="by the last block, so it is picked there or nowhere"))
            return None
        shares = {number: proportion_estimate(each.kept_out(self.rules.carries)) for number, each in blocks.items()}
        passed, slot = shares[block].low > self.rules.names, blocks[block].slot
        about = f"documents in which block {block} does not bring the {slot} when something else is asked"
        self.tests.append(Test(ASKS, passed, shares[block], self.rules.names, about))
        if passed:
            return None
        arrives = f"the {self.slot} and what belongs to it arrive in block {block}"
        later = [number for number, share in shares.items() if number > block and share.low > MOST]
        if shares[block].high < MOST and later:
            return self.unnamed(
                CONTRADICTED,
                f"{arrives}, but so does what is not asked; what is asked is picked in block {later[0]} (in"
                f" {percent(shares[later[0]].value)} of the documents)",
            )
        said = f"what is not asked stays away in {interval(shares[block])} of the documents only"
        return self.unnamed(UNDETERMINED, f"{arrives}, but {said}")

    def _at_once(self, carriers: tuple[str, ...], takes: Sequence[bool]) -> Verdict | None:
        """The same documents must pass: a tenth that takes another route, and another tenth whose value does, are a
        fifth that does something else than the name says."""
        if not self._others() or self.facts.one_block:
            return None
        block, beside, counts = arrival(carriers), self._beside(), self.documents.counts
        holds = torch.ones_like(counts)
        holds[counts] = torch.tensor(takes)
        for slot, (documents, paths) in self._other_paths.items():
            ways = [(arrival((slot, *p, self.facts.read[0])), self._collapsed(slot, p)) if p else None for p in paths]
            holds[documents.counts] &= torch.tensor([way == (block, beside.get(slot)) for way in ways])
            for one in self.proof.unmoved if self.proof else ():
                if one.slot == slot:  # answered by heart, wherever the rest goes
                    holds &= ~one.whatever(self.rules.reads)
        seen = [torch.cat([holds[counts], torch.zeros(self._unmoved(), dtype=torch.bool)])]
        for each in self.proof.unasked[:-1] if self.proof else ():  # behind the last block nothing is left to pick
            asked, kept = counts & each.gap, each.keeps_out(self.rules.carries)
            if each.block == block and bool((holds & ~kept)[asked].any()):  # fewer documents, but more exceptions
                seen.append((holds & kept)[asked])
        share = min((proportion_estimate(each) for each in seen), key=lambda estimate: estimate.low)
        passed, about = share.low > self.rules.names, "documents in which all that each of them shows holds"
        self.tests.append(Test(AT_ONCE, passed, share, self.rules.names, about))
        if passed:
            return None
        return self.unnamed(
            UNDETERMINED, f"each part holds in most documents, but all of them at once in {interval(share)} only"
        )

    def _robust(self, path: Path) -> Verdict | None:
        """The same route where documents are of another size, if the model solves those."""
        for variant in self.proof.variants if self.proof else ():
            name = f"robust: {variant.name}"
            tried = self.proof.route(self.slot, path, variant.name) if self.proof else None
            accuracy = proportion_estimate(variant.right) if len(variant.right) else None
            needed = max(variant.guessing, self.rules.solves * self.accuracy.value)
            if accuracy is None or not accuracy.low > needed or tried is None:
                answers = variant.reason or (accuracy and f"{percent(accuracy.value)} of these are answered")
                self.tests.append(Test(name, None, about=answers or "not tried with this route"))
                continue
            if int(tried.gap.sum()) < self.rules.min_documents or not path:
                self.tests.append(Test(name, None, about="too few documents in which the corruption matters"))
                continue
            share = proportion_estimate(passed_by(tried, self.rules.carries)[TAKES])
            passed = share.low > self.rules.robust
            self.tests.append(Test(name, passed, share, self.rules.robust, "documents that take the same route"))
            if not passed:
                return self.unnamed(
                    UNDETERMINED,
                    f"the route holds on documents like those of training, but on {variant.name} in"
                    f" {interval(share)} only (needed: all of the interval above {self.rules.robust:g})",
                )
        return None
