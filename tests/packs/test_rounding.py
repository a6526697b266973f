"""What travels with fewer digits, and in which bytes: no verdict may change, and no bit beyond the rounding."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from mixerscope.analysis import Rules, judge
from mixerscope.artifacts import StageRecord
from mixerscope.artifacts.effects import COLUMNS, Cell, Documents, EffectTable, Facts, Mechanism, Part, against
from mixerscope.errors import CorruptFile
from mixerscope.packs import unpack, write_pack
from mixerscope.packs.filter import filtered, restored
from mixerscope.packs.rounding import FINENESS, Judged, reduced, rounded, whole_activations
from mixerscope.results import RunResult, load_run
from mixerscope.runs import redo, run
from mixerscope.stages.judge import Judge
from tests.conftest import tiny_spec
from tests.packs.test_packs import copied, named, raw


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(tiny_spec("attention"), tmp_path_factory.mktemp("tiny"), progress=False)


@dataclass(frozen=True)
class Near:
    """A model of two blocks in which restoring the value goes a hair more than half-way, in every document."""

    small: float
    n: int = 64

    def table(self) -> EffectTable:
        roles, sites = ("key", "value", "query"), ("blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post")
        cells = [Cell("key", d, s, r) for d in ("restore", "break") for s in sites for r in roles]
        carried = [(cell.site, cell.role) in zip(sites, roles, strict=True) for cell in cells]
        shares = torch.tensor([[1.0, 0.9, 1.0] if carries else [0.0, 0.0, 0.1] for carries in carried])
        clean, corrupted, half_way = 0, 1, 2
        kept = [int(carries == (c.direction == "break")) for c, carries in zip(cells, carried, strict=True)]
        kept[cells.index(Cell("key", "restore", sites[1], "value"))] = half_way
        logits = torch.tensor([0.5, -0.5, self.small])[:, None].expand(-1, self.n).contiguous().half()
        return EffectTable(
            cells=tuple(cells),
            statuses=("measured",) * len(cells),
            reasons=("",) * len(cells),
            summary={metric: shares.clone() for metric in COLUMNS},
            unedited={"original": clean, "corrupted key": corrupted, against("key"): clean},
            kept=torch.tensor(kept),
            documents=Documents((logits + 0.5).half(), logits, logits > 0),
            facts=Facts(
                *(self.n, roles, ("query",), sites),
                blocks=((Part("attention", sites[1]),), (Part("attention", sites[2]),)),
                mechanisms=(Mechanism(roles, "induction"),),
            ),
        )

    def judged(self) -> Judged:
        return Judged(Rules(), judge(self.table()))


STEP = 2.0**-8
"""1/256 of the gap; the finer ones are a quarter of it each."""
NEAR = [(Near(0.3), 256), (Near(0.49 * STEP), 1024), (Near(0.49 * STEP / 4), 4096), (Near(0.49 * STEP / 16), None)]


@pytest.mark.parametrize(("near", "fineness"), NEAR, ids=[str(fineness) for _, fineness in NEAR])
def test_what_is_near_a_threshold_is_rounded_less_or_not_at_all(near: Near, fineness: int | None):
    table, judged = near.table(), near.judged()
    assert [verdict.mechanism for verdict in judged.verdicts] == ["unproven: induction"]
    for coarser in FINENESS[: FINENESS.index(fineness)] if fineness else FINENESS:
        assert named(judge(rounded(table, coarser), judged.rules)) != named(judged.verdicts), coarser
    found, how_fine = reduced(table, [judged])
    assert how_fine == fineness
    assert named(judge(found, judged.rules)) == named(judged.verdicts)
    if fineness is None:
        assert found is table


def test_the_strictest_of_several_judges_decides():
    near, table = NEAR[1][0], NEAR[1][0].table()
    easy = Judged(Rules(carries=0.3), judge(table, Rules(carries=0.3)))
    assert reduced(table, [easy])[1] == 256
    assert reduced(table, [easy, near.judged()])[1] == 1024
    assert reduced(table, [])[1] is None


@pytest.mark.parametrize(("near", "fineness"), NEAR, ids=[str(fineness) for _, fineness in NEAR])
def test_a_stored_run_near_a_threshold_keeps_its_verdict(tiny, tmp_path: Path, near: Near, fineness: int | None):
    result = copied(tiny, tmp_path)
    patch = result.stages["patch"].folder
    patch.write(near.table())
    patch.close(patch.read(StageRecord).identity, patch.seal().files)
    shutil.rmtree(result.stages["judge"].folder.path)
    result = redo(load_run(result.folder.path), "judge", Judge(rules=near.judged().rules))
    size = write_pack(tmp_path / "runs.pack", [result])
    assert size.exact == (fineness is None)
    [home] = [load_run(found.path) for found in unpack(tmp_path / "runs.pack", tmp_path / "home")]
    assert [verdict.mechanism for verdict in home.verdicts] == ["unproven: induction"]
    notes = home.stages["patch"].outcome.notes
    assert notes == ((f"effects rounded to 1/{fineness} of the gap for travel",) if fineness else ())
    assert (raw(home) == raw(result)) == (fineness is None)


def test_a_model_that_learned_nothing_is_rounded_by_the_least_gap_that_counts():
    table = Near(0.3).table()
    values = torch.linspace(0.10, 0.12, table.facts.documents).half()
    same = Documents(values.expand(3, -1).contiguous(), values.expand(3, -1).contiguous(), table.documents.correct)
    unlearned = replace(table, documents=same)
    found = rounded(unlearned, 64, min_gap=0.01)
    step = 2.0**-13
    assert 0.01 / 128 < step <= 0.01 / 64
    assert bool((found.documents.likelihood.double() % step == 0).all())
    assert not torch.equal(found.documents.likelihood, same.likelihood)
    assert torch.equal(rounded(unlearned, 64).documents.likelihood, same.likelihood), "a gap of zero has no share"


def test_of_single_heads_no_documents_travel(tmp_path):
    spec = tiny_spec("attention")
    spec = spec.changed(model=spec.model.changed(options={"heads": 2}))
    away = run(spec, tmp_path / "away", progress=False)
    write_pack(tmp_path / "runs.pack", [away])
    [home] = [load_run(found.path) for found in unpack(tmp_path / "runs.pack", tmp_path / "home")]
    assert list(home.effects.rows()) == list(away.effects.rows())
    notes = home.stages["patch"].outcome.notes
    assert notes[1:] == ("of single heads, means and intervals have travelled, and no single documents",)
    assert len(home.effects.documents.likelihood) < len(away.effects.documents.likelihood)
    everything, left = away.effects, whole_activations(away.effects)
    assert {cell.head for cell, row in zip(everything.cells, everything.kept, strict=True) if row >= 0} == {-1, 0, 1}
    for cell, row in zip(everything.cells, everything.kept.tolist(), strict=True):
        if cell.head < 0 <= row:
            assert torch.equal(left.likelihood(cell), everything.likelihood(cell))
        else:
            with pytest.raises(KeyError):
                home.effects.likelihood(cell)
    for name in everything.unedited:
        assert torch.equal(left.likelihood(name), everything.likelihood(name))
        assert torch.equal(left.correct(name), everything.correct(name))


def test_a_run_that_serves_two_slots_is_rounded_by_the_smaller_gap():
    table, values = Near(0.3).table(), torch.full((64,), 0.3)
    likelihood = torch.stack([values, values / 7, values - 2**-8]).half()
    documents = Documents(likelihood, likelihood.clone(), likelihood > 0)
    unedited = {"original": 0, "corrupted key": 1, "corrupted value": 2}
    facts = replace(table.facts, together=("key", "value"))
    kept = table.kept.clamp(max=1)
    both = replace(table, documents=documents, unedited=unedited, facts=facts, kept=kept)
    found = rounded(both, 256).documents
    for old, new in ((likelihood, found.likelihood), (likelihood, found.logit_difference)):
        assert [torch.equal(before, after) for before, after in zip(old, new, strict=True)] == [True, False, True]


def test_numbers_that_are_none_or_too_large_stay_what_they_are():
    table = Near(0.3).table()
    odd = 0.3 * table.documents.likelihood.repeat(2, 1)
    odd[2, :3] = torch.tensor([float("nan"), float("inf"), -65504.0])
    documents = Documents(odd, odd.clone(), odd > 0)
    kept = table.kept.clone()
    kept[0] = 2
    found = rounded(replace(table, documents=documents, kept=kept), 256).documents
    for values in (found.likelihood, found.logit_difference):
        assert values[2, 0].isnan()
        assert values[2, 1] == float("inf")
        assert values[2, 2] == -65504.0
        assert not torch.equal(values[0], odd[0]), "the others are rounded"
    unedited = {"original": 2, "corrupted key": 1, against("key"): 2}
    found = rounded(EffectTable(**{**vars(table), "documents": documents, "unedited": unedited}), 256, 0.01).documents
    assert torch.equal(found.likelihood[:2], odd[:2]), "a gap that is no number has no parts"


# --- The filter.


EVERY = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
"""All half-precision numbers there are."""
STEPS = torch.arange(-320, 320).view(20, -1) * 2.0**-9
ROWS = {
    "every number": EVERY.view(64, -1),
    "every finite number": EVERY[EVERY.isfinite()].view(31, -1),
    "the same again": EVERY.view(64, -1)[torch.arange(64) % 7],
    "multiples": STEPS.half(),
    "multiples and a zero with a sign": STEPS.where(STEPS != 2**-9, torch.tensor(-0.0)).half(),
    "far apart": torch.tensor([[65504.0, 2**-24], [-65504.0, 0.0]]).half(),
    "zeros": torch.zeros(3, 4).half(),
    "one": torch.ones(1, 1).half(),
    "none": torch.empty(0, 5).half(),
    "more than are looked back on": torch.arange(700.0).half()[:, None],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=list(ROWS))
def test_the_filter_gives_back_every_bit(rows: torch.Tensor):
    others = {"others": torch.arange(9.0).view(3, 3), "flat": rows.reshape(-1).clone(), "bytes": torch.zeros(5).byte()}
    data = safetensors.torch.save({"rows": rows.contiguous(), **others}, metadata={"a": "b"})
    assert restored(filtered(data)) == data
    assert (filtered(data) == data) == (not rows.numel())


def test_multiples_of_a_power_of_two_are_smaller_than_their_bits():
    rows = torch.from_numpy(np.random.default_rng(0).integers(-32, 32, (9, 320)) * 2.0**-9).half()
    data = safetensors.torch.save({"rows": rows})
    assert len(filtered(data)) - len(data) == 2 + 2 * 9 + (1 - 2) * rows.numel(), "one byte each, in place of two"


def test_rows_that_are_like_an_earlier_one_cost_next_to_nothing():
    row = torch.from_numpy(np.random.default_rng(0).random(320)).half()
    data = safetensors.torch.save({"rows": row.expand(50, -1).contiguous()})
    assert np.count_nonzero(np.frombuffer(filtered(data), np.uint8)) < 3 * 320 + 50 + 200


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"\xff" * 64, (2).to_bytes(8, "little") + b"[]", (2).to_bytes(8, "little") + b"{}rest"]
)
def test_the_filter_refuses_what_is_no_safetensors_file(data: bytes):
    with pytest.raises(CorruptFile):
        filtered(data)
    with pytest.raises(CorruptFile):
        restored(data)
