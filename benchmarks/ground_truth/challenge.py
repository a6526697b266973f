"""The ground truth as a challenge: models without their answers, and a score for what any tool says of them.

    python -m benchmarks.ground_truth.challenge hand-out DIR
    python -m benchmarks.ground_truth.challenge score submission.json

`hand-out` writes a folder for each model with `weights.safetensors`, `spec.json` (task and model) and
`documents.safetensors` (tokens, targets, where each role stands, and counterfactuals). A submission is a JSON object
from a model's name to a route in `routes.ROUTES`, to `mixture`, or to `undetermined`.
"""

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from benchmarks.ground_truth.collection import CHALLENGE, MIXTURE, MODELS, sealed, spec_of
from benchmarks.ground_truth.routes import ROUTES
from mixerscope.errors import UserError
from mixerscope.randomness import stream

UNDETERMINED = "undetermined"
DOCUMENTS, SEED = 1000, 14
"""Of what is handed out."""
LAST_LINE = "right {right}, undetermined {undetermined}, wrong {wrong} of {all}"


def entries() -> list[dict[str, Any]]:
    """Every model: its name, its spec, and its answer as a salted hash."""
    return json.loads(CHALLENGE.read_text())["models"]


def hand_out(place: Path) -> int:
    """Writes the models into folders of their own; returns how many."""
    for entry in entries():
        folder = place / entry["id"]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(MODELS / f"{entry['id']}.safetensors", folder / "weights.safetensors")
        (folder / "spec.json").write_text(json.dumps(entry["spec"], indent=1) + "\n")
        task = spec_of(entry["spec"]).task
        batch = task.sample(DOCUMENTS, stream(SEED, "challenge"), "test")
        tensors = {"tokens": batch.tokens, "targets": batch.targets}
        tensors |= {f"role.{role}": at for role, at in batch.roles.items()}
        for kind in task.counterfactuals:
            other = task.counterfactual(kind, batch, stream(SEED, kind))
            tensors |= {f"{kind}.tokens": other.tokens, f"{kind}.targets": other.targets}
        absent = task.corrupt(batch, "key", stream(SEED, "absent"), "slot-class", avoid_present=True)
        save_file({**tensors, "absent.tokens": absent.tokens}, folder / "documents.safetensors")
    return len(entries())


def outcome(entry: dict[str, Any], said: str) -> str:
    """`right`, `undetermined` or `wrong`. Where two routes are mixed, to name none is right."""
    if sealed(entry["salt"], MIXTURE) == entry["answer"]:
        return "right" if said in (MIXTURE, UNDETERMINED) else "wrong"
    if said == UNDETERMINED:
        return UNDETERMINED
    return "right" if sealed(entry["salt"], said) == entry["answer"] else "wrong"


def score(said: dict[str, str]) -> Counter[str]:
    """How many answers are what; a model that is left out is undetermined."""
    names, answers = {entry["id"] for entry in entries()}, {*ROUTES, MIXTURE, UNDETERMINED}
    if unknown := sorted({*said} - names):
        raise UserError(f"the submission names {unknown[0]!r}, which is none of the {len(names)} models handed out")
    if unknown := sorted({*said.values()} - answers):
        raise UserError(f"{unknown[0]!r} is no answer; write one of {', '.join(sorted(answers))}")
    return Counter(outcome(entry, said.get(entry["id"], UNDETERMINED)) for entry in entries())


def last_line(counts: Counter[str]) -> str:
    kinds = ("right", UNDETERMINED, "wrong")
    return LAST_LINE.format(all=counts.total(), **{kind: counts[kind] for kind in kinds})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("hand-out").add_argument("place", type=Path)
    commands.add_parser("score").add_argument("submission", type=Path)
    options = parser.parse_args()
    if options.command == "hand-out":
        print(f"models: {hand_out(options.place)}")
    else:
        print(last_line(score(json.loads(options.submission.read_text()))))


if __name__ == "__main__":
    main()
