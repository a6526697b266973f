"""Scores and verdicts as records of Every Eval Ever, the EvalEval Coalition's schema for results of evaluations.

Written by its description, version 0.3.0 (the package `every-eval-ever`, which needs Python 3.12); nothing is imported.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixerscope.analysis.quantiles import LEVEL
from mixerscope.artifacts import Estimate, Lengths, Scores, Timing, Verdicts
from mixerscope.errors import UserError
from mixerscope.export.card import BOUNDED
from mixerscope.export.huggingface import refuse_taken
from mixerscope.results import RunResult
from mixerscope.spec import canonical_json
from mixerscope.spec.labels import labels

SCHEMA = "0.3.0"
UNKNOWN = "unknown"


def write_records(
    runs: Sequence[RunResult], to: str | Path, organisation: str = UNKNOWN, strict: bool = False
) -> tuple[Path, list[str]]:
    """Writes a record for each run into a new folder, a JSON file each; gives the runs that have no score, and why."""
    target = Path(to)
    refuse_taken(target)
    without = [
        f"{run.folder.path.name} has no score: training {run.status.outcome}" for run in runs if not _results(run)
    ]
    chosen = [run for run in runs if _results(run)]
    if not chosen or (strict and without):
        raise UserError("; ".join(without))
    names = labels([run.training for run in chosen], always=("model.width",))
    now = str(int(time.time()))
    try:
        beside = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}-"))
        try:
            for run, name in zip(chosen, names, strict=True):
                text = json.dumps(record(run, name, organisation, now), indent=2, ensure_ascii=False, allow_nan=False)
                (beside / f"{run.folder.path.resolve().name}.json").write_text(text + "\n", encoding="utf-8")
            beside.chmod(0o755)  # a temporary folder is its owner's alone
            os.rename(beside, target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error
    return target, without


def record(run: RunResult, name: str, organisation: str, now: str) -> dict[str, Any]:
    """One run. Numbers have their intervals; what is no number, such as a mechanism, stands in details."""
    made, model = run.provenance, run.training["model"]
    identity = f"mixerscope/{run.folder.path.resolve().name}"
    found: dict[str, Any] = {
        "schema_version": SCHEMA,
        "evaluation_id": f"{run.training['task']['name']}/{identity}/{now}",
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "mixerscope",
            "source_type": "evaluation_run",
            "source_organization_name": organisation,
            "evaluator_relationship": "first_party",  # whoever trained it measured it
        },
        "eval_library": {
            "name": "mixerscope",
            "version": made.packages.get("mixerscope", UNKNOWN),
            "additional_details": {"commit": str(made.git.get("commit") or UNKNOWN)},
        },
        "model_info": {
            "name": name,
            "id": identity,
            "inference_engine": {"name": "torch", "version": made.packages.get("torch", UNKNOWN)},
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": UNKNOWN,
                "architecture": model["architecture"],
                "parameters": str(run.status.parameters),
                "state_size": str(run.status.state_size),
                "training": f"{run.status.outcome} after {run.status.steps} steps",
                "settings": canonical_json(run.training),
            },
        },
        "evaluation_results": _results(run),
    }
    finished = _finished(run)
    return found if finished is None else {**found, "evaluation_timestamp": finished}


def _finished(run: RunResult) -> str | None:
    """Seconds since 1970, where somebody noted them: packs leave times out."""
    path = run.folder.path / Timing.file
    return str(int(Timing.from_bytes(path.read_bytes()).finished)) if path.is_file() else None


def _results(run: RunResult) -> list[dict[str, Any]]:
    task = run.training["task"]["name"]
    scores, verdicts, lengths = run.find(Scores), run.find(Verdicts), run.find(Lengths)
    guessing = next((str(v.guessing) for v in verdicts or () if v.guessing is not None), UNKNOWN)
    found: list[dict[str, Any]] = []
    if scores is not None:
        for metric in BOUNDED:
            about = f"{metric} of the answer on fresh documents"
            found.append(_result(run, task, metric, about, scores.estimates[f"original.{metric}"], guessing=guessing))
    for verdict in verdicts or ():
        if verdict.share is not None:
            about = f"share of documents that take the route, with the {verdict.slot} corrupted"
            told = {"mechanism": verdict.mechanism, "route": " → ".join(verdict.route), "verdict": verdict.sentence()}
            tests = canonical_json([{"test": t.name, "passed": t.passed, "needed": t.needed} for t in verdict.tests])
            found.append(
                _result(run, f"{task} mechanism {verdict.slot}", "share", about, verdict.share, **told, tests=tests)
            )
    for one in lengths.lengths if lengths else ():
        about = f"share of questions answered rightly in documents of {one.length} inputs ({one.times} x training)"
        found.append(
            _result(run, f"{task} length {one.length}", "accuracy", about, one.accuracy, guessing=str(one.guessing))
        )
    # Of a training that diverged there is an evaluation too: of what it was before.
    if not found and run.curve.last is not None and run.status.outcome != "diverged":
        about = "accuracy on dev documents at the end of training"
        found.append(_result(run, f"{task} dev", "accuracy", about, run.curve.last.accuracy))
    return found


def _result(
    run: RunResult, name: str, metric: str, about: str, value: Estimate | float, **details: str
) -> dict[str, Any]:
    task = run.training["task"]
    score: dict[str, Any] = {"score": value.value if isinstance(value, Estimate) else value, "details": details}
    if isinstance(value, Estimate):
        interval = {"lower": value.low, "upper": value.high, "confidence_level": LEVEL}
        score["uncertainty"] = {"confidence_interval": interval, "num_samples": value.n}
    return {
        "evaluation_result_id": f"{run.run_id}/{name}/{metric}",
        "evaluation_name": name,
        "source_data": {
            "dataset_name": f"mixerscope {task['name']}",
            "source_type": "other",
            "additional_details": {"made_by": "a program", "settings": canonical_json(task)},
        },
        "metric_config": {
            "evaluation_description": about,
            "metric_name": metric,
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": score,
    }
