"""Records of Every Eval Ever: against what its description requires, and where it can be had, against its schema."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mixerscope.cli import main
from mixerscope.export.every_eval_ever import SCHEMA, write_records
from mixerscope.results import load_runs

Words = dict[str, str]


class Closed(BaseModel):
    """Our own reading of the schema's version 0.3.0: what it requires, and the types of what we write."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metric(Closed):
    evaluation_description: str
    metric_name: str
    lower_is_better: bool
    score_type: Literal["binary", "continuous", "levels"]
    min_score: float
    max_score: float


class Interval(Closed):
    lower: float
    upper: float
    confidence_level: Annotated[float, Field(ge=0, le=1)]


class Uncertainty(Closed):
    confidence_interval: Interval
    num_samples: int


class Score(Closed):
    score: float
    details: Words
    uncertainty: Uncertainty | None = None


class Data(Closed):
    dataset_name: str
    source_type: Literal["other"]
    additional_details: Words


class Result(Closed):
    evaluation_result_id: str
    evaluation_name: str
    source_data: Data
    metric_config: Metric
    score_details: Score


class Source(Closed):
    source_name: str
    source_type: Literal["documentation", "evaluation_run"]
    source_organization_name: str
    evaluator_relationship: Literal["first_party", "third_party", "collaborative", "other"]


class Library(Closed):
    name: str
    version: str
    additional_details: Words


class Details(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: Words
    deployment_type: Literal["self_deployed", "externally_managed", "unknown"]
    model_availability: Literal["open_weights", "closed_weights", "unknown"]


class Info(Closed):
    name: str
    id: str
    inference_engine: Words
    additional_details: Details


class Record(Closed):
    schema_version: Literal["0.3.0"]
    evaluation_id: str
    evaluation_timestamp: str | None = None
    retrieved_timestamp: str
    source_metadata: Source
    eval_library: Library
    model_info: Info
    evaluation_results: list[Result]


def written(made: Path, to: Path) -> dict[str, dict]:
    folder, _ = write_records(load_runs(made), to, "a lab")
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.iterdir())}


def test_records_are_what_the_description_requires(made: Path, tmp_path: Path):
    runs = {run.folder.path.name: run for run in load_runs(made)}
    records = written(made, tmp_path / "records")
    for name, record in records.items():
        TypeAdapter(Record).validate_json(json.dumps(record))
        assert record["source_metadata"]["source_organization_name"] == "a lab"
        assert json.loads(record["model_info"]["additional_details"]["settings"]) == runs[name].training
    [recall] = [name for name, run in runs.items() if "emergence" in run.stages]
    scores = {
        r["evaluation_name"] + " " + r["metric_config"]["metric_name"]: r for r in records[recall]["evaluation_results"]
    }
    accuracy = runs[recall].scores.accuracy
    details = scores["ar accuracy"]["score_details"]
    assert details["score"] == accuracy.value
    assert details["uncertainty"]["confidence_interval"] | {"confidence_level": 0} == {
        "lower": accuracy.low,
        "upper": accuracy.high,
        "confidence_level": 0,
    }
    assert details["uncertainty"]["num_samples"] == accuracy.n
    assert float(details["details"]["guessing"]) == runs[recall].verdicts["key"].guessing
    [state] = [record for name, record in records.items() if runs[name].training["task"]["name"] == "parity"]
    assert {r["evaluation_name"] for r in state["evaluation_results"]} == {"parity length 6", "parity length 12"}


def test_a_run_without_a_score_is_named(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    silent = [run for run in load_runs(made) if run.status.outcome == "diverged"]
    assert silent[0].curve.last, "what it scored before it diverged is no score of the model"
    assert main(["export", str(made), "--format", "every-eval-ever", "--to", str(tmp_path / "records")]) == 1
    assert silent[0].folder.path.name in capsys.readouterr().err
    assert len(list((tmp_path / "records").iterdir())) == 2
    words = ["export", str(made), "--format", "every-eval-ever", "--to", str(tmp_path / "more")]
    assert main([*words, "--strict"]) == 2
    assert main([*words[:1], str(silent[0].folder.path), *words[2:]]) == 2
    assert main(["export", str(made), "--format", "every-eval-ever", "--to", str(tmp_path / "records")]) == 2
    assert not (tmp_path / "more").exists()


@pytest.mark.slow
def test_records_are_valid_by_the_package_itself(made: Path, tmp_path: Path):
    """The package needs a later Python than ours; its schema is a JSON file in it, fetched here and kept nowhere."""
    try:
        from importlib.resources import files

        text = files("every_eval_ever.schemas").joinpath("eval.schema.json").read_text()
    except ModuleNotFoundError:
        place = tmp_path / "package"
        uv = Path(sys.executable).with_name("uv")
        words = ["pip", "install", "-q", "--no-deps", "--target", place, "--python-version", "3.12"]
        ran = subprocess.run([uv, *words, f"every-eval-ever=={SCHEMA}"], capture_output=True, text=True, check=False)
        if ran.returncode:
            pytest.skip(f"every-eval-ever cannot be had here: {ran.stderr.strip()[-200:]}")
        text = (place / "every_eval_ever" / "schemas" / "eval.schema.json").read_text()
    schema = json.loads(text)
    assert schema["version"] == SCHEMA
    for record in written(made, tmp_path / "records").values():
        jsonschema.validate(record, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({k: v for k, v in record.items() if k != "model_info"}, schema)
