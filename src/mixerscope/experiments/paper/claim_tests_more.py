"""The tests of the claims on treecall, positions, depth and siblings."""

from mixerscope.experiments.fig10.figure import DEV, TEST
from mixerscope.experiments.paper.claim_tests import (
    ABOUT,
    ALL,
    FROM_32,
    FROM_64,
    FROM_128,
    NOT_LEARNED,
    STEP,
    TESTS,
    ahead,
    test_of,
)
from mixerscope.experiments.paper.claims import Evidence
from mixerscope.experiments.paper.data import NEXT_INPUT
from mixerscope.experiments.paper.evidence import BySeed, Cells, Numbers, ahead_of, difference, over_widths
from mixerscope.experiments.paper.panels import ACCURACY, CORRUPTED, ORIGINAL, named

SEVEN = ("Mamba", "Hyena", "H3", "DeltaNet", "Based", "BaseConv", "Attention")
SIX = tuple(name for name in SEVEN if name != "DeltaNet")
POINTS, MARGIN = "points of accuracy", "share restored, the one minus the other"
WELL_ABOVE = 10.0
"""Likelihood x 100."""
MOST = 0.5
SIBLINGS = 80.0
ALIKE = 0.2
"""Shares that differ by less are the same mechanism."""


@test_of("treecall-mamba-best")
def _(n: Numbers) -> Evidence:
    others = [name for name in SEVEN if name != "Mamba"]
    return Evidence(ahead(n, "Mamba", others, ALL, "fig7", ORIGINAL), -0.5, "points of likelihood ahead of the next")


TESTS["treecall-memory"] = lambda n: Evidence(
    {f"{row} d={d}": n.at("fig7", CORRUPTED, row, d) for row in SEVEN for d in FROM_32}, WELL_ABOVE, "likelihood x 100"
)


def _margins(n: Numbers, figure: str, rows: tuple[str, ...], induction: bool) -> Cells:
    value, direct = ["value"], ["key", "query"]
    one, other = (value, direct) if induction else (direct, value)
    return {f"{row} d={d}": n.margin(figure, one, other, row, d) for row in rows for d in FROM_32}


TESTS["treecall-induction"] = lambda n: Evidence(
    _margins(n, "fig7", ("Attention", "Based", "BaseConv"), induction=True), 0.0, MARGIN
)
TESTS["treecall-direct"] = lambda n: Evidence(
    _margins(n, "fig7", ("Mamba", "DeltaNet", "Hyena", "H3"), induction=False), 0.0, MARGIN
)
TESTS["treecall-no-conv-value"] = lambda n: Evidence(_margins(n, "fig8", ("none", "1"), induction=True), 0.0, MARGIN)


@test_of("treecall-no-conv-learns")
def _(n: Numbers) -> Evidence:
    own = ahead_of(n.at("fig8", ACCURACY, "none", 256), n.at("fig7", ACCURACY, "Based", 256))
    return Evidence({"d=256": own}, 0.0, f"{POINTS} ahead of Based")


@test_of("treecall-conv-helps")
def _(n: Numbers) -> Evidence:
    def gained(_: str, d: int) -> BySeed:
        return ahead_of(n.at("fig8", ACCURACY, "4", d), n.at("fig8", ACCURACY, "none", d))

    return Evidence(over_widths("4 over none", ALL, gained), 0.0, POINTS)


def _without_positions(n: Numbers, panel: str, row: str, d: int) -> BySeed:
    """How much better without learned positions."""
    return ahead_of(n.at("fig9", panel, f"{row}, none", d), n.at("fig9", panel, f"{row}, learned", d))


TESTS["attention-needs-positions"] = lambda n: Evidence(
    {"Attention d=256": n.at("fig9", "AR", "Attention, none", 256)}, NOT_LEARNED, "accuracy x 100", below=True
)
TESTS["positions-hurt"] = lambda n: Evidence(
    {
        f"{row} d={d}": _without_positions(n, "AR", row, d)
        for row, widths in (("Based", ALL), ("Mamba", FROM_32), ("Hyena", FROM_128))  # others are equal in failing
        for d in widths
    },
    0.0,
    POINTS,
    of_cells=MOST,
)
TESTS["small-attention-without"] = lambda n: Evidence(
    {f"Attention d={d}": _without_positions(n, "ATR, L = 5", "Attention", d) for d in (16, 32)}, 0.0, POINTS
)


@test_of("split-below-dev")
def _(n: Numbers) -> Evidence:
    def lost(row: str, d: int) -> BySeed:
        return difference(n.at("fig10", DEV, row, d), n.at("fig10", TEST, row, d))

    return Evidence({f"{row} d={d}": lost(row, d) for row in SIX for d in ALL}, 0.0, POINTS)


@test_of("split-attention-best")
def _(n: Numbers) -> Evidence:
    others = [name for name in SIX if name != "Attention"]
    return Evidence(ahead(n, "Attention", others, FROM_32, "fig10", DEV), 0.0, "points ahead of the next")


