"""What one run is: a training (task, model, how it is trained, seeds), which names it, and the stages wanted of it."""

from collections.abc import Collection
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from mixerscope.errors import UnknownName
from mixerscope.registry import MIXERS, OBJECTIVES, STAGES, TASKS
from mixerscope.spec.architectures import LayerSpec, resolve_layers
from mixerscope.spec.base import Spec
from mixerscope.spec.identity import id_of, stage_identity, training_identity

USUAL_OBJECTIVE = "answer"
"""What is minimised unless a spec says otherwise; it has no settings, and changes with the trainer's revision."""
USUAL_STAGES = ("patch", "prove", "judge")
"""What is done with a trained model unless a spec says otherwise."""


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
        if not isinstance(preset := value.get("preset", ""), str):
            raise ValueError(f"a task's 'preset' is a name, got {preset!r:.200}")
        if "preset" in value:
            fields = {**cls.preset_fields(preset), **fields}
        return cls.model_validate(fields)
    if not isinstance(value, Spec):
        raise ValueError(f"a task is a name or an object with a 'name', got {value!r}")
    return value


def _dump_task(task: Spec) -> dict[str, Any]:
    return {"name": TASKS.name_of(type(task)), **task.model_dump(mode="json")}


def _load_objective(value: Any) -> Any:
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, dict):
        if not isinstance(value.get("name"), str):
            raise ValueError(f"an objective needs a 'name' that is text, got {value.get('name')!r}")
        fields = {key: field for key, field in value.items() if key != "name"}
        value = OBJECTIVES.load(value["name"]).model_validate(fields)
    if value is not None and not isinstance(value, Spec):
        raise ValueError(f"an objective is a name or an object with a 'name', got {value!r}")
    # One way of writing it: what is minimised anyway is left out.
    return None if value is None or OBJECTIVES.name_of(type(value)) == USUAL_OBJECTIVE else value


def _dump_objective(objective: Spec | None) -> dict[str, Any] | None:
    if objective is None:
        return None
    return {"name": OBJECTIVES.name_of(type(objective)), **objective.model_dump(mode="json")}


def _load_stages(value: Any) -> Any:
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        value = {name: {} for name in value}
    if not isinstance(value, dict):
        raise ValueError(f"stages are names, or an object from names to settings, got {value!r}")
    return {name: _load_stage(name, settings) for name, settings in value.items()}


def _load_stage(name: Any, settings: Any) -> Any:
    if not isinstance(name, str):
        raise ValueError(f"a stage's name is text, got {name!r}")
    if isinstance(settings, Spec):
        return settings
    if not isinstance(settings, dict):
        raise ValueError(f"{name}: a stage's settings are an object, got {settings!r}")
    stage = STAGES.load(name)
    try:
        return stage.model_validate(settings)
    except ValidationError as error:  # with the stage in its path: stages.patch.edits
        errors = error.errors(include_url=False)
        said: list[Any] = [
            {"type": e["type"], "loc": (name, *e["loc"]), "input": e["input"], "ctx": e.get("ctx", {})} for e in errors
        ]
        raise ValidationError.from_exception_data(stage.__name__, said) from error


def _dump_stages(stages: dict[str, Spec]) -> dict[str, Any]:
    return {name: stage.model_dump(mode="json") for name, stage in stages.items()}


MOST_LAYERS = 2**10


class ModelSpec(Spec):
    """A backbone and the mixers in it."""

    revision: ClassVar[int] = 1
    """Of the backbone; raised when what it computes or a default here changes."""

    architecture: str
    """A mixer's name, or the name of a layer pattern; `mixerscope ls architectures`."""
    width: int = Field(default=64, ge=1, le=2**16)
    """Of the residual stream."""
    layers: int = Field(default=2, ge=1, le=MOST_LAYERS)
    """Blocks, one after the other."""
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
        layers = _whole(data.get("layers", 2))
        if (
            not isinstance(layers, int)
            or not 1 <= layers <= MOST_LAYERS
            or not isinstance(data.get("options", {}), dict)
        ):
            return data
        options, plan = resolve_layers(data["architecture"], data.get("options", {}), layers)
        return {"positions": _usual_positions(plan), **data, "options": options}

    @property
    def usual_positions(self) -> str:
        """What `positions` is where nobody says."""
        return _usual_positions(self.layer_specs())

    def layer_specs(self) -> list[LayerSpec]:
        """The blocks, first to last, with every option written out."""
        return resolve_layers(self.architecture, self.options, self.layers)[1]


