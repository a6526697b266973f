"""The table of effects: what is kept is what was measured, and it comes back from disk as it was."""

import json
import random
from collections import defaultdict
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from mixerscope.analysis import mean_estimate, proportion_estimate, ratio_estimate
from mixerscope.analysis.stats import likelihood_estimate
from mixerscope.artifacts.effect_columns import EffectColumns
from mixerscope.artifacts.effects import BEST, COLUMNS, JOINT, METRICS, NO_GAP, SHARE, EffectTable, half
from mixerscope.errors import CorruptFile, UserError
from mixerscope.interventions import (
    Cell,
    Grid,
    PairSettings,
    adapt,
    effect_table,
    full_plan,
    interchange,
    make_pairs,
    plan_grid,
    verdict,
)
from mixerscope.model import Model
from mixerscope.planted.models import induction_transformer
from mixerscope.randomness import construction, stream
from mixerscope.tasks import AR
from tests.interventions.homemade import SITES, HomeMade

TASK = AR(num_pairs=3, num_keys=6, num_values=6)


def blurred_induction() -> Model:
    """Two heads of which one works; noise makes effects that are neither nothing nor all."""
    model, rng = induction_transformer(TASK, 0, heads=2).double(), stream(0, "blur")
    with torch.no_grad():
        for weight in model.parameters():
            weight += (
                0.04 * weight.square().mean().sqrt() * torch.randn(weight.shape, generator=rng, dtype=weight.dtype)
            )
    return model


PAIRS = make_pairs(TASK, PairSettings(documents=9, slots=("key", "value")), data_seed=0)
MODEL = blurred_induction()
PLAN = [*full_plan(MODEL, PAIRS), *plan_grid(MODEL, PAIRS, ["embed"], ["key", "key&value"], edits=["zero"])]


def measured() -> Grid:
    """One cell of it is not finite."""
    grid = interchange(MODEL, PAIRS, PLAN)
    bad = Cell("key", "break", "blocks.1.resid_pre", "value")
    invalid = replace(grid.cells[bad], status="invalid", reason="not finite in 1 of 9 documents")
    return replace(grid, cells={**grid.cells, bad: invalid})


GRID = measured()
TABLE = effect_table(GRID, MODEL)
ROWS = list(TABLE.rows())


def expected(grid: Grid, cell: Cell, metric: str):
    """The number by its definition, cell by cell; None where there is none."""
    found = grid.cells[cell]
    if found.status == "invalid":
        return None
    original, corrupted = grid.original.likelihood, grid.corrupted[cell.slot].likelihood
    edited, restores = found.effects.likelihood, cell.direction == "restore"
    if metric == SHARE:
        return ratio_estimate(edited - corrupted if restores else original - edited, original - corrupted)
    if metric == "accuracy":
        return proportion_estimate(found.effects.accuracy)
    if metric == "likelihood":
        return likelihood_estimate(edited)
    if metric in METRICS:
        return mean_estimate(getattr(found.effects, metric))
    wins = []
    for i in range(len(grid.pairs)):
        moved = {}
        for role in grid.pairs.original.roles:
            other = grid.cells[replace(cell, role=role)]
            if other.status != "invalid":
                change = other.effects.likelihood[i] - (corrupted if restores else original)[i]
                moved[role] = change if restores else -change
        best = max(moved, key=lambda role: moved[role])
        wins.append(best == cell.role and bool(moved[best] > 0))
    return proportion_estimate(torch.tensor(wins))


def test_every_row_is_the_number_by_its_definition():
    rows: dict[Cell, dict[str, dict]] = defaultdict(dict)
    for row in ROWS:
        head = -1 if row["head"] is None else row["head"]
        rows[Cell(row["slot"], row["direction"], row["site"], row["role"], row["edit"], head)][row["metric"]] = row
    assert list(rows) == PLAN
    for cell, own in rows.items():
        # Zeros were written at the key alone and at two places together; offsets are no roles.
        takes_part = cell.role in PAIRS.original.roles and cell.head < 0 and cell.slot in PAIRS.patched
        assert list(own) == [*METRICS, SHARE, *([BEST] if takes_part else [])], cell
        for metric, row in own.items():
            if metric == BEST and cell.edit == "zero":
                continue  # it has no counterfactuals there
            want = expected(GRID, cell, metric)
            assert (row["n"], row["status"]) == (9, GRID.cells[cell].status)
            if want is None:
                assert (row["value"], row["low"], row["high"]) == (None, None, None)
                assert row["reason"] == (GRID.cells[cell].reason or NO_GAP)
            else:
                found = (row["value"], row["low"], row["high"])
                assert found == pytest.approx((want.value, want.low, want.high), rel=1e-5, abs=1e-6), (cell, metric)
                assert row["reason"] == GRID.cells[cell].reason
                if metric in (SHARE, "accuracy"):
                    assert TABLE.estimate(cell, metric).n == 9


