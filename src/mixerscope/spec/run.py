"""What one run is: a task, a model, how it is trained and how it is taken apart. Its hash is its name."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from mixerscope.registry import MIXERS, TASKS
from mixerscope.spec.architectures import LayerSpec, resolve_layers
from mixerscope.spec.base import Spec, digest

SPEC_VERSION = 1


def task_object(text: str) -> dict[str, Any]:
    """The long form of a task's short form: `ar`, or `atr:paper` for a preset of it."""
    name, colon, preset = text.partition(":")
    return {"name": name, "preset": preset} if colon else {"name": name}


def _load_task(value: Any) -> Any:
    if isinstance(value, str):
        value = task_object(value)
    if isinstance(value, dict):
        if not isinstance(value.get("name"), str):
            raise ValueError(f"a task needs a 'name' that is text, got {value.get('name')!r}")
        cls = TASKS.load(value["name"])
        fields = {key: field for key, field in value.items() if key not in ("name", "preset")}
        if "preset" in value:
            fields = {**cls.preset_fields(value["preset"]), **fields}
        return cls.model_validate(fields)
    if not isinstance(value, Spec):
        raise ValueError(f"a task is a name or an object with a 'name', got {value!r}")
    return value


def _dump_task(task: Spec) -> dict[str, Any]:
    return {"name": TASKS.name_of(type(task)), **task.model_dump(mode="json")}


class ModelSpec(Spec):
    """A backbone and the mixers in it."""

    architecture: str
    """A mixer's name, or the name of a layer pattern; `mixerscope ls architectures`."""
    width: PositiveInt = 64
    layers: PositiveInt = 2
    options: dict[str, Any] = {}
    """Options of the architecture; `mixerscope show NAME` lists them."""
    positions: Literal["learned", "none"] = "none"
    """Learned absolute positions or none; left out, what cannot tell order by itself (plain attention) gets them."""
    max_length: PositiveInt = 1024
    """Rows of the learned position table."""
    init: Literal["reference", "small_model"] = "reference"
    """`reference`: the published rule. `small_model`: larger weights, with which tiny models learn sooner."""

    @model_validator(mode="before")
    @classmethod
    def _write_defaults_out(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("architecture"), str):
            return data
        layers = data.get("layers", 2)
        if not isinstance(layers, int) or layers < 1 or not isinstance(data.get("options", {}), dict):
            return data
        options, plan = resolve_layers(data["architecture"], data.get("options", {}), layers)
        wants_positions = any(MIXERS.load(layer.mixer).order_blind(layer.options) for layer in plan)
        default = "learned" if wants_positions else "none"
        return {"positions": default, **data, "options": options}

    def layer_specs(self) -> list[LayerSpec]:
        """The blocks, first to last, with every option written out."""
        return resolve_layers(self.architecture, self.options, self.layers)[1]


class TrainSpec(Spec):
    """How the model is trained. The defaults are the published setting for associative recall."""

    steps: PositiveInt = 50_016
    batch_size: PositiveInt = 32
    documents: PositiveInt = 100_032
    """Training documents, made once and read in order, again and again."""
    lr: PositiveFloat = 1e-3
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps over which the learning rate rises from zero."""
    weight_decay: NonNegativeFloat = 0.0
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """`tf32`: float32 whose matrix products are rounded to 10 bits on a GPU. `bfloat16`: weights and moments too."""
    eval_every: PositiveInt = 1000
    eval_documents: PositiveInt = 320
    stop_at_accuracy: float | None = Field(default=None, gt=0, le=1)
    """Ends training at the first evaluation on the dev set that reaches this accuracy."""


class InterventionSpec(Spec):
    """Which counterfactuals are made and how many documents measure them."""

    documents: PositiveInt = 320
    slots: tuple[str, ...] = ()
    """Which tokens of the document are changed, one at a time; left out, the first slot of the task."""
    symbols: Literal["query-class", "slot-class"] = "query-class"
    """What the changed token becomes: a symbol of the query's class (as published) or of the slot's own class."""
    avoid_present: bool = False
    """Whether the new symbol must be absent from the document."""
    also_at: tuple[str, ...] = ()
    """Places to edit beside the roles of the documents: `value+2`, `pos:7`, or several at once such as `key&value`."""
    batch_documents: PositiveInt = 64
    """Documents in memory at once on a CPU; changes no result beyond float rounding. A GPU takes what fits."""
    emergence: NonNegativeInt = 0
    """At how many log-spaced steps of training the route is measured as well; 0 for none."""

    @field_validator("slots", "also_at")
    @classmethod
    def _each_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(named)) < len(named):
            raise ValueError(f"each is named once, got {', '.join(named)}")
        return named


class RunSpec(Spec):
    """One model on one task, trained and taken apart."""

    version: Literal[1] = SPEC_VERSION
    task: Annotated[Any, BeforeValidator(_load_task), PlainSerializer(_dump_task)]
    """A task's name (`ar`, or `atr:paper` for a preset), or an object with `name` and the task's own fields."""
    model: ModelSpec
    train: TrainSpec = TrainSpec()
    interventions: InterventionSpec = InterventionSpec()
    seed: NonNegativeInt = 0
    """Fixes the initialisation."""
    data_seed: NonNegativeInt = 0
    """Fixes the documents, their order and the counterfactuals."""

    @model_validator(mode="after")
    def _write_slots_out(self) -> Self:
        """The resolved spec names the slots, so that leaving them out and writing them give the same id."""
        if not self.interventions.slots:
            filled = self.interventions.changed(slots=self.task.slots[:1])
            object.__setattr__(self, "interventions", filled)  # the one moment before a spec is frozen
        return self

    @property
    def run_id(self) -> str:
        """Hash of the resolved spec: a default written out or left out gives the same id."""
        return digest(self.model_dump(mode="json"))[:12]
