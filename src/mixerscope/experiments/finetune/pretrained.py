"""Models of transformers from folders on disk, and the same shapes with random weights; never the one for the other."""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
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
        if not os.path.isfile(path / CONFIG):
            raise UserError(f"pretrained weights unavailable: {path} is no folder with a {CONFIG}")
        files = _weight_files(path)
        with _refused(f"{path / CONFIG} cannot be read"):
            config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        if config.model_type not in FAMILIES:
            raise UserError(f"{path} is of the type {config.model_type!r}; ready: {', '.join(FAMILIES)}")
        if config.num_hidden_layers < 1:
            raise UserError(f"{path / CONFIG} says {config.num_hidden_layers} layers, and a model has at least one")
        # A weight has at least a byte. A model far larger than its files would take all memory before they are read.
        with torch.device("meta"), construction(0), _refused(f"no model can be made as {path / CONFIG} says"):
            count = sum(one.numel() for one in transformers.AutoModelForCausalLM.from_config(config).parameters())
        if count > (size := sum(os.path.getsize(file) for file in files)):
            raise UserError(
                f"{path} has {counted(size, 'byte')} of weights, too few for the {count:,} that its {CONFIG} says"
            )
        digest = hashlib.sha256()
        for file in (path / CONFIG, *files):
            with _refused(f"{file} cannot be read"), file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return Pretrained(path, config, digest.hexdigest())

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def load(self) -> nn.Module:
        """With the weights of the folder: all of them, or an error."""
        # It draws weights first, all of which are then overwritten.
        with construction(0), _refused(f"{self.path / _entry(self.path)} cannot be read"):
            model, told = _transformers().AutoModelForCausalLM.from_pretrained(
                self.path,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are told, and refused here by name
                dtype="float32",
            )
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
        return self._tried(model, f"the weights in {self.path}")

    def random(self, seed: int) -> nn.Module:
        """The same shape as nobody trained it."""
        with construction(seed), _refused(f"no model can be made as {self.path / CONFIG} says"):
            model = _transformers().AutoModelForCausalLM.from_config(self.config, trust_remote_code=False).float()
        return self._tried(model, f"random weights, drawn as {self.path / CONFIG} says,")

    def _tried(self, model: nn.Module, weights: str) -> nn.Module:
        """The model, if it makes numbers of a document: what it cannot do is no fault of the training."""
        bad = [name for name, one in model.named_parameters() if not one.isfinite().all()]
        if bad:
            raise UserError(f"{weights} are not finite in {_first_of(bad)}")
        tokens = torch.zeros(1, max(1, min(4, getattr(self.config, "max_position_embeddings", 4))), dtype=torch.long)
        # As in training, where dropout is checked; it draws.
        with construction(0), torch.no_grad(), _refused(f"the model that {self.path / CONFIG} describes does not run"):
            logits = model.train()(tokens, use_cache=False).logits
        if not logits.isfinite().all():
            raise UserError(f"{weights} give logits that are not finite")
        return model.eval()


def as_tagger(model: nn.Module, vocab_size: int) -> Adapted:
    """A model over the symbols of a task, with our names for its places: hooks on modules say what a block gives."""
    config: Any = model.config
    if config.vocab_size < FIRST_TOKEN + vocab_size:
        raise UserError(f"the task has {vocab_size} symbols, and the model {config.vocab_size} tokens")
    return adapt_hf(model, (FIRST_TOKEN, vocab_size))


def _entry(path: Path) -> str:
    """The file that has the weights, or says which files do."""
    return ONE_FILE if os.path.isfile(path / ONE_FILE) else SEVERAL


def _weight_files(path: Path) -> list[Path]:
    if _entry(path) == ONE_FILE:
        return [path / ONE_FILE]
    if not os.path.isfile(path / SEVERAL):
        raise UserError(f"pretrained weights unavailable: {path} has no {ONE_FILE}")
    with _refused(f"{path / SEVERAL} cannot be read"):
        named = sorted({str(name) for name in json.loads((path / SEVERAL).read_bytes())["weight_map"].values()})
    if not named:
        raise UserError(f"pretrained weights unavailable: {path / SEVERAL} names no file")
    for name in named:
        if not os.path.isfile(path / name):  # false of any name, where that of a Path raises if it is too long
            raise UserError(f"pretrained weights unavailable: {path} has no {name}, which its index names")
    return [path / name for name in named]


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Around reading a folder, by us or by transformers, and around its models' own code, and nothing else: whatever is
    raised there, of whatever class, is said to be wrong with the folder, by us and in one sentence."""
    logging = _transformers().utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise UserError(f"{what}: {_said(error)}") from error
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _said(error: Exception) -> str:
    """In one line, and with the cause: configurations are checked by classes that say no more than which check."""
    return " ".join(_line_of(one) for one in (error, error.__cause__) if one is not None)


def _line_of(error: BaseException) -> str:
    """What it says first; a single word, as a key that is not there, says little without the kind of error."""
    line = next(iter(str(error).strip().splitlines()), "").strip()
    return line if " " in line else f"{type(error).__name__}: {line}".removesuffix(": ")


def _first_of(names: list[str]) -> str:
    return names[0] + (f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else "")


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError("transformers is not installed here; pip install 'mixerscope[hf]' brings it") from error
    return transformers