TESTS["split-h3-over-mamba"] = lambda n: Evidence(
    ahead(n, "H3", ["Mamba"], ALL, "fig10", TEST), 0.0, "points ahead", of_cells=3 / 5
)


@test_of("split-same-mechanism")
def _(n: Numbers) -> Evidence:
    """How far the share of the role that restores most on dev documents is from its share on test documents."""
    best = named(n.results.best(n.results.part("fig10", "split"), "dev"))
    cells: Cells = {f"{row} d={d}": {} for row in SIX for d in FROM_32}
    by_run: dict[str, list[tuple[float, float]]] = {}
    for role in ("key", "query", "value"):
        at = n.results.restored(best, NEXT_INPUT, role, "dev").rename({"restored_share": "on_dev"})
        on_test = n.results.restored(best, NEXT_INPUT, role).select("run_id", "restored_share")
        for run in at.join(on_test, on="run_id").iter_rows(named=True):
            if run["on_dev"] is not None and run["restored_share"] is not None:
                by_run.setdefault(run["run_id"], []).append((run["on_dev"], run["restored_share"]))
    for run in best.iter_rows(named=True):
        label, found = f"{run['name']} d={run['width']}", by_run.get(run["run_id"])
        if label in cells and found:
            dev, test = max(found)
            cells[label][run["seed"]] = abs(dev - test)
    return Evidence(cells, ALIKE, "difference of shares", below=True)


@test_of("one-block-mamba")
def _(n: Numbers) -> Evidence:
    def gained(_: str, d: int) -> BySeed:
        return ahead_of(n.at("fig11", "AR", "Mamba, 1", d), n.at("fig11", "AR", "Mamba, 2", d))

    return Evidence(over_widths("Mamba", FROM_64, gained), -ABOUT, "points of accuracy, one block minus two")


TESTS["one-block-induction"] = lambda n: Evidence(
    {
        f"{row} d={d}": n.at("fig11", "AR", f"{row}, 1", d)
        for row, widths in (("Attention", FROM_32), ("Based", ALL))  # where two blocks learn it
        for d in widths
    },
    NOT_LEARNED,
    "accuracy x 100",
    below=True,
)


@test_of("one-block-treecall")
def _(n: Numbers) -> Evidence:
    lost = ahead_of(n.at("fig11", "ATR", "Attention, 2", 256), n.at("fig11", "ATR", "Attention, 1", 256))
    return Evidence({"Attention d=256": lost}, STEP / 2, "points of accuracy lost")


@test_of("three-blocks")
def _(n: Numbers) -> Evidence:
    def apart(row: str, d: int) -> BySeed:
        found = ahead_of(n.at("fig12", "3 layers", row, d), n.at("fig12", "2 layers", row, d))
        return {seed: abs(value) for seed, value in found.items()}

    cells = {f"{row} d={d}": apart(row, d) for row in SIX for d in ALL if (row, d) != ("Mamba", 32)}
    return Evidence(cells, 2 * ABOUT, POINTS, below=True)


def _writes(n: Numbers, rows: tuple[str, ...], block: int) -> Cells:
    """Of the best runs: the share that one block's mixer brings back at the query minus the most another does."""
    from mixerscope.experiments.fig12.figure import PANELS, shares

    best = {
        run for part in PANELS.values() for run in n.results.best(n.results.part("fig12", part))["run_id"].to_list()
    }
    by_run: dict[tuple[str, str, int, int, str], dict[str, float]] = {}
    for row in shares(n.results):
        if row["run_id"] in best and row["row"] in rows and row["value"] is not None:
            key = (row["depth"], row["row"], row["width"], row["seed"], row["run_id"])
            by_run.setdefault(key, {})[row["block"]] = row["value"]
    depths = [panel for depth, panel in enumerate(PANELS, start=1) if depth > block and depth > 1]
    cells: Cells = {f"{row}, {depth} d={d}": {} for row in rows for depth in depths for d in FROM_64}
    for (depth, row, width, seed, _), found in by_run.items():
        label = f"{row}, {depth} d={width}"
        own = found.get(f"block {block}")
        if label in cells and own is not None:
            cells[label][seed] = own - max((v for name, v in found.items() if name != f"block {block}"), default=0.0)
    return cells


TESTS["first-block-writes"] = lambda n: Evidence(_writes(n, ("Mamba", "Hyena"), 0), 0.0, MARGIN)
TESTS["second-block-writes"] = lambda n: Evidence(_writes(n, ("Attention", "Based"), 1), 0.0, MARGIN)


@test_of("siblings-easy")
def _(n: Numbers) -> Evidence:
    cells: Cells = {}
    for panel in ("1 layer", "2 layers", "3 layers"):
        rows = [row for row in SIX if panel != "1 layer" or row not in ("Based", "BaseConv")]
        cells |= {f"{row}, {panel} d={d}": n.at("fig13", panel, row, d) for row in rows for d in ALL}
    return Evidence(cells, SIBLINGS, "accuracy x 100")
