"""Plain routes in other settings: idle layers, other documents, flat logits, models that learned half of it."""

import torch

from mixerscope.model import Model
from mixerscope.planted.models import induction_transformer, lagged_induction, two_routes
from mixerscope.planted.parts import PlantedLag
from mixerscope.planted.truth import SIZE, TASK, by_induction, in_blocks, one_route
from mixerscope.planted.writing import LOUD, Basis, attend, attention_of, bare, fetch, find, mixer_of
from mixerscope.tasks import AR


@torch.no_grad()
def flat_logits(task: AR, seed: int) -> Model:
    """Induction that is always right and never sure."""
    model = induction_transformer(task, seed)
    model.final_norm.weight.fill_(0.02)
    return model


@torch.no_grad()
def over_a_filler(task: AR, seed: int) -> Model:
    """Induction where one token stands between a key and its value: the convolution reaches two back."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("planted/lag", "attention"), "none", lag=2)
    first, d = mixer_of(model, 0, PlantedLag), basis.width
    first.conv.weight[:d, 0] = 1.0
    first.out.weight[:, :d] = basis.previous_keys.T @ basis.keys
    attend(attention_of(model, 1), 0, basis.keys, basis.previous_keys, LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def confused_keys(task: AR, seed: int) -> Model:
    """Induction that cannot tell the two halves of the keys apart; of two pairs that match, the later one wins."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention"))
    lower, upper = basis.keys.chunk(2)
    code = basis.previous_keys[: len(lower)]
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, torch.cat([code, code]))
    later = 0.02 * torch.arange(task.max_length) @ basis.position
    asks = torch.cat([lower + upper, basis.position.sum(0, keepdim=True)])
    offers = torch.cat([code, later[None]])
    attend(attention_of(model, 1), 0, asks, offers, LOUD * basis.values, basis.values)
    return model


@torch.no_grad()
def half_silent(task: AR, seed: int) -> Model:
    """Induction for the first half of the keys; asked for another, the model has no answer."""
    basis = Basis(task, seed)
    model = bare(task, basis, ("attention", "attention"))
    fetch(attention_of(model, 0), basis, 0, 1, basis.keys, basis.previous_keys)
    find(attention_of(model, 1), basis, 0, basis.previous_keys, basis.values, slice(task.num_keys // 2))
    return model


ENTRIES = (
    one_route(
        "induction, idle last layer",
        lambda task, seed: induction_transformer(task, seed, idle_after=1),
        "induction",
        in_blocks(
            "key value query query",
            "value value query query",
            (0, "attention", "key", "value"),
            (1, "attention", "value", "query"),
        ),
    ),
    one_route(
        "induction, idle layer between",
        lambda task, seed: induction_transformer(task, seed, idle_between=1),
        "induction",
        in_blocks(
            "key value value query",
            "value value value query",
            (0, "attention", "key", "value"),
            (2, "attention", "value", "query"),
        ),
    ),
    one_route("induction, flat logits", flat_logits, "induction", by_induction()),
    one_route(
        "induction, eight pairs",
        induction_transformer,
        "induction",
        by_induction(),
        task=AR(num_pairs=8, num_keys=16, num_values=16),
    ),
    one_route(
        "induction, two to six pairs",
        lambda task, seed: lagged_induction(task, seed, lag=1),
        "induction",
        by_induction("short convolution"),
        task=TASK.changed(num_pairs=6, min_pairs=2),
    ),
    one_route(
        "induction over a filler",
        over_a_filler,
        "induction",
        by_induction("short convolution"),
        task=AR(**SIZE, distractors=1, num_fillers=4),
    ),
    one_route(
        "induction, helped a little from the key",
        lambda task, seed: two_routes(task, seed, induction=1.5, direct=0.5),
        "induction",
        by_induction(second="TwoRoutes"),
        "undetermined",
    ),
    one_route(
        "induction that confuses keys",
        confused_keys,
        "induction",
        # Of eight keys four are in a document. The one that is confused with the asked one is among them with 3 in 7,
        # and then the later one wins: 11 in 14 are answered. Else the corruption may put it in place of the key, with 1
        # in 4, and nothing happens: 2 of 11 answered documents.
        by_induction(fraction=9 / 11, value_alone=(1.0, 1.0)),
        "undetermined",
        "contradicted",
        accuracy=(0.68, 0.88),
        follows={"query": 11 / 14, "swap-keys": 11 / 14, "value": 11 / 14},
    ),
    one_route(
        "induction for half of the keys, else silent",
        half_silent,
        "induction",
        by_induction(),
        "undetermined",
        "contradicted",
        accuracy=(0.4, 0.6),
        follows={"query": 0.5, "swap-keys": 0.5, "value": 0.5},
    ),
)
"""All are induction; how sure one can be of it differs."""
