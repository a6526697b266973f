"""Models of transformers from folders on disk, and the same shapes with random weights; never the one for the other."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mixerscope.errors import UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.hugging_face import FAMILIES, adapt_hf
from mixerscope.randomness import construction

FIRST_TOKEN = 2
"""Symbols of a task are the tokens from here on, the same in every family: single ones, and nobody's specials."""
CONFIG, ONE_FILE, SEVERAL = "config.json", "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Pretrained:
    """A folder with a configuration and weights, as `save_pretrained` writes it."""

    path: Path
    config: Any
    sha256: str
    """Of configuration and weights."""

    @staticmethod
    def at(path: Path) -> "Pretrained":
        """The folder, if it has what it takes; nothing is fetched, and nothing made up in its place."""
        transformers = _transformers()
        if not (path / CONFIG).is_file():
            raise UserError(f"pretrained weights unavailable: {path} is no folder with a {CONFIG}")
        files = _weight_files(path)
        try:
            config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
        except (ValueError, OSError, KeyError) as error:
            raise UserError(f"{path / CONFIG} cannot be read: {str(error).splitlines()[0]}") from error
        if config.model_type not in FAMILIES:
            raise UserError(f"{path} is of the type {config.model_type!r}; ready: {', '.join(FAMILIES)}")
        digest = hashlib.sha256()
        for file in (path / CONFIG, *files):
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return Pretrained(path, config, digest.hexdigest())

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def load(self) -> nn.Module:
        """With the weights of the folder: all of them, or an error."""
        from safetensors import SafetensorError

        try:
            with _quiet(), construction(0):  # it draws weights first, all of which are then overwritten
                model, told = _transformers().AutoModelForCausalLM.from_pretrained(
                    self.path, local_files_only=True, use_safetensors=True, output_loading_info=True, dtype="float32"
                )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"the weights in {self.path} cannot be read: {str(error).splitlines()[0]}") from error
        lacks = sorted({*told["missing_keys"], *(str(one[0]) for one in told.get("mismatched_keys", ()))})
        if lacks:
            raise UserError(
                f"{self.path} has no weights for {lacks[0]} and {len(lacks) - 1} others; a model with random weights in"
                " their place would not be the pretrained one"
            )
        return model.eval()

    def random(self, seed: int) -> nn.Module:
        """The same shape as nobody trained it."""
        with construction(seed):
            return _transformers().AutoModelForCausalLM.from_config(self.config).float().eval()


def as_tagger(model: nn.Module, vocab_size: int) -> Adapted:
    """A model over the symbols of a task, with our names for its places: hooks on modules say what a block gives."""
    config: Any = model.config
    if config.vocab_size < FIRST_TOKEN + vocab_size:
        raise UserError(f"the task has {vocab_size} symbols, and the model {config.vocab_size} tokens")
    return adapt_hf(model, (FIRST_TOKEN, vocab_size))


def _weight_files(path: Path) -> list[Path]:
    if (path / ONE_FILE).is_file():
        return [path / ONE_FILE]
    if not (path / SEVERAL).is_file():
        raise UserError(f"pretrained weights unavailable: {path} has no {ONE_FILE}")
    named = sorted(set(json.loads((path / SEVERAL).read_text(encoding="utf-8"))["weight_map"].values()))
    for name in named:
        if not (path / name).is_file():
            raise UserError(f"pretrained weights unavailable: {path} has no {name}, which its index names")
    return [path / name for name in named]


@contextmanager
def _quiet() -> Iterator[None]:
    """What is wrong is said by us, in one sentence."""
    logging = _transformers().utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError("transformers is not installed here; pip install 'mixerscope[hf]' brings it") from error
    return transformers
