"""The models that are trained and patched."""

from mixerscope.model.backbone import (
    Block,
    Model,
    at_positions,
    build_model,
    layers_of,
    load_weights,
    parameter_count,
    parameters_of,
    state_size,
    trained_models,
)

__all__ = [
    "Block",
    "Model",
    "at_positions",
    "build_model",
    "layers_of",
    "load_weights",
    "parameter_count",
    "parameters_of",
    "state_size",
    "trained_models",
]
