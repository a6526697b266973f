"""Architectures: which mixer sits in which layer. A mixer's own name means that mixer in every layer."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from mixerscope.errors import UnknownName
from mixerscope.registry import ARCHITECTURES, MIXERS, architecture_entries
from mixerscope.spec.base import Spec, parse
from mixerscope.spec.options import Kernel, resolve_options


class LayerSpec(Spec):
    """One block of the backbone."""

    mixer: str
    """Its name; `mixerscope ls mixers`."""
    options: dict[str, Any] = {}
    """Of the mixer; `mixerscope show NAME` lists them."""
    mlp: bool | None = None
    """Whether an MLP follows the mixer; None means what the mixer's paper does."""
    norm: Literal["layer", "rms", "none"] | None = None
    """Normalisation in front of mixer and MLP; None means what the mixer's paper does."""
    short_conv: NonNegativeInt = 0
    """Kernel of a short convolution between norm and mixer, whose output is added to its input; 0 means none."""
    residual: bool = True
    """Whether the mixer's output is added to what entered the block. A plain stack of cells, as LSTMs were published:
    `{"mixer": "lstm", "residual": false, "norm": "none", "mlp": false}`."""


class Architecture(Spec):
    """A layer pattern. Its fields are its options."""

    revision: ClassVar[int] = 1
    """Raised when the layers it gives or a default changes, so that runs of before keep their ids and new ones get
    others."""

    @abstractmethod
    def layer(self, index: int) -> LayerSpec:
        """The block at depth `index`."""


class Pattern(Architecture):
    """The layers you list, again and again."""

    layers: tuple[LayerSpec, ...] = Field(min_length=1)
    """Blocks, from the first on, as objects with `mixer` and what else is not that mixer's default."""

    @field_validator("layers")
    @classmethod
    def _write_defaults_out(cls, layers: tuple[LayerSpec, ...]) -> tuple[LayerSpec, ...]:
        return tuple(_complete(layer) for layer in layers)

    def layer(self, index: int) -> LayerSpec:
        return self.layers[index % len(self.layers)]


class AlternatingBaseConv(Architecture):
    """BaseConv (Arora et al. 2023) in every layer, its kernels taken from a list again and again."""

    kernels: tuple[Kernel, ...] = Field(default=(3, "long"), min_length=1)
    """`["long"]` alone gives long convolutions in every layer."""
    filter_length: PositiveInt = 1024
    """Positions that a long filter is made for."""
    train_time_features: bool = True
    """Whether the filter's features of time are trained, as the published code does."""

    def layer(self, index: int) -> LayerSpec:
        return _base_conv(self.kernels[index % len(self.kernels)], self.filter_length, self.train_time_features)


class Based(Architecture):
    """Based (Arora et al. 2024): gated convolution in even layers, Taylor linear attention in odd ones."""

    kernel: Kernel = 3
    """Width of the convolution, or `long`."""
    feature_dim: PositiveInt = 8
    """Of keys and queries before their Taylor features."""
    filter_length: PositiveInt = 1024
    """Positions that a long filter is made for."""
    train_time_features: bool = True
    """Whether the filter's features of time are trained, as the published code does."""

    def layer(self, index: int) -> LayerSpec:
        if index % 2 == 0:
            return _base_conv(self.kernel, self.filter_length, self.train_time_features)
        return LayerSpec(mixer="linear_attention", options={"feature_dim": self.feature_dim})


def _base_conv(kernel: int | str, filter_length: int, train_time_features: bool) -> LayerSpec:
    options = {"kernel": kernel, "filter_length": filter_length, "train_time_features": train_time_features}
    return LayerSpec(mixer="base_conv", options=options)


def resolve_layers(architecture: str, options: dict[str, Any], layers: int) -> tuple[dict[str, Any], list[LayerSpec]]:
    """The architecture's options with defaults written out, and the spec of each of its layers."""
    if architecture in ARCHITECTURES:
        pattern: Architecture = parse(ARCHITECTURES.load(architecture), options)
        plan = [pattern.layer(i) for i in range(layers)]
        resolved = pattern.model_dump(mode="json")
    elif architecture in MIXERS:
        resolved = resolve_options(MIXERS.load(architecture), options)
        plan = [LayerSpec(mixer=architecture, options=resolved)] * layers
    else:
        raise UnknownName("architecture", architecture, [e.name for e in architecture_entries()])
    return resolved, [_complete(layer) for layer in plan]


def _complete(layer: LayerSpec) -> LayerSpec:
    mixer = MIXERS.load(layer.mixer)
    return layer.changed(
        options=resolve_options(mixer, layer.options),
        mlp=mixer.block_mlp if layer.mlp is None else layer.mlp,
        norm=mixer.block_norm if layer.norm is None else layer.norm,
    )
