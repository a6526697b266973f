"""The tables of cells and of edges: every metric, one column a fact."""

from dataclasses import replace

import pytest
import torch

from mixerscope.artifacts.effects import BEST, SHARE
from mixerscope.interventions import (
    METRICS,
    Cell,
    Edge,
    Effects,
    Grid,
    Measured,
    PairSettings,
    PathGrid,
    edge_rows,
    effect_table,
    interchange,
    make_pairs,
    patch_paths,
)
from mixerscope.interventions.selftest import SelfTest
from mixerscope.interventions.table import best_roles
from mixerscope.model import build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=4), data_seed=0)
SPEC = ModelSpec(architecture="attention", width=16, max_length=16, init="small_model")
MODEL = build_model(SPEC, TASK.vocab_size, seed=1).double()


def effects(likelihood: list[float]) -> Effects:
    values = torch.tensor(likelihood)
    return Effects(values, (values > 0.5).float(), values, values, values)


def grid(cells: dict[tuple[str, str], list[float]]) -> Grid:
    """Originals at 0.9, corrupted at 0.1; cells by direction and role."""
    return Grid(
        PAIRS,
        effects([0.9] * 4),
        {"key": effects([0.1] * 4)},
        {"key": effects([0.9] * 4)},
        {Cell("key", d, "embed", role): Measured(effects(values)) for (d, role), values in cells.items()},
        SelfTest((), 4, 1e-4),
    )


def test_the_best_role_of_every_document():
    found = best_roles(
        grid(
            {
                ("restore", "key"): [0.2, 0.1, 0.5, 0.05],
                ("restore", "value"): [0.3, 0.1, 0.5, 0.01],  # no effect; a tie; worse than nothing
                ("restore", "key&value"): [0.9, 0.9, 0.9, 0.9],
                ("break", "key"): [0.2, 0.9, 0.9, 0.95],
                ("break", "value"): [0.3, 0.8, 0.9, 0.99],
            }
        )
    )
    assert {(cell.direction, cell.role): best.int().tolist() for cell, best in found.items()} == {
        ("restore", "key"): [0, 0, 1, 0],
        ("restore", "value"): [1, 0, 0, 0],
        ("break", "key"): [1, 0, 0, 0],
        ("break", "value"): [0, 1, 0, 0],
    }


def test_rows_of_cells_hold_every_metric():
    table = grid({("restore", "key"): [0.2, 0.1, 0.5, 0.4], ("restore", "key&value"): [0.9] * 4})
    rows = list(effect_table(table, MODEL).rows())
    assert [row["metric"] for row in rows if row["role"] == "key"] == [*METRICS, SHARE, BEST]
    assert [row["metric"] for row in rows if row["role"] == "key&value"] == [*METRICS, SHARE]
    values = {row["metric"]: row["value"] for row in rows if row["role"] == "key"}
    assert values[BEST] == 0.75
    assert values[SHARE] == pytest.approx((0.3 - 0.1) / 0.8)
    assert {row["edit"] for row in rows} == {"swap"}


def test_an_invalid_cell_takes_no_part_in_the_best():
    table = grid({("restore", "key"): [0.2] * 4, ("restore", "value"): [0.8] * 4})
    first, second = table.cells
    cells = {first: table.cells[first], second: replace(table.cells[second], status="invalid", reason="not finite")}
    rows = {(row["role"], row["metric"]): row for row in effect_table(replace(table, cells=cells), MODEL).rows()}
    assert rows["key", BEST]["value"] == 1.0
    assert (rows["value", BEST]["value"], rows["value", BEST]["reason"]) == (None, "not finite")


def test_rows_of_edges():
    ends = ("blocks.0.resid_post", "value", "blocks.1.resid_pre", "value")
    edges = [Edge("key", "restore", *ends), Edge("key", "break", *ends), Edge("key", "restore", *ends[2:], *ends[:2])]
    rows = list(edge_rows(patch_paths(MODEL, PAIRS, edges)))
    assert [row["metric"] for row in rows] == [*METRICS, SHARE] * 3
    # Nothing lies between these two sites, so the edge is the swap.
    plan = [Cell("key", direction, "blocks.1.resid_pre", "value") for direction in ("restore", "break")]
    swapped = interchange(MODEL, PAIRS, plan)
    swaps = [swapped.cells[cell].effects.likelihood.mean().item() for cell in plan]
    found = [row["value"] for row in rows if row["metric"] == "likelihood"]
    assert found[:2] == pytest.approx(swaps, rel=1e-9)
    assert rows[-1]["status"] == "no path"


def test_shares_of_edges():
    ends = ("embed", "key", "blocks.1.resid_pre", "value")
    moved = {"restore": [0.2, 0.1, 0.5, 0.4], "break": [0.9, 0.9, 0.8, 0.8]}
    edges = {Edge("key", direction, *ends): Measured(effects(values)) for direction, values in moved.items()}
    unknown = Edge("key", "restore", *ends[2:], *ends[:2])
    edges[unknown] = Measured(effects([0.5] * 4), "invalid", "not finite")
    table = PathGrid(PAIRS, effects([0.9] * 4), {"key": effects([0.1] * 4)}, edges, SelfTest((), 4, 1e-4))
    shares = [row for row in edge_rows(table) if row["metric"] == SHARE]
    assert [row["value"] for row in shares[:2]] == pytest.approx([0.2 / 0.8, 0.05 / 0.8])
    assert (shares[2]["value"], shares[2]["reason"]) == (None, "not finite")
