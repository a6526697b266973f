"""How fast tasks are sampled, against a literal sampler that makes one document after the other in plain Python.

Both make the same kind of documents from the same grammar, in the same process, on one core. Prints a table, writes
benchmarks/results/tasks.json, and ends with `ratio: <literal time / our time>` for ATR.
"""

import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch

from mixerscope.tasks import AR, ATR, UNSCORED, Batch
from mixerscope.tasks.grammar import Grammar

RESULTS = Path(__file__).parent / "results" / "tasks.json"
DOCUMENTS = 100_032
LITERAL_DOCUMENTS = 2_000
PAD, BOS, EOS, FIRST_SYMBOL = 0, 1, 2, 3


@dataclass(frozen=True)
class Document:
    tokens: list[int]
    key: int
    value: int
    query: int
    parents: list[int]


def literal_batch(documents: list[Document]) -> Batch:
    """What a trainer needs of them: padded tensors, targets and roles."""
    width = max(len(document.tokens) for document in documents)
    tokens, targets, parents = [], [], []
    for document in documents:
        tokens.append(document.tokens + [PAD] * (width - len(document.tokens)))
        target = [UNSCORED] * width
        target[document.query] = document.tokens[document.query + 1]
        targets.append(target)
        parents.append(document.parents + [-1] * (width - len(document.parents)))
    roles = {name: torch.tensor([getattr(d, name) for d in documents]) for name in ("key", "value", "query")}
    return Batch(torch.tensor(tokens), torch.tensor(targets), roles, {"parents": torch.tensor(parents)})


def literal_ar(n: int, rng: random.Random, pairs: int = 16, keys: int = 4096, values: int = 4096) -> Batch:
    """Associative recall, a document at a time."""
    documents = []
    for _ in range(n):
        k = [FIRST_SYMBOL + key for key in rng.sample(range(keys), pairs)]
        v = [FIRST_SYMBOL + keys + value for value in rng.sample(range(values), pairs)]
        asked = rng.randrange(pairs)
        body = [token for pair in zip(k, v, strict=True) for token in pair]
        tokens = [BOS, *body, EOS, k[asked], v[asked], EOS]
        documents.append(Document(tokens, 1 + 2 * asked, 2 + 2 * asked, 2 + 2 * pairs, []))
    return literal_batch(documents)


class LiteralTreecall:
    """Associative treecall as one would write it first: a stack for each document, a list of its pairs."""

    def __init__(self, grammar: Grammar, max_symbols: int) -> None:
        self.grammar = grammar
        self.max_symbols = max_symbols
        self.terminals = range(grammar.num_terminals)
        self.rule_cdf = [list(accumulate(row)) for row in grammar.weights]
        self.head_cdf = [list(accumulate(row)) for row in grammar.head_weights]

    def derive(self, rng: random.Random) -> tuple[list[int], list[int]] | None:
        """Symbols and parents, or None if the string is too long."""
        symbols: list[int] = []
        parents: list[int] = []
        waiting: dict[int, list[int]] = {}  # phrase -> positions whose parent its head will be
        start = rng.randrange(len(self.grammar.bodies))
        # Entries: (symbol, phrase it belongs to) or, to close phrase p of nonterminal x, (None, p, x, its own phrase).
        stack: list[tuple[int | None, int, int, int]] = [(-1 - start, -1, 0, 0)]
        phrases = 0
        while stack:
            if len(symbols) > self.max_symbols:
                return None
            symbol, phrase, x, above = stack.pop()
            if symbol is None:
                head = rng.choices(self.terminals, cum_weights=self.head_cdf[x])[0]
                for child in waiting.pop(phrase):
                    parents[child] = len(symbols)
                if above >= 0:
                    waiting[above].append(len(symbols))
                symbols.append(head)
                parents.append(-1)
            elif symbol >= 0:
                waiting[phrase].append(len(symbols))
                symbols.append(symbol)
                parents.append(-1)
            else:
                x = -1 - symbol
                body = rng.choices(self.grammar.bodies[x], cum_weights=self.rule_cdf[x])[0]
                waiting[phrases] = []
                stack.append((None, phrases, x, phrase))
                stack.extend((s, phrases, 0, 0) for s in reversed(body))
                phrases += 1
        return symbols, parents

    def sample(self, n: int, rng: random.Random) -> Batch:
        documents: list[Document] = []
        while len(documents) < n:
            derived = self.derive(rng)
            if derived is None or not 3 <= len(derived[0]) <= self.max_symbols:
                continue
            symbols, parents = derived
            children: dict[int, list[int]] = {}
            for at, parent in enumerate(parents):
                if parent >= 0 and symbols[at] not in symbols[at + 1 :]:
                    children.setdefault(parent, []).append(at)
            if not children:
                continue
            value = rng.choice(list(children))
            key = rng.choice(children[value])
            tokens = [FIRST_SYMBOL + s for s in symbols]
            document = [BOS, *tokens, EOS, tokens[key], tokens[value], EOS]
            above = [-1, *(parent + 1 if parent >= 0 else -1 for parent in parents)]
            documents.append(Document(document, key + 1, value + 1, len(symbols) + 2, above))
        return literal_batch(documents)


