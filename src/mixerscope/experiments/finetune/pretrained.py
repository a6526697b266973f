"""Models of transformers from folders on disk, and the same shapes with random weights; never the one for the other."""

import hashlib
import json
import re
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
from mixerscope.showing import counted

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
        except Exception as error:  # whatever it finds wrong with a file, some of it in classes of its own
            raise UserError(f"{path / CONFIG} cannot be read: {_said(error)}") from error
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
                    self.path,
                    local_files_only=True,
                    use_safetensors=True,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # they are told, and refused here by name
                    dtype="float32",
                )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"the weights in {self.path} cannot be read: {_said(error)}") from error
        lacks = sorted({*told["missing_keys"], *(str(one[0]) for one in told.get("mismatched_keys", ()))})
        if lacks:
            raise UserError(
                f"{self.path} has no weights for {_first_of(lacks)}, of the shape that its {CONFIG} says; a model with"
                " random weights in their place would not be the pretrained one"
            )
        family = FAMILIES[self.config.model_type]
        layer, count = re.compile(rf"{family.trunk}\.{family.layers}\.(\d+)\."), self.config.num_hidden_layers
        # Others are buffers that earlier versions kept.
        found = [(name, layer.match(name)) for name in told["unexpected_keys"]]
        spare = sorted(name for name, at in found if at and int(at[1]) >= count)
        if spare:
            raise UserError(
                f"{self.path} has weights for {_first_of(spare)}, and its {CONFIG} says {count} layers; a model"
                " without them would not be the pretrained one"
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
    try:
        named = sorted({str(name) for name in json.loads((path / SEVERAL).read_bytes())["weight_map"].values()})
    except (ValueError, OSError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / SEVERAL} cannot be read: {_said(error)}") from error
    if not named:
        raise UserError(f"pretrained weights unavailable: {path / SEVERAL} names no file")
    for name in named:
        if not (path / name).is_file():
            raise UserError(f"pretrained weights unavailable: {path} has no {name}, which its index names")
    return [path / name for name in named]


def _said(error: Exception) -> str:
    """In one line, and with the cause: configurations are checked by classes that say no more than which check."""
    lines = [str(one).strip().splitlines() for one in (error, error.__cause__) if one is not None]
    return " ".join(line[0].strip() for line in lines if line) or type(error).__name__


def _first_of(names: list[str]) -> str:
    return names[0] + (f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else "")


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
