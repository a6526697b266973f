"""What a document says to other questions, and where its key stands elsewhere: more in tests of the whole proof."""

import json

import pytest
import safetensors.torch

from mixerscope.artifacts.proof import Proof
from mixerscope.interventions import PairSettings, make_pairs, prove
from mixerscope.interventions.prove import MOVED
from mixerscope.planted import TASK
from mixerscope.planted.helped import brought_and_picked, exclusion_where_found
from mixerscope.planted.models import direct_retriever, induction_transformer
from mixerscope.planted.separate_ways import SMALLER, asked_by_value, numbered
from mixerscope.planted.tasks import WorldsAR
from mixerscope.planted.truth import SIZE

SETTINGS = PairSettings(documents=24, slots=("key", "value"), avoid_present=True)


def idle_first(task, seed: int):
    """Direct retrieval by block 0, and nothing else."""
    return direct_retriever(task, seed, block=0, layers=2)


@pytest.mark.parametrize(("build", "followed"), [(induction_transformer, 1.0), (exclusion_where_found, 0.6)])
def test_whoever_knows_an_answer_by_the_others_does_not_follow_a_key_that_leaves_a_stranger(build, followed: float):
    task = WorldsAR(**SIZE)
    proof = prove(build(task, 0), make_pairs(task, SETTINGS, data_seed=0), "value")
    found = {one.kind: one.right.double().mean().item() for one in proof.followed}
    assert found.pop(MOVED) == pytest.approx(followed, abs=0.05 * (followed < 1))
    assert set(found.values()) == {1.0}


def test_what_is_asked_can_be_moved_where_values_are_asked():
    task = TASK.changed(query="value")
    proof = prove(asked_by_value(task, 0), make_pairs(task, SETTINGS, data_seed=0), "key")
    assert [(one.kind, bool(one.right.all())) for one in proof.followed] == [
        ("query", True),
        ("swap-keys", True),
        ("value", True),
        (MOVED, True),
    ]


@pytest.mark.parametrize(("build", "needed"), [(brought_and_picked, True), (numbered, True), (idle_first, False)])
def test_what_is_brought_unasked_may_be_too_little_to_be_said_and_needed_all_the_same(build, needed: bool):
    first, _ = prove(build(SMALLER, 0), make_pairs(SMALLER, SETTINGS, data_seed=0), "query").unasked
    assert bool(first.needed[first.gap].all()) == bool(first.needed.any()) == needed
    assert first.answered.any() == (build is numbered), "and only then it is said"


def test_a_proof_from_before_it_was_looked_what_is_needed_is_read():
    proof = prove(brought_and_picked(SMALLER, 0), make_pairs(SMALLER, SETTINGS, data_seed=0), "query")
    data = proof.to_bytes()
    header = json.loads(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["proof"])
    tensors = {name: tensor for name, tensor in safetensors.torch.load(data).items() if not name.endswith("needed")}
    metadata = {"proof": json.dumps({**header, "version": 5})}
    older = Proof.from_bytes(safetensors.torch.save(tensors, metadata=metadata))
    assert older.unasked[0].kept_out(0.5).all()
    assert not proof.unasked[0].kept_out(0.5).any()