def best_time(work: Callable[[], object], repeats: int = 3) -> float:
    """Processor seconds of the fastest of a few runs; other programs on the machine do not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def peak_growth_over_batches(task: ATR, few: int = 10, many: int = 200) -> float:
    """Peak memory after many batches over that after few; 1 if memory does not depend on their number."""

    def peak(count: int) -> int:
        for _ in task.batches(512, torch.Generator().manual_seed(0), count=count):
            pass
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    after_few = peak(few)
    return peak(many) / after_few


def main() -> None:
    torch.set_num_threads(1)
    ar, atr, large = AR.preset("paper"), ATR.preset("paper"), ATR.preset("paper-8192")
    growth = peak_growth_over_batches(atr)

    def ours(task: AR | ATR) -> Batch:
        return task.sample(DOCUMENTS, torch.Generator().manual_seed(0))

    literal = LiteralTreecall(atr.rules, atr.max_symbols)
    per_document = {  # microseconds
        "ar": best_time(lambda: ours(ar)) / DOCUMENTS * 1e6,
        "ar literal": best_time(lambda: literal_ar(LITERAL_DOCUMENTS, random.Random(0))) / LITERAL_DOCUMENTS * 1e6,
        "atr": best_time(lambda: ours(atr)) / DOCUMENTS * 1e6,
        "atr literal": best_time(lambda: literal.sample(LITERAL_DOCUMENTS, random.Random(0))) / LITERAL_DOCUMENTS * 1e6,
        "atr 8192 terminals": best_time(lambda: ours(large)) / DOCUMENTS * 1e6,
    }
    made = literal.sample(20_000, random.Random(1))
    if not torch.equal(atr.read_answers(made), made.scored()[1]):
        raise AssertionError("the literal sampler makes other documents")
    result = {
        "documents": DOCUMENTS,
        "microseconds_per_document": {name: round(value, 2) for name, value in per_document.items()},
        "ar_seconds": round(per_document["ar"] * DOCUMENTS / 1e6, 3),
        "ar_ratio": round(per_document["ar literal"] / per_document["ar"], 2),
        "atr_ratio": round(per_document["atr literal"] / per_document["atr"], 2),
        "atr_8192_over_20": round(per_document["atr 8192 terminals"] / per_document["atr"], 2),
        "peak_memory_200_batches_over_10": round(growth, 3),
        "mean_length": {
            "ours": round(float(ours(atr).labels["length"].double().mean()), 2),
            "literal": round(float((made.roles["query"] - 2).double().mean()), 2),
        },
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in per_document.items():
        print(f"{name:>20}  {value:8.2f} us a document")
    print(f"{'8192 over 20':>20}  {result['atr_8192_over_20']:8.2f}")
    print(f"{'memory growth':>20}  {growth:8.3f}")
    print(f"ratio: {result['atr_ratio']}")


if __name__ == "__main__":
    main()
