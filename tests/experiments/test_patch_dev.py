"""Patching on dev documents, beside that on test documents."""

import mixerscope as ms
from mixerscope.tasks.split import held_out_pairs


def test_dev_documents_ask_what_training_asks_and_test_documents_what_is_held_out():
    stages = {"patch": {"documents": 40}, "patch_dev": {"documents": 40}}
    spec = ms.RunSpec(task="atr:paper-split", model={"architecture": "attention", "width": 8}, stages=stages)
    for name, expected in (("patch", True), ("patch_dev", False)):
        batch = spec.stages[name].pairs(spec).original
        _, answers = batch.answers()
        queries = batch.tokens.gather(1, batch.role("query")[:, None])[:, 0]
        held = held_out_pairs(queries.numpy() - 3, answers.numpy() - 3, spec.task.held_out, spec.task.split_seed)
        assert set(held.tolist()) == {expected}
