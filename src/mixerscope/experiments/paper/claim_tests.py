"""The tests of the claims on recall, by id; `claim_tests_more` has the others. Thresholds stand in these two files."""

from collections.abc import Callable, Sequence

from mixerscope.experiments.paper.claims import Evidence, Test
from mixerscope.experiments.paper.data import share_of
from mixerscope.experiments.paper.evidence import BySeed, Cells, Numbers, ahead_of, over_widths
from mixerscope.experiments.paper.panels import ACCURACY, ORIGINAL

ALL = (16, 32, 64, 128, 256)
FROM_32, FROM_64, FROM_128 = ALL[1:], ALL[2:], ALL[3:]
"""A part is needed where the whole learns, and models are asked for their mechanism where they learn: at other widths
such a sentence could not be wrong."""
SOLVED, ALMOST = 99.0, 95.0
"""Likelihood x 100."""
LEFT = 100 - SOLVED
"""Points that who solves a task may leave: two who do are equals, whichever is the luckier."""
NOT_LEARNED = 15.0
"""Accuracy or likelihood x 100; guessing among the values of a document gives 6."""
MOSTLY, HARDLY = 0.9, 0.1
"""Share of what corrupting took that one place brings back."""
HALF = 0.5
STEP = 20.0
"""Points that are more than a matter of luck."""
ABOUT = 5.0
"""Points within which two accuracies are about the same."""
TESTS: dict[str, Test] = {}


def test_of(id: str) -> Callable[[Test], Test]:
    """Registers the test of a claim."""

    def add(test: Test) -> Test:
        TESTS[id] = test
        return test

    return add


def likelihoods(n: Numbers, row: str, widths: Sequence[int], figure: str = "fig3") -> Cells:
    return over_widths(row, widths, lambda row, d: n.at(figure, ORIGINAL, row, d))


def ahead(n: Numbers, row: str, others: Sequence[str], widths: Sequence[int], figure: str, panel: str) -> Cells:
    """How many points one architecture is ahead of the best of others."""
    return over_widths(
        row,
        widths,
        lambda row, d: ahead_of(n.at(figure, panel, row, d), *(n.at(figure, panel, other, d) for other in others)),
    )


def shares(n: Numbers, row: str, role: str, widths: Sequence[int], figure: str = "fig3") -> Cells:
    return over_widths(row, widths, lambda row, d: n.share(figure, role, row, d))


def verdicts(n: Numbers, row: str, mechanism: str, widths: Sequence[int]) -> Cells:
    return over_widths(row, widths, lambda row, d: n.named_as("fig3", "recall", row, d, mechanism))


FAILING = ("Hyena", "H3", "BaseConv")
OF_LIKELIHOOD = "likelihood x 100"
RESTORED_SHARE = "share restored"
NAMED = "models with that verdict (1) or another (0)"

