"""What a model is asked before any route of it is looked at: does it solve the task, follow and read?"""

from math import isfinite

from mixerscope.analysis.documents import SlotDocuments
from mixerscope.analysis.evidence import boundaries
from mixerscope.analysis.published import published_reading, published_route
from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL, UNDETERMINED, Rules, mechanism_of
from mixerscope.analysis.stats import mean_estimate, proportion_estimate
from mixerscope.artifacts.effects import ORIGINAL, EffectTable, corrupted
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.proof import Proof
from mixerscope.artifacts.verdicts import Test, Verdict


def percent(share: float) -> str:
    return f"{share:.0%}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """`0.57 [0.46, 0.68]`"""
    numbers = (round(number, digits) + 0.0 for number in (estimate.value, estimate.low, estimate.high))
    value, low, high = (f"{number:.{digits}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def slot_documents(table: EffectTable, slot: str, rules: Rules) -> SlotDocuments:
    return SlotDocuments(table, slot, rules.carries)


class Questions:
    """One slot of one model. Each question gives the verdict that it ends with, or none."""

    def __init__(self, table: EffectTable, slot: str, rules: Rules, proof: Proof | None) -> None:
        self.table, self.facts, self.slot, self.rules, self.proof = table, table.facts, slot, rules, proof
        self.documents = slot_documents(table, slot, rules)
        self.accuracy = proportion_estimate(table.correct(ORIGINAL))
        gap = mean_estimate(table.likelihood(ORIGINAL) - table.likelihood(corrupted(slot)))
        self.gap = gap if isfinite(gap.value) else None
        self.tests: list[Test] = []
        self.found: dict[str, float] = {}

    # What ends without a name.

    def unnamed(self, mechanism: str, reason: str, route: tuple[str, ...] = ()) -> Verdict:
        return self.said(mechanism, route, reason)

    def said(self, mechanism: str, route: tuple[str, ...], reason: str = "", share: Estimate | None = None) -> Verdict:
        evidence = boundaries(self.documents, self.facts, self.rules) if self.documents.number else ()
        return Verdict(
            mechanism=mechanism,
            route=route,
            moves=(),
            share=share,
            gap=self.gap,
            boundaries=evidence,
            reason=reason,
            slot=self.slot,
            accuracy=self.accuracy,
            guessing=self.facts.guessing,
            tests=tuple(self.tests),
            found=dict(self.found),
            published=published_reading(self.table, self.slot, self.rules),
        )

    def published(self) -> Verdict:
        route = published_route(self.table, self.slot, self.rules)
        if not route:
            least = self.rules.min_gap
            return self.unnamed(
                UNDETERMINED, f"corrupting the {self.slot} lowers the likelihood by less than {least:g}"
            )
        return self.said(mechanism_of(route, self.slot, self.facts.mechanisms), route)

    def solves(self) -> Verdict | None:
        guessing = self.facts.guessing or 0.0
        above = self.accuracy.low > guessing
        self.tests.append(
            Test("above guessing", above, self.accuracy, guessing, "share of fresh documents answered rightly")
        )
        if above:
            return None
        if self.accuracy.low > guessing / 2 and guessing > 0.5:
            # A rule of thumb solves the task, too; whether the model retrieves all the same is still a question.
            ended = self.follows() or self.reads()
            if ended is not None:
                return ended
        return self.unnamed(
            NOT_LEARNED, f"accuracy {interval(self.accuracy)} cannot be told from guessing, {guessing:.2f}"
        )

    def enough(self) -> Verdict | None:
        have, need = self.facts.documents, self.rules.min_documents
        if have >= need:
            return None
        return self.unnamed(UNDETERMINED, f"{have} documents are too few (needed: {need})")

    def follows(self) -> Verdict | None:
        """Counterfactuals: the answer must be the one that the task predicts, as often as any is right."""
        worst: tuple[float, str, Estimate, float] | None = None
        for followed in self.proof.followed if self.proof else ():
            name = f"follows: {followed.kind}"
            if len(followed.right) < self.rules.min_documents:
                self.tests.append(Test(name, None, about=f"{len(followed.right)} documents can be changed so"))
                continue
            share = proportion_estimate(followed.right)
            usual = float(followed.before.double().mean()) if len(followed.before) else self.accuracy.value
            needed = self.rules.follows * usual
            about = "changed documents that are answered as the task predicts"
            self.tests.append(Test(name, share.low > needed, share, needed, about))
            if not share.low > needed and (worst is None or share.value < worst[0]):
                worst = share.value, followed.kind, share, usual
        if worst is None:
            return self.gives_up()
        _, kind, share, usual = worst
        reason = (
            f"{percent(usual)} of the documents are answered, but the answer follows in {interval(share)} only when"
            f" they are changed ({kind})"
        )
        # Half of them is a mixture of answers that follow and answers that come from elsewhere.
        return self.unnamed(NOT_RETRIEVAL if share.high < usual / 2 else UNDETERMINED, reason)

    def gives_up(self) -> Verdict | None:
        """An answer that was read off the document goes when the document says otherwise. One that was guessed stays,
        and the one that is guessed instead may be right as often, so that following does not show it."""
        for followed in self.proof.followed if self.proof else ():
            name = f"gives the old answer up: {followed.kind}"
            if followed.stays is None or int(followed.before.sum()) < self.rules.min_documents:
                why = "not looked at by this proof" if followed.stays is None else "too few were right before"
                self.tests.append(Test(name, None, about=why))
                continue
            share = proportion_estimate(followed.given_up())
            passed, about = share.low > self.rules.names, "right answers that are given up when the document changes"
            self.tests.append(Test(name, passed, share, self.rules.names, about))
            if not passed:
                return self.unnamed(
                    UNDETERMINED,
                    f"of the right answers only {interval(share)} are given up when the document says otherwise"
                    f" ({followed.kind})",
                )
        return None

    def reads(self) -> Verdict | None:
        """A model that uses a token loses answers when it is changed."""
        for slot in dict.fromkeys([self.slot, *self.facts.together]):
            if corrupted(slot) not in self.table.unedited:
                continue
            documents = self.documents if slot == self.slot else slot_documents(self.table, slot, self.rules)
            lost = proportion_estimate(documents.counts[documents.right])
            reads = lost.high > self.rules.reads
            self.tests.append(Test(f"reads the {slot}", reads, lost, None, "right answers lost when it is changed"))
            faded = proportion_estimate(documents.lost[documents.right])
            if not reads and faded.high > self.rules.reads:
                return self.unnamed(
                    UNDETERMINED,
                    f"changing the {slot} loses {interval(faded)} of the answers, but not by logits that differ enough"
                    " to be measured",
                )
            if not reads:
                return self.unnamed(
                    NOT_RETRIEVAL,
                    f"{percent(self.accuracy.value)} of the documents are answered, but changing the {slot} loses"
                    f" {interval(lost)} of these answers only",
                )
        if self.documents.number < self.rules.min_documents:
            count, need = self.documents.number, self.rules.min_documents
            return self.unnamed(
                UNDETERMINED, f"changing the {self.slot} changes {count} answers, which is too few (needed: {need})"
            )
        return None
