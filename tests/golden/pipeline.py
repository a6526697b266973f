"""What is pinned of the trainer and of the stages: numbers they give for small models."""

import json
from typing import Any

import torch

from mixerscope.artifacts import Artifact, Emergence, Patterns, Scores, SelfTest, Verdicts
from mixerscope.artifacts.effects import METRICS, SHARE, EffectTable
from mixerscope.artifacts.proof import Proof
from mixerscope.machine import CPU
from mixerscope.model import Model, build_model
from mixerscope.planted.models import induction_transformer
from mixerscope.planted.zoo import TASK
from mixerscope.registry import MIXERS, STAGES, TASKS
from mixerscope.spec import ModelSpec, RunSpec, TrainSpec
from mixerscope.stages import Done, Trained
from mixerscope.training import train_cohort
from tests.golden.pins import Maker, Pinned, built_in, component_makers, double_precision, generator, mean_abs

TRAININGS: dict[str, dict[str, Any]] = {
    "cosine": {"train": {"weight_decay": 0.1}},
    "linear": {"train": {"schedule": "linear", "warmup": 0.0}, "seed": 1},
    "constant": {"train": {"schedule": "constant"}, "data_seed": 1},
    "several queries": {"task": "mqar:small"},
    "several lengths": {"task": {"name": "atr", "max_symbols": 24}},
}
"""Settings of runs beside those of `training_pins`."""


def training_pins() -> Pinned:
    """The weights and the curve after a few steps; they also change with what is trained, and on what."""
    cases: dict[str, Any] = {}
    tasks: set[str] = set()
    for name, settings in TRAININGS.items():
        train = {"steps": 10, "batch_size": 4, "documents": 14, "eval_every": 5, "eval_documents": 16, "lr": 1e-2}
        spec = RunSpec.model_validate(
            {
                "task": "ar:small",
                "model": {"architecture": "attention", "width": 16, "max_length": 64, "init": "small_model"},
                **settings,
                "train": {**train, **settings.get("train", {})},
            }
        )
        tasks.add(TASKS.name_of(type(spec.task)))
        with double_precision():
            [member] = train_cohort([spec], dtype=torch.float64)
        cases[name] = {
            "documents": member.data_sha256,
            "weights": {name: mean_abs(weight) for name, weight in member.weights.items()},
            "curve": [[point.loss, point.likelihood, point.accuracy] for point in member.history],
        }
    revisions = {
        "trainer": TrainSpec.revision,
        "backbone": ModelSpec.revision,
        "mixer attention": MIXERS.load("attention").revision,
        **{f"task {name}": TASKS.load(name).revision for name in sorted(tasks)},
    }
    return Pinned("the trainer", "TrainSpec", revisions, cases)


def blurred_induction() -> Model:
    """A model with a known route and effects that are neither nothing nor all."""
    rng = generator(0)
    with double_precision(), torch.no_grad():
        model = induction_transformer(TASK, 0, heads=2)
        for weight in model.parameters():
            weight += 0.04 * weight.square().mean().sqrt() * torch.randn(weight.shape, generator=rng)
    return model


def stage_pins(name: str) -> Pinned:
    """What a stage finds; it also changes with the model, the documents and the stages before it."""
    stage = STAGES.load(name)
    if name in STATE_STAGES:
        return _tracking(name)
    makers = {"patch": _patched, "prove": _proven, "judge": _judged, "emergence": _watched}
    makers["patch_dev"] = lambda: _patched("patch_dev")
    makers["patterns"] = _seen
    assert name in makers, f"say in `stage_pins` how {name} is tried, or in STATE_STAGES with which settings"
    found = makers[name]()
    needed = {f"stage {need}": STAGES.load(need).revision for need in (*stage.needs, *stage.may_need)}
    revisions = {
        f"stage {name}": stage.revision,
        **needed,
        "backbone": ModelSpec.revision,
        "mixer attention": MIXERS.load("attention").revision,
        "task ar": TASKS.load("ar").revision,
    }
    return Pinned(f"stage {name}", stage.__name__, revisions, {"blurred induction": found})


def _spec(model: Model, stages: dict[str, Any]) -> RunSpec:
    return RunSpec(task=TASK, model=model.spec, stages=stages)


def _alone(name: str, settings: dict[str, Any]) -> tuple[Artifact, ...]:
    """The artifacts of a stage that needs no other, with these settings."""
    model = blurred_induction()
    spec = _spec(model, {name: settings})
    trained = Trained(size=1, machine=CPU, parse=lambda: [spec], build=lambda: [model], read=lambda *_: None)
    with double_precision():
        [result] = spec.stages[name].run(trained)
    assert isinstance(result, Done)
    return result.artifacts


def _table(stage: str = "patch") -> tuple[EffectTable, SelfTest, Scores]:
    settings = {"documents": 24, "slots": ["key", "value"], "edits": ["swap", "zero"], "also_at": ["value+2"]}
    table, tests, scores = _alone(stage, settings)
    assert isinstance(table, EffectTable)
    assert isinstance(tests, SelfTest)
    assert isinstance(scores, Scores)
    return table, tests, scores