def _whole(value: Any) -> Any:
    """2 from 2.0 and "2", as they are read everywhere else; anything else as it is."""
    if isinstance(value, str) and value.strip().lstrip("+").isdecimal():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _usual_positions(layers: list[LayerSpec]) -> str:
    blind = any(MIXERS.load(layer.mixer).order_blind(layer.options) for layer in layers)
    return "learned" if blind else "none"


class TrainSpec(Spec):
    """How the model is trained. The defaults are the published setting for associative recall."""

    revision: ClassVar[int] = 1
    """Of the trainer; raised when what it computes or a default here changes."""

    steps: int = Field(default=50_016, gt=0, le=10**7)
    """Updates of the weights."""
    batch_size: PositiveInt = 32
    """Documents in one of them."""
    documents: PositiveInt = 100_032
    """Training documents, made once and read in order, again and again."""
    lr: PositiveFloat = 1e-3
    """The largest learning rate."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls to zero after it has risen, or that it does not."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps over which the learning rate rises from zero."""
    weight_decay: NonNegativeFloat = 0.0
    """Of AdamW."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """`tf32`: float32 whose matrix products are rounded to 10 bits on a GPU. `bfloat16`: weights and moments too."""
    eval_every: PositiveInt = 1000
    """Steps between two evaluations on dev documents."""
    eval_documents: PositiveInt = 320
    """Dev documents."""
    stop_at_accuracy: float | None = Field(default=None, gt=0, le=1)
    """Ends training at the first evaluation on the dev set that reaches this accuracy."""
    objective: Annotated[Any, BeforeValidator(_load_objective), PlainSerializer(_dump_objective)] = None
    """What is minimised, a name or an object with `name` and its fields; left out: the answer's cross-entropy."""


class RunSpec(Spec):
    """One training, and what is to be done with the model that it gives."""

    version: Literal[2] = 2
    """Of this format."""
    task: Annotated[Any, BeforeValidator(_load_task), PlainSerializer(_dump_task)]
    """A task's name (`ar`, or `atr:paper` for a preset), or an object with `name` and the task's own fields."""
    model: ModelSpec
    """The architecture and its size."""
    train: TrainSpec = TrainSpec()
    """Steps, learning rate, documents."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Fixes the initialisation."""
    data_seed: int = Field(default=0, ge=0, lt=2**63)
    """Fixes the documents, their order and the counterfactuals."""
    stages: Annotated[dict[str, Any], BeforeValidator(_load_stages), PlainSerializer(_dump_stages)] = Field(
        default=USUAL_STAGES, validate_default=True
    )
    """What is done with the trained model: names of stages, or an object from names to settings. They do not change
    the run's id: each analysis has an id of its own."""

    @model_validator(mode="after")
    def _fit_the_task(self) -> Self:
        fitted = {name: stage.for_task(self.task) for name, stage in self.stages.items()}
        object.__setattr__(self, "stages", _in_order(fitted))  # the one moment before a spec is frozen
        return self

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What tells this training from any other, as JSON."""
        return training_identity(self)

    @cached_property
    def run_id(self) -> str:
        """The training's id: a default written out or left out gives the same one, and so do other stages."""
        return id_of(self.identity)

    def stage_identity(self, name: str) -> dict[str, Any]:
        """What tells one analysis from others of the same run."""
        if name not in self.stages:
            raise UnknownName("stage of this run", name, self.stages)
        stage = self.stages[name]
        return stage_identity(name, stage, {need: self.stage_id(need) for need in read_by(stage, self.stages)})

    def stage_id(self, name: str) -> str:
        """The id of one analysis: the same for every run with these settings."""
        return id_of(self.stage_identity(name))

    def training(self) -> dict[str, Any]:
        """The training alone, in full, as JSON."""
        return self.model_dump(mode="json", exclude={"stages"})


def read_by(stage: Any, there: Collection[str]) -> list[str]:
    """Stages whose results a stage reads: those it needs, and those it can do without that are there."""
    return [*stage.needs, *(name for name in stage.may_need if name in there)]


def _in_order(stages: dict[str, Any]) -> dict[str, Any]:
    """The stages with those first that others need."""
    ordered: dict[str, Any] = {}

    def put(name: str, asked_by: str) -> None:
        if name not in stages:
            raise ValueError(f"the stage {asked_by!r} needs the stage {name!r}, which is not asked for")
        if name not in ordered:
            for need in read_by(stages[name], stages):
                put(need, name)
            ordered[name] = stages[name]

    for name in stages:
        put(name, name)
    return ordered
