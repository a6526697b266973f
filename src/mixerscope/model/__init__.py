"""The models that are trained and taken apart."""

from mixerscope.model.backbone import Block, Model, at_positions, build_model, load_weights, parameter_count

__all__ = ["Block", "Model", "at_positions", "build_model", "load_weights", "parameter_count"]
