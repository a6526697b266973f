"""The admitted models as they are kept: weights under names that say nothing, and what is known of each.

    python -m benchmarks.ground_truth.collection DIR
    python -m benchmarks.ground_truth.collection DIR --back

takes over what `train` left in DIR, or puts it back there, so that training can go on. `admitted.json` holds the truth,
the measured numbers, and what was not learnable; `challenge.json` the same models without a word about their routes,
and each answer as a salted hash.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks.ground_truth.plan import Cell, Size
from benchmarks.ground_truth.routes import MIXED
from mixerscope import AR, Model, RunSpec, build_model
from mixerscope.errors import UserError

HERE = Path(__file__).parent
MODELS, ADMITTED, CHALLENGE = HERE / "models", HERE / "admitted.json", HERE / "challenge.json"
MIXTURE = "mixture"


@dataclass(frozen=True)
class Known:
    """A model whose route is known."""

    id: str
    architecture: str
    route: str
    seed: int
    spec: RunSpec

    @property
    def task(self) -> AR:
        return self.spec.task

    @property
    def answer(self) -> str:
        """What a submission has to say: the route, or that there are two."""
        return MIXTURE if MIXED in self.route else self.route

    def model(self) -> Model:
        return load_model(self.spec, MODELS / f"{self.id}.safetensors")


def load_model(spec: RunSpec, weights: Path) -> Model:
    """The model of a spec with stored weights, in single precision."""
    model = build_model(spec.model, spec.task.vocab_size, 0)
    model.load_state_dict(load_file(weights))
    return model.eval()


def spec_of(data: dict[str, Any]) -> RunSpec:
    """Task and model alone; how it was trained would tell the route."""
    return RunSpec.model_validate({"task": data["task"], "model": data["model"]})


def known() -> list[Known]:
    """All admitted models."""
    if not ADMITTED.exists():
        raise UserError("there is no ground truth here yet: run benchmarks.ground_truth.train and then .collection")
    rows = json.loads(ADMITTED.read_text())["models"]
    return [Known(r["id"], r["architecture"], r["route"], r["seed"], spec_of(r["spec"])) for r in rows]


def sealed(salt: str, answer: str) -> str:
    """An answer that can be compared and not read."""
    return hashlib.sha256(f"{salt}:{answer}".encode()).hexdigest()


def _results(source: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(source.glob("*.json")):
        yield path, json.loads(path.read_text())


def collect(source: Path) -> tuple[int, int]:
    """Writes models, `admitted.json` and `challenge.json`; returns how many were admitted and how many were not."""
    MODELS.mkdir(exist_ok=True)
    for old in MODELS.glob("*.safetensors"):
        old.unlink()
    models: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for path, result in _results(source):
        about = {key: result[key] for key in ("architecture", "route")}
        for row in result["models"]:
            measured = {key: value for key, value in row.items() if key != "admitted"}
            if not row["admitted"]:
                refused.append({**about, **measured})
                continue
            content = path.with_name(f"{path.stem}--{row['seed']}.safetensors").read_bytes()
            name = hashlib.sha256(content).hexdigest()[:12]
            (MODELS / f"{name}.safetensors").write_bytes(content)
            models.append({"id": name, **about, **measured, "spec": result["spec"]})
    models.sort(key=lambda row: row["id"])  # an order that says nothing
    ADMITTED.write_text(_lines({"models": models, "not_learnable": refused}))
    CHALLENGE.write_text(_lines({"models": [_blind(row) for row in models]}))
    return len(models), len(refused)


def put_back(place: Path) -> int:
    """Writes into a folder what `train` had left there; returns how many models were admitted."""
    place.mkdir(parents=True, exist_ok=True)
    kept = json.loads(ADMITTED.read_text())
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for admitted, rows in ((True, kept["models"]), (False, kept["not_learnable"])):
        for row in rows:
            cell = Cell(row["architecture"], row["route"])
            spec = row.get("spec") or cell.specs(Size())[0].model_dump(mode="json", include={"task", "model"})
            about = {"architecture": cell.learner, "route": cell.route, "spec": spec, "models": []}
            result = cells.setdefault((cell.learner, cell.route), about)
            measured = {key: value for key, value in row.items() if key not in ("id", "spec", *about)}
            result["models"].append({**measured, "admitted": admitted})
            if admitted:
                stored = (MODELS / f"{row['id']}.safetensors").read_bytes()
                (place / f"{cell.name}--{row['seed']}.safetensors").write_bytes(stored)
    for (learner, route), result in cells.items():
        (place / f"{Cell(learner, route).name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return len(kept["models"])


def _blind(row: dict[str, Any]) -> dict[str, Any]:
    one = Known(row["id"], row["architecture"], row["route"], row["seed"], spec_of(row["spec"]))
    salt = hashlib.sha256((MODELS / f"{one.id}.safetensors").read_bytes()).hexdigest()[:16]
    return {"id": one.id, "spec": row["spec"], "salt": salt, "answer": sealed(salt, one.answer)}


def _lines(tables: dict[str, list[dict[str, Any]]]) -> str:
    """JSON with a row on each line."""
    parts = [f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in tables.items()]
    return "{" + ",\n".join(parts) + "}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    parser.add_argument("--back", action="store_true", help="put back what was taken over")
    options = parser.parse_args()
    if options.back:
        print(f"models: {put_back(options.place)}")
        return
    admitted, refused = collect(options.place)
    size = sum(path.stat().st_size for path in MODELS.iterdir())
    print(f"admitted: {admitted}, not learnable: {refused}, weights: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
