"""Cohorts in flight build their models side by side."""

import threading

import torch

from mixerscope.model import build_model
from tests.conftest import tiny_spec


def side_by_side(count, work):
    start = threading.Barrier(count)
    errors = []

    def one(index):
        start.wait()
        try:
            work(index)
        except Exception as error:  # noqa: BLE001 - handed to the thread that asserts
            errors.append(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_models_built_at_once_are_those_built_one_by_one():
    """And no thread leaves another's state in torch's global generator, which a fixture looks at."""
    specs = [tiny_spec(name) for name in ("mamba", "hyena", "based", "deltanet")] * 4
    want = [build_model(s.model, s.task.vocab_size, seed).state_dict() for seed, s in enumerate(specs)]
    got = {}

    def build(index):
        for seed in range(index, len(specs), 4):
            got[seed] = build_model(specs[seed].model, specs[seed].task.vocab_size, seed).state_dict()

    side_by_side(4, build)
    for seed, weights in enumerate(want):
        assert all(torch.equal(value, got[seed][name]) for name, value in weights.items())
