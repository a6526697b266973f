"""What is kept of runs: compact tables, from which every figure, table and claim is worked out again.

`runs.parquet` has a row a run, `cells.parquet` what restoring each site and role gave, `tests.parquet` what each
verdict was tested with, `emergence.parquet` what restoring gave during training, where that was watched. Verdicts are
those of the rules of this version, worked out from stored effects and proofs.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from mixerscope.analysis import Rules, judge
from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL
from mixerscope.artifacts import Emergence, Provenance, Scores, Verdict
from mixerscope.artifacts.effects import JOINT, SHARE, SWAP, EffectTable
from mixerscope.artifacts.estimate import Estimate
from mixerscope.artifacts.proof import Proof
from mixerscope.errors import CorruptFile, UserError
from mixerscope.experiments.paper.schemas import CELLS, EMERGENCE, RUNS, TESTS
from mixerscope.packs import unpack
from mixerscope.results import RunResult, StageResult, load_runs
from mixerscope.spec import RunSpec, digest
from mixerscope.store import read_jsonl

SLOT = "key"
"""The figures corrupt the key."""
SETS = {"patch": "test", "patch_dev": "dev"}
"""Which documents each stage patched."""
DIGITS = 4
"""Of likelihoods and shares; 320 documents do not tell finer ones apart."""
NO_PROOF = "no proof taken"
SECONDS = ("sweep.jsonl", "seconds.jsonl")
"""Tables of seconds that lie beside runs or packs."""


def kind_of(identity: Mapping[str, Any]) -> str:
    """What tells trainings apart but for width, rate and seed: settings that are not the default, without revisions,
    so that what was run keeps its place in the figures when code moves on."""
    plain = json.loads(json.dumps(identity))
    plain.pop("seed", None)
    plain["model"].pop("mixers", None)
    plain["model"]["settings"].pop("width", None)
    plain["train"]["settings"].pop("lr", None)
    return digest(_without_revisions(plain))[:12]


def _without_revisions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_revisions(inner) for key, inner in value.items() if key != "revision"}
    return [_without_revisions(inner) for inner in value] if isinstance(value, list) else value


def kind_of_spec(spec: RunSpec) -> str:
    return kind_of(spec.identity)


@dataclass(frozen=True)
class Tables:
    """All of it."""

    runs: pl.DataFrame
    cells: pl.DataFrame
    tests: pl.DataFrame
    emergence: pl.DataFrame
    trained_by: Mapping[str, str]
    """Run to the command that trained it, where the table of seconds has it."""


def collect(sources: Sequence[Path], kinds: Iterable[str] | None = None) -> Tables:
    """The tables of the runs in packs and folders of runs; of these `kinds` alone, if they are given. Of a run that is
    in several of them the first counts, or the first with a proof."""
    wanted = None if kinds is None else set(kinds)
    runs: dict[str, dict[str, Any]] = {}
    cells: dict[str, list[pl.DataFrame]] = {}
    tests: dict[str, list[dict[str, Any]]] = {}
    emergence: dict[str, list[dict[str, Any]]] = {}
    trained_by: dict[str, str] = {}
    for source in sources:
        seconds, commands = _beside(source)
        for result in runs_in(source):
            if wanted is not None and kind_of(result.record.identity) not in wanted:
                continue
            known = runs.get(result.run_id)
            if known is not None and (known["proof"] or result.find(Proof) is None):
                continue
            verdict = _verdict(result)
            runs[result.run_id] = _run_row(result, verdict, source.name, seconds.get(result.run_id))
            cells[result.run_id] = list(_cell_frames(result))
            tests[result.run_id] = [_test_row(result.run_id, test) for test in (verdict.tests if verdict else ())]
            emergence[result.run_id] = list(_emergence_rows(result))
            trained_by |= {result.run_id: commands[result.run_id]} if result.run_id in commands else {}
    if not runs:
        raise UserError(f"none of the runs in {', '.join(map(str, sources)) or 'no place'} is of these figures")
    return Tables(
        pl.DataFrame(list(runs.values()), schema=RUNS),
        _joined([*chain.from_iterable(cells.values())]),
        pl.DataFrame([*chain.from_iterable(tests.values())], schema=TESTS),
        pl.DataFrame([*chain.from_iterable(emergence.values())], schema=EMERGENCE),
        trained_by,
    )


def runs_in(source: Path) -> Iterator[RunResult]:
    """The finished runs of a folder, or of a pack, one by one."""
    if source.is_dir():
        yield from load_runs(source)
        return
    if not source.is_file():
        raise UserError(f"there are no results in {source}; give a pack, or a folder of runs")
    with tempfile.TemporaryDirectory() as place:
        unpack(source, Path(place) / "runs")
        yield from load_runs(Path(place) / "runs")


def _beside(source: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds of each run and the command that trained it, where a table of them lies beside."""
    beside = source if source.is_dir() else source.parent
    seconds: dict[str, float] = {}
    commands: dict[str, str] = {}
    for name in SECONDS:
        if (beside / name).is_file():
            try:
                rows = read_jsonl(beside / name)
                seconds |= seconds_of_runs(rows)
                commands |= commands_of_runs(rows)
            except (CorruptFile, LookupError, TypeError, AttributeError, ZeroDivisionError) as error:
                raise UserError(f"{beside / name} is no table of seconds; get it again, or move it away") from error
    return seconds, commands


