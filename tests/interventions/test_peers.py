"""The same model and pairs through pyvene and through nnsight: every cell the same number for every document."""

import pytest
import torch
from benchmarks.peers import Likelihoods, nnsight_used_well, pyvene_as_the_reference, pyvene_used_well

from mixerscope.interventions import Cell, PairSettings, interchange, make_pairs, plan_grid
from mixerscope.model import build_model
from mixerscope.spec import ModelSpec
from mixerscope.tasks import AR

REASON = "the peers come with an extra: pip install 'mixerscope[interp]', or run make bench-interventions"
TASK = AR(num_pairs=3, num_keys=6, num_values=6)
PAIRS = make_pairs(TASK, PairSettings(documents=5, slots=("key", "value")), data_seed=0)
TOOLS = {"pyvene": (pyvene_as_the_reference, pyvene_used_well), "nnsight": (nnsight_used_well,)}


def relative(found: Likelihoods, expected: Likelihoods) -> float:
    return max((found[cell] / expected[cell] - 1).abs().max().item() for cell in expected)


@pytest.fixture(scope="module", params=["attention", "mamba"])
def measured(request):
    spec = ModelSpec(architecture=request.param, width=16, layers=2, max_length=16, init="small_model")
    model = build_model(spec, TASK.vocab_size, seed=1).double().eval()
    plan = plan_grid(model, PAIRS, directions=["restore"])
    plan = [cell for cell in plan if cell.site != "embed" and ".mixer." not in cell.site]
    grid = interchange(model, PAIRS, plan)
    return model, plan, {cell: m.effects.likelihood for cell, m in grid.cells.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", list(TOOLS))
def test_a_peer_gives_the_same_numbers(measured, package):
    with torch.random.fork_rng():  # peers may draw from the global generator while they are imported
        pytest.importorskip(package, reason=REASON)
        model, plan, ours = measured
        for tool in TOOLS[package]:
            with torch.no_grad():
                found = tool(model, PAIRS, plan)
            assert relative(found, ours) < 1e-9
            # A control: one position too far must not pass for the same.
            moved = {
                cell: found[Cell(cell.slot, cell.direction, cell.site, "value")] for cell in plan if cell.role == "key"
            }
            assert relative(moved, {cell: ours[cell] for cell in moved}) > 1e-6