def test_the_table_has_what_the_test_above_is_about():
    assert {row["status"] for row in ROWS} == {"measured", "no path", "same", "invalid"}
    assert {row["edit"] for row in ROWS} == {"swap", "zero"}
    assert {row["head"] for row in ROWS} == {None, 0, 1}
    assert any(JOINT in row["role"] for row in ROWS)
    assert any("+" in row["role"] for row in ROWS)
    shares = [row["value"] for row in ROWS if row["metric"] == SHARE and row["value"] is not None]
    assert max(shares) > 0.9
    assert any(0.1 < share < 0.8 for share in shares)
    assert {(row["layer"], row["component"]) for row in ROWS} >= {(0, "embed"), (1, "mixer.heads_out")}


def test_places_that_are_no_roles_take_part_in_the_best_where_every_site_has_them():
    asked = {cell: GRID.cells[cell] for cell in plan_grid(MODEL, PAIRS)}
    alone = effect_table(replace(GRID, cells=asked), MODEL)
    for cell in asked:
        assert alone.estimate(cell, BEST) == TABLE.estimate(cell, BEST), "what a verdict looks at took a role's place"
    plan = plan_grid(MODEL, PAIRS, ["embed", "blocks.1.resid_pre"], ["query", "pos:5"], ["restore"])
    table = effect_table(interchange(MODEL, PAIRS, plan), MODEL)
    assert all(table.estimate(cell, BEST) is not None for cell in plan)


def test_a_slot_that_was_corrupted_to_see_whether_it_is_read_can_be_patched_all_the_same():
    pairs = make_pairs(TASK, PairSettings(documents=9), data_seed=0)
    assert (pairs.patched, tuple(pairs.corrupted)) == (("key",), ("key", "value", "query"))
    beside = [cell for cell in full_plan(MODEL, pairs) if cell.slot != "key"]
    assert {cell.slot for cell in beside} == {"value", "query"}
    assert {cell.site for cell in beside} == {"blocks.1.resid_pre"}, "only where a verdict looks"
    cell = Cell("value", "restore", "embed", "value")
    table = effect_table(interchange(MODEL, pairs, [cell]), MODEL)
    assert table.estimate(cell, SHARE).value == pytest.approx(1)


def same(found: EffectTable, want: EffectTable) -> None:
    assert (found.cells, found.statuses, found.reasons) == (want.cells, want.statuses, want.reasons)
    assert (dict(found.unedited), found.facts) == (dict(want.unedited), want.facts)
    assert torch.equal(found.kept, want.kept)
    for name in ("likelihood", "logit_difference", "correct"):
        assert torch.equal(getattr(found.documents, name), getattr(want.documents, name)), name
    assert set(found.summary) == set(want.summary) == set(COLUMNS)
    for metric in COLUMNS:
        torch.testing.assert_close(found.summary[metric], want.summary[metric], rtol=0, atol=0, equal_nan=True)


def test_it_comes_back_from_its_bytes_and_the_bytes_are_always_the_same():
    data = TABLE.to_bytes()
    again = EffectTable.from_bytes(data)
    same(again, TABLE)
    assert list(again.rows()) == ROWS
    assert again.to_bytes() == data
    assert [*again.positions] == [*TABLE.positions]
    assert "query" in again.positions
    assert all(at.equal(TABLE.positions[place].to(at.dtype)) for place, at in again.positions.items())
    assert effect_table(measured(), MODEL).to_bytes() == data


def test_documents_are_kept_to_half_precision_and_where_judging_looks():
    kept = 0
    for cell, found in GRID.cells.items():
        if cell.site not in TABLE.facts.sites or found.status == "invalid":
            with pytest.raises(KeyError):
                TABLE.likelihood(cell)
            continue
        kept += 1
        exact, row = found.effects, int(TABLE.kept[TABLE.index[cell]])
        for rounded, want in (
            (TABLE.likelihood(cell), exact.likelihood),
            (TABLE.documents.logit_difference[row].double(), exact.logit_difference),
        ):
            assert bool(((rounded - want).abs() <= 2**-11 * want.abs() + 2**-25).all()), cell
        assert torch.equal(TABLE.documents.correct[row], exact.accuracy > 0)
    for name, effects in (("original", GRID.original), ("corrupted value", GRID.corrupted["value"])):
        torch.testing.assert_close(TABLE.likelihood(name), effects.likelihood, rtol=2**-11, atol=2**-25)
        assert torch.equal(TABLE.correct(name), effects.accuracy > 0)
    # Cells that are one run share a row, and so do those that change nothing.
    assert 30 < len(TABLE.documents.likelihood) < kept


