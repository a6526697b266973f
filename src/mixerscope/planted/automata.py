"""Models that track a state in a way that is known, because it was written down: what state verdicts are judged with.

Each is an ordinary model whose first mixers are replaced by some of `trackers` and `memories`.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from mixerscope.model import Model, build_model
from mixerscope.planted.memories import (
    Counter,
    Framed,
    Lagging,
    ListKeeper,
    Masked,
    Noisy,
    Quiet,
    Relieved,
    RelievedNowAndThen,
    Shadowed,
    Silent,
    Turning,
)
from mixerscope.planted.mingled import (
    AnchoredEveryFourth,
    Cached,
    CarrierButEveryFourth,
    FillingEveryFourth,
    FillingEveryThird,
    FramedThatAListRelieves,
    QuietButEveryThird,
)
from mixerscope.planted.trackers import (
    Anchored,
    Carrier,
    PositionReader,
    Recomputer,
    Scanner,
    TimedCarrier,
    Tracker,
    Translator,
    WindowReader,
)
from mixerscope.randomness import stream
from mixerscope.spec import ModelSpec
from mixerscope.tasks import Parity, StateTask

StateLabel = Literal["carried", "recomputed", "length-specific", "not learned"]


@dataclass(frozen=True)
class PlantedState:
    """A model that tracks a state in a known way."""

    name: str
    label: StateLabel
    """What a verdict must say."""
    why: str
    mixers: tuple[type[Tracker], ...]
    """Of the first blocks; all others are idle."""
    parity_only: bool = False

    def tracks(self, task: StateTask) -> bool:
        """Whether there is such a model for the task."""
        return isinstance(task, Parity) or not self.parity_only

    def build(self, task: StateTask, seed: int) -> Model:
        """A model for this task; other seeds have other codes and embeddings."""
        width, layers = 4 * task.automaton.num_states + 24, max(2, len(self.mixers))
        spec = ModelSpec(architecture="gru", width=width, layers=layers)
        model = build_model(spec, task.vocab_size, seed)
        rng = stream(seed, "planted embeddings")
        with torch.no_grad():
            drawn = torch.randn(task.vocab_size, spec.width, generator=rng)
            model.token_embedding.weight.copy_(drawn - drawn.mean(1, keepdim=True))
        rows = model.token_embedding.weight.detach().clone()
        answers = rows[task.answer_tokens(torch.arange(task.automaton.num_states))]
        for level, (block, kind) in enumerate(zip(model.layers(), self.mixers, strict=False)):
            mixer = kind(task, rows, answers, seed)
            mixer.placed(task, level, level == len(self.mixers) - 1)
            block.mixer = mixer
            block.norm1 = torch.nn.Identity()  # tokens are read as they stand
        for level, block in enumerate(model.layers()):
            _silence(block.mlp)
            _silence(None if level < len(self.mixers) else block.mixer)
        return model


def _silence(module: torch.nn.Module | None) -> None:
    """Makes a part give zeros."""
    if module is not None:
        with torch.no_grad():
            for weight in module.parameters():
                weight.zero_()


EVERY_STATE: tuple[PlantedState, ...] = (
    PlantedState(
        "recurrence",
        "carried",
        "its memory is the state and nothing else, the same at every position, so answers go on from what is written",
        (Carrier,),
    ),
    PlantedState(
        "recurrence by the clock",
        "length-specific",
        "it goes on from the state that is written, but in another code at each position, and has codes for the"
        " positions of training only",
        (TimedCarrier,),
    ),
    PlantedState(
        "recomputation",
        "recomputed",
        "every position reads all inputs anew: what is written at one of them changes that answer and no later one",
        (Recomputer,),
    ),
    PlantedState(
        "scan",
        "recomputed",
        "products of stretches of inputs are multiplied, level by level; none of them is the state, so a state that is"
        " written is not gone on from",
        (Scanner,) * 4,
    ),
    PlantedState(
        "position reader",
        "length-specific",
        "the state is worked out anew everywhere, in a code of each position, and those of training alone are known",
        (PositionReader, Translator),
    ),
    PlantedState(
        "window",
        "not learned",
        "it knows the last four inputs, which say nothing about a state that all inputs decide",
        (WindowReader,),
    ),
    PlantedState(
        "recurrence in the second block",
        "carried",
        "what the first block holds is read by nobody, what the second holds is the state",
        (Silent, Carrier),
    ),
    PlantedState(
        "recurrence with idle numbers",
        "carried",
        "larger numbers grow beside the state; nobody reads them",
        (Noisy,),
    ),
    PlantedState(
        "recurrence under a mask",
        "carried",
        "two parts, neither of which tells the state, do so together; there are finitely many, the same everywhere",
        (Masked,),
    ),
    PlantedState(
        "recurrence one input behind",
        "carried",
        "what is held is the state of before the last input, and that input: finitely many, the same everywhere",
        (Lagging,),
    ),
    PlantedState(
        "recurrence in a turning frame beside inputs",
        "carried",
        "places in a frame, of either sign, are the state; beside them lie the last inputs, unread",
        (Framed,),
    ),
    PlantedState(
        "list of inputs",
        "recomputed",
        "a memory of the inputs themselves, from all of which the state is worked out at every position",
        (ListKeeper,),
    ),
    PlantedState(
        "count",
        "recomputed",
        "a memory of how many ones there were; whether that is odd is worked out at every position, of numbers that"
        " occur in training",
        (Counter,),
        parity_only=True,
    ),
    PlantedState(
        "recomputation beside an idle recurrence",
        "recomputed",
        "every position reads all inputs anew; a memory that holds the state runs beside it and is read by nobody",
        (Silent, Recomputer),
    ),
)

UNTOLD: tuple[PlantedState, ...] = (
    PlantedState(
        "recurrence in a code that turns",
        "carried",
        "its memory is the state and which of two codes it is in; a clock that ends with training looks the same",
        (Turning,),
    ),
    PlantedState(
        "list of inputs beside an idle code",
        "recomputed",
        "the state is worked out from the inputs; an idle code of it is what is met again early in documents",
        (Shadowed,),
    ),
    PlantedState(
        "recurrence that a list relieves",
        "length-specific",
        "it goes on from the state, but for the last input of training: that one, and those behind it, a list answers",
        (Relieved,),
    ),
    PlantedState(
        "recomputation from the middle",
        "recomputed",
        "nothing is held; later positions read the state of the middle off the stream, and no other",
        (Recomputer, Anchored),
    ),
    PlantedState(
        "recomputation from the middle beside an idle recurrence",
        "recomputed",
        "the same; a memory that holds the state runs beside it and is read by nobody",
        (Silent, Recomputer, Anchored),
    ),
    PlantedState(
        "recurrence that a list relieves now and then",
        "length-specific",
        "it goes on from the state, but for every fourth input, which a list answers as long as it has room",
        (RelievedNowAndThen,),
    ),
    PlantedState(
        "quiet recurrence in a turning frame beside inputs",
        "carried",
        "places in a frame are the state, in so small numbers that directions are looked for elsewhere",
        (Quiet,),
    ),
    PlantedState(
        "recurrence beside a cache",
        "carried",
        "its memory is the state; what it holds of every input beside it makes it of no one size, so that another state"
        " cannot be put there",
        (Cached,),
    ),
    PlantedState(
        "recurrence that the stream relieves now and then",
        "length-specific",
        "it goes on from the state, but every fourth answer is worked out from the inputs, or from the answer of the"
        " middle, where these end with training",
        (CarrierButEveryFourth, FillingEveryFourth, AnchoredEveryFourth),
    ),
    PlantedState(
        "list that relieves a recurrence in a turning frame beside inputs",
        "length-specific",
        "directions are the state's, but every ninth answer is a list's, as long as it has room",
        (FramedThatAListRelieves,),
    ),
    PlantedState(
        "half of a quiet recurrence in a turning frame beside inputs",
        "carried",
        "a third of the answers is worked out from the inputs, the others are those of a memory too quiet to be found",
        (QuietButEveryThird, FillingEveryThird),
    ),
)
"""Those that nothing measured at the training length tells from others with another label: no name is the right one."""