def _patched(stage: str = "patch") -> dict[str, Any]:
    table, tests, scores = _table(stage)
    kept = table.documents.likelihood.double()
    return {
        "cells": len(table.cells),
        "statuses": {status: table.statuses.count(status) for status in sorted(set(table.statuses))},
        # Not which role is best: where all of them do nothing, rounding decides.
        "summary": {metric: table.summary[metric].double().nanmean(0).tolist() for metric in (*METRICS, SHARE)},
        "unedited": {name: kept[row].mean().item() for name, row in table.unedited.items()},
        "scores": {name: [e.value, e.low, e.high] for name, e in scores.estimates.items()},
        "tested": [test.site for test in tests.sites],
    }


def _proof() -> Proof:
    table, _, _ = _table()
    model = blurred_induction()
    spec = _spec(model, {"patch": {"documents": 24, "slots": ["key", "value"]}, "prove": {}})
    trained = Trained(size=1, machine=CPU, parse=lambda: [spec], build=lambda: [model], read=lambda *_: table)
    with double_precision():
        [result] = spec.stages["prove"].run(trained)
    assert isinstance(result, Done)
    [proof] = result.artifacts
    assert isinstance(proof, Proof)
    return proof


def _proven() -> dict[str, Any]:
    proof = _proof()
    return {
        "routes": [
            [
                *(route.slot, " ".join(route.carriers), route.on, int(route.gap.sum())),
                *(shares[route.gap].double().mean().item() for shares in (route.sufficient, route.necessary)),
            ]
            for route in proof.routes
        ],
        "followed": [
            [f.kind, len(f.right), f.right.double().mean().item(), f.given_up().double().mean().item()]
            for f in proof.followed
        ],
        "unasked": [[u.slot, u.block, int(u.gap.sum()), u.share[u.gap].double().mean().item()] for u in proof.unasked],
        "unmoved": [[u.slot, int(u.stays.sum()), u.moved[u.stays].double().sum().item()] for u in proof.unmoved],
        "variants": [[v.name, v.reason, len(v.right)] for v in proof.variants],
    }


def _judged() -> dict[str, Any]:
    table, _, _ = _table()
    found = {EffectTable: table, Proof: _proof()}
    spec = _spec(blurred_induction(), {"patch": {}, "prove": {}, "judge": {}})
    trained = Trained(size=1, machine=CPU, parse=lambda: [spec], build=list, read=lambda *asked: found[asked[-1]])
    [result] = spec.stages["judge"].run(trained)
    assert isinstance(result, Done)
    [verdicts] = result.artifacts
    assert isinstance(verdicts, Verdicts)
    return json.loads(verdicts.to_bytes())


def _watched() -> dict[str, Any]:
    model = blurred_induction()
    spec = _spec(model, {"emergence": {"documents": 24, "looks": 3}})
    watch = spec.stages["emergence"].watch(spec, CPU)
    with double_precision():
        watch.look(1, {0: model.state_dict()})
        [result] = watch.results([(7, model.state_dict())])
    assert isinstance(result, Done)
    [emergence] = result.artifacts
    assert isinstance(emergence, Emergence)
    return {"looks": list(watch.steps), "points": list(emergence.rows())}


def _seen() -> dict[str, Any]:
    [patterns] = _alone("patterns", {"documents": 24})
    assert isinstance(patterns, Patterns)
    return {"tokens": list(patterns.tokens), "rows": list(patterns.rows())}


STATE_STAGES: dict[str, dict[str, Any]] = {
    "align": {"documents": 64, "learned_on": 16, "pairs": 16, "steps": 2, "ranks": [1]},
    "lengths": {"documents": 24, "times": [1, 2]},
    "erase": {"documents": 60, "damaged_documents": 16, "draws": 1},
    "interchange": {"documents": 100, "pairs": 16, "singly": False},
    "recover": {"pairs": 16},
    "track": {},
    "probes": {"documents": 60, "sites": ["blocks.0.resid_pre", "blocks.1.resid_post"]},
}
"""Stages for tasks that track a state, with the settings they are pinned with."""
STATE_TASK = {"name": "parity", "length": 8}


def _tracking(name: str) -> Pinned:
    """What such a stage finds of a model with random weights."""
    stage = STAGES.load(name)
    stages = {known: STATE_STAGES[known] for known in STATE_STAGES if known in (*stage.needs, name)}
    spec = RunSpec.model_validate({"task": STATE_TASK, "model": {"architecture": "gru", "width": 8}, "stages": stages})
    made: dict[type, Any] = {}
    with double_precision():
        model = build_model(spec.model, spec.task.vocab_size, 0)
        trained = Trained(
            size=1, machine=CPU, parse=lambda: [spec], build=lambda: [model], read=lambda *asked: made[asked[-1]]
        )
        for each in spec.stages.values():
            [result] = each.run(trained)
            assert isinstance(result, Done)
            made |= {type(artifact): artifact for artifact in result.artifacts}
    revisions = {
        f"stage {name}": stage.revision,
        **{f"stage {need}": STAGES.load(need).revision for need in stage.needs},
        "backbone": ModelSpec.revision,
        "mixer gru": MIXERS.load("gru").revision,
        "task parity": TASKS.load("parity").revision,
    }
    found = {kind.__name__: json.loads(made[kind].to_bytes()) for kind in stage.artifacts}
    return Pinned(f"stage {name}", stage.__name__, revisions, {"random parity": found})


def makers() -> dict[str, dict[str, Maker]]:
    """All there is, by file and component."""
    stages = {name: lambda name=name: stage_pins(name) for name in built_in(STAGES.entries())}
    return {**component_makers(), "training": {"trainer": training_pins}, "stages": stages}
