"""A model card: what was found of a run, with its proof, for people who have nothing but the folder."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2

from mixerscope import __version__
from mixerscope.artifacts import Estimate, Provenance, Scores, SelfTest, Verdict, Verdicts
from mixerscope.artifacts.state_verdict import StateVerdict
from mixerscope.results import RunResult

BOUNDED = ("accuracy", "likelihood")
"""Scores between 0 and 1, which mean something without knowing the model's logits."""


def model_card(result: RunResult, why_not_plain: str) -> str:
    """The card of a run, as Markdown with the metadata that the Hugging Face Hub reads; with the reason why
    no code lies beside it that runs without ours, if none does."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    environment.filters |= {"json": _json, "line": _line, "cell": _cell}
    template = files("mixerscope.export").joinpath("templates/card.md.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(**_facts(result), why_not_plain=why_not_plain)


def _facts(result: RunResult) -> dict[str, Any]:
    training, status, made = result.training, result.status, result.provenance
    judged = result.find(Verdicts)
    verdicts = list(judged) if judged else []
    states = result.find(StateVerdict)
    scores, tested = result.find(Scores), result.find(SelfTest)
    judge = result.stages.get("judge")
    task, architecture = training["task"]["name"], training["model"]["architecture"]
    measured = list(_measured(result, scores))
    guessing = next((verdict.guessing for verdict in verdicts if verdict.guessing is not None), None)
    return {
        "name": f"{architecture}-{result.run_id}",
        "architecture": architecture,
        "task": task,
        "sentences": [f"{v.slot}: {v.mechanism}" for v in verdicts] + ([f"state: {states.name}"] if states else []),
        "verdicts": [*map(_verdict, verdicts), *([_state(states)] if states else [])],
        "reason": result.reason or _unjudged(result),
        "rules": judge.record.settings.get("rules", {}) if judge and verdicts else {},
        "scores": [
            {"task": task, "documents": f"{task}, {one['documents']}", "metric": one["metric"], "value": one["raw"]}
            | {"about": f"{one['metric']} on {one['documents']} documents"}
            for one in measured
            if not one["documents"].startswith("corrupted") and status.outcome != "diverged"
        ],
        "measured": measured,
        "guessing": "nobody knows how much" if guessing is None else _number(guessing),
        "outcome": status.outcome,
        "steps": status.steps,
        "parameters": f"{status.parameters:,}",
        "state_size": f"{status.state_size:,}",
        "self_test": len(tested.sites) if tested and all(s.fires and s.identity_exact for s in tested.sites) else 0,
        "spec": json.dumps(training, indent=2),
        "run_id": result.run_id,
        "code": made.code,
        "provenance": _provenance(made),
        "version": made.packages.get("mixerscope", __version__),
    }


def _unjudged(result: RunResult) -> str:
    if result.status.outcome == "diverged":
        return "training diverged"
    return f"nobody asked for one; its stages are {', '.join(result.stages) or 'none'}"


def _measured(result: RunResult, scores: Scores | None) -> Sequence[dict[str, Any]]:
    """Scores on fresh documents, or else those of the last evaluation of training."""
    if scores is None:
        last = result.curve.last
        found = {} if last is None else {"accuracy": last.accuracy, "likelihood": last.likelihood}
        return [
            {"documents": f"dev, at step {last.step if last else 0}", "metric": metric, "raw": value}
            | {"value": _number(value), "interval": "", "n": result.training["train"]["eval_documents"]}
            for metric, value in found.items()
        ]
    rows = [(name.rpartition("."), estimate) for name, estimate in scores.estimates.items()]
    return [
        {"documents": documents, "metric": metric, "raw": estimate.value}
        | {"value": _number(estimate.value), "interval": _interval(estimate), "n": estimate.n}
        for (documents, _, metric), estimate in rows
        if metric in BOUNDED
    ]


def _verdict(verdict: Verdict) -> dict[str, Any]:
    tests = [
        {
            "name": test.name,
            "passed": {True: "yes", False: "no", None: "not asked"}[test.passed],
            "value": "" if test.value is None else _number(test.value.value),
            "interval": _interval(test.value),
            "n": "" if test.value is None else test.value.n,
            "needed": "" if test.needed is None else _number(test.needed),
            "about": test.about,
        }
        for test in verdict.tests
    ]
    about = {"slot": verdict.slot, "mechanism": verdict.mechanism, "sentence": verdict.sentence(), "tests": tests}
    return about | {"reason": verdict.reason if verdict.route else ""}


def _state(verdict: StateVerdict) -> dict[str, Any]:
    tests = [
        {"name": test.name, "passed": "", "value": "" if test.value is None else _number(test.value), "n": ""}
        | {"interval": _ends(test.low, test.high), "needed": "", "about": ""}
        for test in verdict.tests
    ]
    return {"slot": "no token", "mechanism": verdict.name, "sentence": verdict.sentence(), "reason": "", "tests": tests}


def _interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else _ends(estimate.low, estimate.high)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{_number(low)} to {_number(high)}"


def _provenance(made: Provenance) -> list[tuple[str, str]]:
    packages = ", ".join(f"{name} {version}" for name, version in made.packages.items())
    commit = made.git.get("commit")
    rows = [
        ("packages", packages),
        ("python", f"{made.python}, {made.platform}"),
        ("device", made.device),
        ("precision", made.precision),
        ("the same bits again", "yes" if made.repeatable else "no"),
        ("commit", f"{commit}{', with changes' if made.git.get('changed') else ''}" if commit else "unknown"),
        ("documents trained on, sha256", made.data_sha256),
    ]
    return rows + [
        (f"component {name}", ", ".join(f"{k} {v}" for k, v in code.items())) for name, code in made.code.items()
    ]


def _number(value: float) -> str:
    return f"{value:.3f}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _line(text: Any) -> str:
    """Text on one line of Markdown: what somebody else named cannot end it, or open a tag."""
    return " ".join(str(text).split()).replace("<", "&lt;").replace("`", "'")


def _cell(text: Any) -> str:
    return _line(text).replace("|", "\\|")