def test_what_half_precision_cannot_say_is_not_infinite():
    assert half(torch.tensor([1e9, -1e9, 0.25])).tolist() == [65504.0, -65504.0, 0.25]


def test_damaged_bytes_are_refused():
    data = TABLE.to_bytes()
    for length in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptFile, match="this is no table of effects"):
            EffectTable.from_bytes(data[:length])
    for other in (b"{}", b"\0" * 100, safetensors.torch.save({"x": torch.zeros(2)})):
        with pytest.raises(CorruptFile):
            EffectTable.from_bytes(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, tensors: tensors.pop("documents.likelihood"),
        lambda header, tensors: tensors.pop("summary.kl"),
        lambda header, tensors: tensors.update({"summary.kl": tensors["summary.kl"][1:]}),
        lambda header, tensors: tensors.update({"cells.role": tensors["cells.role"][1:]}),
        lambda header, tensors: tensors["cells.site"].fill_(99),
        lambda header, tensors: tensors["cells.kept"].fill_(10_000),
        lambda header, tensors: header["unedited"].update({"original": 10_000}),
        lambda header, tensors: header["facts"].pop("roles"),
        lambda header, tensors: header.pop("words"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(change):
    data = TABLE.to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["effects"])
    tensors = safetensors.torch.load(data)
    same(EffectTable.from_bytes(safetensors.torch.save(tensors, {"effects": json.dumps(header)})), TABLE)
    change(header, tensors)
    with pytest.raises(CorruptFile, match="this is no table of effects"):
        EffectTable.from_bytes(safetensors.torch.save(tensors, {"effects": json.dumps(header)}))


@pytest.mark.parametrize(
    "said",
    [
        {"shape": [10**30]},
        {"shape": [10**12]},
        {"shape": [-2, -3], "data_offsets": [0, 12]},
        {"shape": [[1]]},
        {"shape": None},
        {"shape": []},
        {"data_offsets": [-2, 0]},
        {"data_offsets": [10**30, 10**30 + 2]},
        {"data_offsets": [0.5, 2.5]},
        {"data_offsets": "ab"},
        {"dtype": "BF16"},
        {"dtype": ["I16"]},
        {"dtype": "F32"},
    ],
)
def test_columns_lie_where_a_header_can_mean_them_or_are_refused(said):
    data = TABLE.to_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    assert 7 * EffectColumns.from_bytes(data).size > len(list(TABLE.rows())) > 0, "a row for each metric there"
    header["cells.site"] |= said
    text = json.dumps(header).encode()
    with pytest.raises(CorruptFile, match="this is no table of effects"):
        EffectColumns.from_bytes(len(text).to_bytes(8, "little") + text + data[start:])


def test_a_flipped_bit_of_the_header_is_no_other_error():
    data, draw = TABLE.to_bytes(), random.Random(0)
    size, refused = int.from_bytes(data[:8], "little"), 0
    for _ in range(200):
        damaged = bytearray(data)
        damaged[draw.randrange(8 + size)] ^= 1 << draw.randrange(8)
        try:
            EffectTable.from_bytes(bytes(damaged))  # a letter of a name may be another: the seal's hash tells that
        except CorruptFile:
            refused += 1
    assert refused > 50


def test_it_says_what_it_holds():
    assert repr(TABLE).startswith(f"<EffectTable: {len(PLAN)} cells at ")
    assert repr(TABLE).endswith("sites, key, value corrupted, 9 documents>")
    frame = TABLE.to_polars()
    assert frame.height == len(ROWS)
    assert set(frame.columns) == set(ROWS[0])


def test_a_foreign_model_without_boundaries_has_a_table_and_no_verdict():
    sites = {name: place for name, place in SITES.items() if "resid" not in name}
    with construction(0):
        model = adapt(HomeMade(TASK.vocab_size, 8), sites, head="out", logits=lambda out: out["scores"])
    grid = interchange(model, PAIRS)
    table = effect_table(grid, model)
    same(EffectTable.from_bytes(table.to_bytes()), table)
    assert len({row["site"] for row in table.rows()}) == len(sites)
    with pytest.raises(UserError, match="foreign model"):
        verdict(grid, model)


def test_a_gap_that_may_be_zero_has_no_shares_and_says_so():
    model = induction_transformer(TASK, 0)
    grid = interchange(model, PAIRS)
    same_everywhere = replace(grid, corrupted={**grid.corrupted, "key": grid.original})
    rows = [row for row in effect_table(same_everywhere, model).rows() if row["metric"] == SHARE]
    assert {row["value"] for row in rows if row["slot"] == "key"} == {None}
    assert {row["reason"] for row in rows if row["slot"] == "key"} >= {NO_GAP}
    assert all(row["value"] is not None for row in rows if row["slot"] == "value")
