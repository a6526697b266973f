"""Writes `golden_ids.json` anew: `python -m tests.spec.record_ids`. Ids are for ever, so entries are only ever added;
this refuses to change one, but for stages of a new revision and those that build on them."""

import json
from pathlib import Path

from mixerscope.registry import ARCHITECTURES, MIXERS, STAGES
from mixerscope.spec import RunSpec, parse

PATH = Path(__file__).parent / "golden_ids.json"
TASKS = ("ar", "ar:paper-as-written", "ar:small", "atr:paper", "atr:all-relations", "mqar", "ngram:trigram")


def specs() -> list[dict]:
    found: list[dict] = [{"task": task, "model": {"architecture": "attention"}} for task in TASKS]
    found += [{"task": "selective_copy", "model": {"architecture": name}} for name in MIXERS.names()]
    patterns = [name for name in ARCHITECTURES.names() if name not in ("pattern", *MIXERS.names())]
    found += [{"task": "ar", "model": {"architecture": name, "layers": 3}} for name in patterns]
    found += [
        {"task": "ar", "model": {"architecture": "mamba", "width": 32, "options": {"d_conv": 2}}},
        {"task": "ar", "model": {"architecture": "mamba"}, "train": {"lr": 0.003, "precision": "tf32"}, "seed": 4},
        {"task": "ar", "model": {"architecture": "attention", "positions": "none"}, "data_seed": 1},
        {"task": "ar", "model": {"architecture": "attention", "options": {"relative": "rope"}}},
        {"task": "ar", "model": {"architecture": "based", "options": {"kernel": "long"}}},
        {"task": "ar", "model": {"architecture": "base_conv", "options": {"kernels": [3]}, "init": "small_model"}},
        {
            "task": "ar",
            "model": {
                "architecture": "pattern",
                "layers": 4,
                "options": {"layers": [{"mixer": "attention", "short_conv": 3}, {"mixer": "mamba", "mlp": True}]},
            },
        },
        {
            "task": {"name": "ar", "num_pairs": 8, "distractors": 2, "num_fillers": 4},
            "model": {"architecture": "gru", "layers": 1},
            "train": {"steps": 100, "schedule": "linear", "stop_at_accuracy": 0.9},
            "stages": {
                "patch": {"slots": ["key", "value"], "symbols": "slot-class", "also_at": ["value+2"]},
                "judge": {"rules": {"carries": 0.7}},
                "emergence": {"looks": 5},
            },
        },
    ]
    return found


def lasting(case: dict, since: dict[str, int]) -> dict:
    """A case without the ids of stages that are newer than recorded, or that come after one that is."""
    revisions = case["revisions"]
    newer = next((i for i, name in enumerate(revisions) if revisions[name] != since.get(name)), len(revisions))
    names = list(revisions)[:newer]
    return {"spec": case["spec"], "run_id": case["run_id"], "stages": {n: case["stages"].get(n) for n in names}}


def main() -> None:
    before = {json.dumps(case["spec"]): case for case in json.loads(PATH.read_text())} if PATH.is_file() else {}
    cases: list[dict] = []
    for data in specs():
        spec = parse(RunSpec, data)
        stages = {name: spec.stage_id(name) for name in spec.stages}
        revisions = {name: STAGES.load(name).revision for name in spec.stages}
        case = {"spec": data, "run_id": spec.run_id, "stages": stages, "revisions": revisions}
        known = before.pop(json.dumps(data), case)
        known.setdefault("revisions", dict.fromkeys(known["stages"], 1))  # as when they were first recorded
        if lasting(known, revisions) != lasting(case, known["revisions"]):
            raise SystemExit(f"the ids of {data} have moved, and ids are for ever: {known} became {case}")
        cases.append(case)
    if before:
        raise SystemExit(f"{len(before)} recorded specs are no longer listed; entries are only ever added")
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
