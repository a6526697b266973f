"""A run as a folder for the Hugging Face Hub: weights, settings, evidence, and a card that says what was found."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixerscope.artifacts import Weights
from mixerscope.errors import CannotWrite, CorruptFile, MixerscopeError, UserError
from mixerscope.export.card import model_card
from mixerscope.packs import write_pack
from mixerscope.results import RunResult, load_run
from mixerscope.spec import RunSpec, parse
from mixerscope.store.files import read_bounded

if TYPE_CHECKING:
    from mixerscope.model import Model

CARD, CONFIG, WEIGHTS, EVIDENCE = "README.md", "config.json", "model.safetensors", "evidence.pack"
CODE = "modeling.py"
MODEL_TYPE = "mixerscope"


def export_run(run: RunResult | str | Path, to: str | Path) -> Path:
    """Writes a finished run as a folder for the Hugging Face Hub: `README.md` with the verdict and its proof,
    `config.json`, `model.safetensors`, `modeling.py` that builds the model with torch alone, and `evidence.pack` to
    judge it again. The folder must not be there yet. Where the model's code cannot be copied, the card says why."""
    result = run if isinstance(run, RunResult) else load_run(run)
    target = Path(to)
    refuse_taken(target)
    if not result.folder.holds(Weights):
        raise UserError(
            f"{result.folder.path} was made without keeping the weights, so there is no model to export; "
            f"`sweep --keep-weights` keeps them"
        )
    code, settings, why_not = _plain(result)
    config = json.dumps({**_config(result), **settings}, indent=2, ensure_ascii=False) + "\n"
    card = model_card(result, why_not)
    weights = result.folder.read(Weights).to_bytes()
    try:
        beside = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}-"))
    except OSError as error:
        raise UserError(f"cannot write to {target.parent}: {error.strerror}") from error
    try:
        (beside / CONFIG).write_text(config, encoding="utf-8")
        (beside / CARD).write_text(card, encoding="utf-8")
        (beside / WEIGHTS).write_bytes(weights)
        if code:
            (beside / CODE).write_text(code, encoding="utf-8")
        write_pack(beside / EVIDENCE, [result])
        beside.chmod(0o755)  # a temporary folder is its owner's alone
        os.rename(beside, target)
    except (OSError, CannotWrite) as error:
        raise UserError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _plain(result: RunResult) -> tuple[str, dict[str, Any], str]:
    """The model's code as one file and the settings that it reads, or why there is none."""
    from mixerscope.export.plain import plain_settings, plain_source

    try:
        model = result.model()
        return plain_source(model, result.run_id), {"model": plain_settings(model)}, ""
    except MixerscopeError as error:
        return "", {}, str(error)


def refuse_taken(target: Path) -> None:
    """What lies at a folder's name is not overwritten, unless it is an empty folder."""
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise UserError(f"{target} exists already; give another name or move it elsewhere")
    if not target.absolute().parent.is_dir():
        raise UserError(f"cannot write {target}: {target.parent} is no folder")


def _config(result: RunResult) -> dict[str, Any]:
    return {
        "model_type": MODEL_TYPE,
        "run_id": result.run_id,
        "vocab_size": result.task.vocab_size,
        "spec": result.training,
        "mixerscope_version": result.provenance.packages.get("mixerscope", ""),
    }


def load_export(folder: str | Path) -> "Model":
    """The model of a folder that `export_run` wrote, from wherever it was carried to."""
    from mixerscope.model import trained_models

    folder = Path(folder)
    try:
        config = json.loads(read_bounded(folder / CONFIG))
        data = read_bounded(folder / WEIGHTS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{folder} holds no exported run; `mixerscope export RUN --to {folder}` makes one") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptFile(f"{folder} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("model_type") != MODEL_TYPE or "spec" not in config:
        raise UserError(f"{folder / CONFIG} is not that of an exported run")
    spec: RunSpec = parse(
        RunSpec, {**config["spec"], "stages": {}} if isinstance(config["spec"], dict) else config["spec"]
    )
    if spec.run_id != config.get("run_id"):
        raise UserError(
            f"{folder} was trained by other code than the one at hand, so its weights may mean another model"
        )
    try:
        return trained_models(spec.model, spec.task.vocab_size, [Weights.from_bytes(data).tensors])[0]
    except RuntimeError as error:
        raise CorruptFile(
            f"{folder / WEIGHTS} does not fit {folder / CONFIG}: {' '.join(str(error).split())}"
        ) from error