TESTS["attention-solves"] = lambda n: Evidence(likelihoods(n, "Attention", FROM_32), SOLVED, OF_LIKELIHOOD)
TESTS["based-solves"] = lambda n: Evidence(likelihoods(n, "Based", FROM_64), ALMOST, OF_LIKELIHOOD)
TESTS["mamba-behind"] = lambda n: Evidence(
    ahead(n, "Attention", ["Mamba"], FROM_32, "fig3", ORIGINAL), LEFT, "points ahead"
)
TESTS["deltanet-behind"] = lambda n: Evidence(
    ahead(n, "Attention", ["DeltaNet"], FROM_32, "fig3", ORIGINAL), LEFT, "points ahead"
)
TESTS["mamba-over-others"] = lambda n: Evidence(
    ahead(n, "Mamba", FAILING, FROM_32, "fig3", ORIGINAL), STEP, "points ahead"
)
TESTS["deltanet-over-others"] = lambda n: Evidence(
    ahead(n, "DeltaNet", FAILING, FROM_32, "fig3", ORIGINAL), STEP, "points ahead"
)
TESTS["others-fail"] = lambda n: Evidence(
    {**likelihoods(n, "H3", ALL), **likelihoods(n, "BaseConv", ALL)}, NOT_LEARNED, OF_LIKELIHOOD, below=True
)
TESTS["attention-at-value"] = lambda n: Evidence(shares(n, "Attention", "value", FROM_32), MOSTLY, RESTORED_SHARE)
TESTS["based-at-value"] = lambda n: Evidence(shares(n, "Based", "value", FROM_32), MOSTLY, RESTORED_SHARE)
TESTS["attention-proof"] = lambda n: Evidence(verdicts(n, "Attention", "induction", FROM_32), HALF, NAMED)
TESTS["based-proof"] = lambda n: Evidence(verdicts(n, "Based", "induction", FROM_32), HALF, NAMED)
TESTS["mamba-at-query"] = lambda n: Evidence(shares(n, "Mamba", "query", FROM_64), MOSTLY, RESTORED_SHARE)
TESTS["deltanet-at-query"] = lambda n: Evidence(shares(n, "DeltaNet", "query", FROM_32), MOSTLY, RESTORED_SHARE)
TESTS["hyena-at-query"] = lambda n: Evidence(shares(n, "Hyena", "query", FROM_128), MOSTLY, RESTORED_SHARE)
TESTS["mamba-proof"] = lambda n: Evidence(verdicts(n, "Mamba", "direct retrieval", FROM_64), HALF, NAMED)
TESTS["deltanet-proof"] = lambda n: Evidence(verdicts(n, "DeltaNet", "direct retrieval", FROM_32), HALF, NAMED)
TESTS["mamba-32-late"] = lambda n: Evidence(
    {"Mamba d=32": n.margin("fig3", ["key"], ["query"], "Mamba", 32)}, HALF, "share restored at key minus at query"
)
TESTS["mamba-no-conv"] = lambda n: Evidence(
    likelihoods(n, "none", FROM_32, "fig4a"), NOT_LEARNED, OF_LIKELIHOOD, below=True
)
TESTS["mamba-conv-1"] = lambda n: Evidence(
    likelihoods(n, "1", FROM_32, "fig4a"), NOT_LEARNED, OF_LIKELIHOOD, below=True
)
TESTS["based-kernel-1"] = lambda n: Evidence(
    over_widths("1", ALL, lambda row, d: n.at("fig4b", ACCURACY, row, d)), NOT_LEARNED, "accuracy x 100", below=True
)


@test_of("mamba-step")
def _(n: Numbers) -> Evidence:
    def step(_: str, d: int) -> BySeed:
        return ahead_of(n.at("fig4a", ORIGINAL, "2", d), n.at("fig4a", ORIGINAL, "1", d))

    return Evidence(over_widths("2 over 1", FROM_32, step), STEP, "points of likelihood")


@test_of("mamba-not-at-value")
def _(n: Numbers) -> Evidence:
    cells: Cells = {}
    for row in ("2", "3", "4"):
        cells |= shares(n, row, "value", FROM_32, "fig4a")
    return Evidence(cells, HARDLY, RESTORED_SHARE, below=True)


@test_of("based-long")
def _(n: Numbers) -> Evidence:
    def step(_: str, d: int) -> BySeed:
        return ahead_of(n.at("fig4b", ACCURACY, "3", d), n.at("fig4b", ACCURACY, "long", d))

    return Evidence(over_widths("3 over long", FROM_32, step), STEP, "points of accuracy")


def _through_convolution(n: Numbers, place: str) -> Cells:
    """Of the Mamba runs with the best rate: what the first block's convolution brings back at one place."""
    from mixerscope.experiments.fig5.figure import PLACES

    best = n.results.best(n.results.part("fig5", "mamba"))
    site, role = PLACES[place]
    cells: Cells = {f"Mamba d={d}": {} for d in FROM_64}
    for run in n.results.restored(best, site, role).iter_rows(named=True):
        share = share_of(run["restored"], run["likelihood"], run["corrupted"], 0.01)
        label = f"Mamba d={run['width']}"
        if label in cells and share is not None:
            cells[label][run["seed"]] = share
    return cells


TESTS["conv-to-next-key"] = lambda n: Evidence(_through_convolution(n, "Restored @ 0, next key"), HALF, RESTORED_SHARE)
TESTS["conv-not-to-value"] = lambda n: Evidence(
    _through_convolution(n, "Restored @ 0, value"), HALF, RESTORED_SHARE, below=True
)
