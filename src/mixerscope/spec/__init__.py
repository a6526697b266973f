"""Specs: what a run is, as frozen values that go to JSON and back."""

from mixerscope.spec.architectures import Architecture, LayerSpec
from mixerscope.spec.base import Spec, canonical_json, digest, one_sentence, parse
from mixerscope.spec.paths import valid_paths, with_settings
from mixerscope.spec.reading import parse_settings, read_data_file
from mixerscope.spec.run import InterventionSpec, ModelSpec, RunSpec, TrainSpec, task_object

__all__ = [
    "Architecture",
    "InterventionSpec",
    "LayerSpec",
    "ModelSpec",
    "RunSpec",
    "Spec",
    "TrainSpec",
    "canonical_json",
    "digest",
    "one_sentence",
    "parse",
    "parse_settings",
    "read_data_file",
    "task_object",
    "valid_paths",
    "with_settings",
]
