"""Specs: what a run is, as frozen values that go to JSON and back."""

from mixerscope.spec.architectures import Architecture, LayerSpec
from mixerscope.spec.base import Spec, canonical_json, digest, one_sentence, parse
from mixerscope.spec.identity import id_of, outside_code, stage_identity, training_identity
from mixerscope.spec.labels import label, labels
from mixerscope.spec.paths import valid_paths, with_settings
from mixerscope.spec.presets import PRESETS, preset
from mixerscope.spec.reading import parse_settings, read_data_file
from mixerscope.spec.run import ModelSpec, RunSpec, TrainSpec, read_by, task_object

__all__ = [
    "PRESETS",
    "Architecture",
    "LayerSpec",
    "ModelSpec",
    "RunSpec",
    "Spec",
    "TrainSpec",
    "canonical_json",
    "digest",
    "id_of",
    "label",
    "labels",
    "one_sentence",
    "outside_code",
    "parse",
    "parse_settings",
    "preset",
    "read_by",
    "read_data_file",
    "stage_identity",
    "task_object",
    "training_identity",
    "valid_paths",
    "with_settings",
]