def commands_of_runs(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Run id to the command of the job that trained it, from the rows of a sweep's table; older ones do not have it."""
    found: dict[str, str] = {}
    for own, row in _jobs(rows):
        if "command" in row:
            found |= {run: row["command"] for cohort in own if cohort["ending"] == "finished" for run in cohort["runs"]}
    return found


def seconds_of_runs(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Run id to seconds: a job's, shared out over its cohorts by how long each took, since several are in flight at
    once, and a cohort's evenly over its runs."""
    found: dict[str, float] = {}
    for own, row in _jobs(rows):
        total = sum(cohort["wall_s"] for cohort in own)
        for cohort in own:
            if cohort["ending"] == "finished":
                share = row["wall_s"] * cohort["wall_s"] / total
                found |= dict.fromkeys(cohort["runs"], share / cohort["members"])
    return found


def _jobs(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[list[Mapping[str, Any]], Mapping[str, Any]]]:
    """The cohorts of each job, and the job, which comes after them. A call that was killed leaves cohorts of a job that
    never ended; how long these took beside each other nobody knows."""
    begun: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["kind"] == "cohort":
            begun.setdefault(row["job"], []).append(row)
        else:
            yield begun.pop(row["job"], [])[-row["cohorts"] :], row


def _verdict(result: RunResult) -> Verdict | None:
    """By the rules of this version; None where the model could not be patched."""
    effects = result.find(EffectTable)
    return None if effects is None else judge(effects, Rules(), result.find(Proof))[SLOT]


def _run_row(result: RunResult, verdict: Verdict | None, source: str, seconds: float | None) -> dict[str, Any]:
    training, status, last = result.training, result.status, result.curve.last
    model, train = training["model"], training["train"]
    scores = {SETS[name]: _scores(stage) for name, stage in result.stages.items() if name in SETS}
    test, dev = scores.get("test"), scores.get("dev")
    made = result.provenance
    return {
        "run_id": result.run_id,
        "kind": kind_of(result.record.identity),
        "architecture": model["architecture"],
        "width": model["width"],
        "layers": model["layers"],
        "positions": model["positions"],
        "options": json.dumps(model["options"], sort_keys=True),
        "task": json.dumps(training["task"], sort_keys=True),
        "schedule": train["schedule"],
        "precision": train["precision"],
        "train_steps": train["steps"],
        "lr": train["lr"],
        "seed": training["seed"],
        "data_seed": training["data_seed"],
        "outcome": status.outcome,
        "steps": status.steps,
        "parameters": status.parameters,
        "curve_accuracy": last.accuracy if last else None,
        "curve_likelihood": last.likelihood if last else None,
        "curve_loss": last.loss if last else None,
        **_three("accuracy", test and test.estimates["original.accuracy"]),
        **_three("likelihood", test and test.estimates["original.likelihood"]),
        **_three("corrupted", test and test.estimates[f"corrupted.{SLOT}.likelihood"]),
        **_three("dev_accuracy", dev and dev.estimates["original.accuracy"]),
        **_three("dev_likelihood", dev and dev.estimates["original.likelihood"]),
        **_three("dev_corrupted", dev and dev.estimates[f"corrupted.{SLOT}.likelihood"]),
        "guessing": verdict.guessing if verdict else None,
        "mechanism": _mechanism(result, verdict),
        "route": " → ".join(verdict.route) if verdict else None,
        "moves": json.dumps([[m.block, m.component, m.source, m.target] for m in verdict.moves]) if verdict else None,
        **_three("share", verdict.share if verdict else None),
        "found": json.dumps(dict(verdict.found)) if verdict else None,
        "published_reading": verdict.published if verdict else None,
        "proof": result.find(Proof) is not None,
        "reason": result.reason or (verdict.reason if verdict else ""),
        "seconds": seconds,
        "source": source,
        "device": made.device,
        "stack": made.stack,
        "made_by": _made_by(made),
        "documents_sha256": made.data_sha256[:16],
        "patched_sha256": _patched(result)[:16],
    }


def _mechanism(result: RunResult, verdict: Verdict | None) -> str | None:
    """A route that was not put to the proof has no name, and says so."""
    if verdict is None or result.find(Proof) is not None or verdict.mechanism in (NOT_LEARNED, NOT_RETRIEVAL):
        return verdict.mechanism if verdict else None
    return NO_PROOF


def _scores(stage: StageResult) -> Scores | None:
    return stage.folder.read(Scores) if stage.folder.holds(Scores) else None


def _made_by(made: Provenance) -> str:
    commit = str(made.git.get("commit", ""))[:12]
    return f"torch {made.packages.get('torch', '?')}, {commit or 'no commit recorded'}"


def _patched(result: RunResult) -> str:
    stage = result.stages.get("patch")
    return stage.folder.read(Provenance).data_sha256 if stage and stage.folder.holds(Provenance) else ""


def _three(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    value, low, high = (None, None, None) if not estimate else (estimate.value, estimate.low, estimate.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _cell_frames(result: RunResult) -> Iterator[pl.DataFrame]:
    """What restoring single roles gave, site by site."""
    for name, stage in result.stages.items():
        if name not in SETS or not stage.folder.holds(EffectTable):
            continue
        table = stage.folder.read(EffectTable)
        kept = [
            (index, cell)
            for index, cell in enumerate(table.cells)
            if (cell.slot, cell.direction, cell.edit, cell.head) == (SLOT, "restore", SWAP, -1)
            and cell.role in {*table.facts.roles, "value+2"}
            and JOINT not in cell.role
            and table.statuses[index] in ("measured", "same")
        ]
        at = [index for index, _ in kept]
        columns: dict[str, Any] = {
            "run_id": [result.run_id] * len(kept),
            "documents": [SETS[name]] * len(kept),
            "site": [cell.site for _, cell in kept],
            "role": [cell.role for _, cell in kept],
        }
        for metric, stem in (("likelihood", "likelihood"), (SHARE, "share")):
            for end, values in zip(("", "_low", "_high"), table.summary[metric][at].T.tolist(), strict=True):
                columns[f"{stem}{end}"] = [None if value != value else round(value, DIGITS) for value in values]
        yield pl.DataFrame(columns, schema=CELLS)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames) if frames else pl.DataFrame(schema=CELLS)


def _test_row(run_id: str, test: Any) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "test": test.name,
        "passed": test.passed,
        **_three("value", test.value),
        "needed": test.needed,
    }


def _emergence_rows(result: RunResult) -> Iterator[dict[str, Any]]:
    """Shares between the blocks while the model was trained."""
    found = result.find(Emergence)
    for point in found.points if found else ():
        if point.slot == SLOT and point.role is not None:
            ends = {"share": point.share, "share_low": point.low, "share_high": point.high}
            told = {"step": point.step, "site": point.site, "role": point.role, "accuracy": point.accuracy}
            yield {"run_id": result.run_id, **told, "gap": point.gap, **ends}
