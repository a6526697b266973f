"""Putting a route to the proof: does the information flow along it, and nowhere else?

A route says at which position the information about the corrupted token stands at each station between the blocks.
*Sufficient*: the clean document runs, and at every station all positions but the route's are overwritten with what the
corrupted document has there, so that only what flows along the route survives. *Necessary*: the same with the two
documents exchanged, so that the route alone is corrupted. Patching one cell asks about one station; this asks about all
of them at once, document by document.

Beside routes a model is tried with counterfactual documents whose answer the task predicts, and with documents of
another size than those it was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mixerscope.analysis import hypotheses, judge, judge_slot
from mixerscope.analysis.rules import RulesLike
from mixerscope.artifacts.effects import ANYWHERE, EffectTable, half
from mixerscope.artifacts.proof import USUAL, Followed, Proof, TestedRoute, Variant
from mixerscope.artifacts.verdicts import Verdict, Verdicts
from mixerscope.errors import UnknownName, UserError
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.asks import also_elsewhere, unasked_at
from mixerscope.interventions.batching import batching, device_of
from mixerscope.interventions.check_model import demand_boundaries
from mixerscope.interventions.effects import Effects, counterfactual_or_runner_up
from mixerscope.interventions.engine import Grid
from mixerscope.interventions.members import Members
from mixerscope.interventions.pairs import Pairs, PairSettings, make_pairs
from mixerscope.interventions.programs import Program, runner_of
from mixerscope.interventions.table import effect_table, facts_of
from mixerscope.interventions.unmoved import unmoved_by, with_another
from mixerscope.model import Model
from mixerscope.randomness import stream
from mixerscope.sites import Tap, edit
from mixerscope.tasks import Batch, Task
from mixerscope.training.objective import answer_correct

FRESH = 1024
"""Documents that are changed into counterfactuals: so many that 90% of an accuracy of a half can be told from all of
it. They run once and nothing is edited, so they cost little."""
MOVED = "move-key"
"""A counterfactual of tasks that can exchange keys: the one that is asked takes another's place, and where it was there
stands one that the document did not have."""
Carriers = tuple[str, ...]
"""A role at each station."""


@dataclass(frozen=True)
class Route:
    """A hypothesis: by way of which roles the information about a slot goes."""

    slot: str
    carriers: Carriers


def prove(
    model: Model | Adapted,
    pairs: Pairs,
    route: str | Sequence[str] | Route,
    slot: str | None = None,
    variants: Mapping[str, Pairs] | None = None,
    batch_documents: int = 64,
    fresh_documents: int = FRESH,
) -> Proof:
    """Tests any route, also one that a person writes down: the roles that carry the information at the stations between
    the blocks, `"value"` or `["value", "value"]`, of the slot (default: the first one patched)."""
    if not isinstance(route, Route):
        slot, named = pairs.patched[0] if slot is None else slot, isinstance(route, Sequence)
        if not named or not all(isinstance(name, str) for name in (*route, slot)):
            raise UserError(f"a route is the name of a role at each station, such as 'value', not {route!r}")
        route = Route(slot, (route,) if isinstance(route, str) else tuple(route))
    if fresh_documents < 0:
        raise UserError(f"fresh_documents is a number of documents or 0 for none, not {fresh_documents}")
    return prove_cohort([model], pairs, [[route]], variants, batch_documents, fresh_documents)[0]


def verdict(grid: Grid, model: Model | Adapted, slot: str | None = None, rules: RulesLike = None) -> Verdict:
    """What a grid says of one slot (default: its first): the route it proposes, put to the proof, and its name if no
    test refutes it."""
    table = effect_table(grid, model)
    slot = grid.pairs.patched[0] if slot is None else slot
    return judge_slot(table, slot, rules, prove_table(table, grid, model, rules))


def verdicts(grid: Grid, model: Model | Adapted, rules: RulesLike = None) -> Verdicts:
    """The same of every slot that was patched."""
    table = effect_table(grid, model)
    return judge(table, rules, prove_table(table, grid, model, rules))


def prove_table(table: EffectTable, grid: Grid, model: Model | Adapted, rules: RulesLike = None) -> Proof:
    """The proof of every route that a table proposes, on the documents of its grid."""
    routes = [Route(slot, path) for slot, path in hypotheses(table, rules)]
    return prove_cohort([model], grid.pairs, [routes], other_sizes(grid.pairs))[0]


def other_sizes(pairs: Pairs, settings: PairSettings | None = None, documents: int = 128) -> dict[str, Pairs]:
    """Pairs of the same kind over documents of another size, where the task has such."""
    if pairs.task is None or not documents:
        return {}
    settings = PairSettings(slots=pairs.patched) if settings is None else settings
    told = PairSettings(**{name: getattr(settings, name) for name in ("slots", "symbols", "avoid_present")})
    told = told.changed(documents=documents)
    found: dict[str, Pairs] = {}
    for name, task in pairs.task.variants().items():
        try:
            found[name] = make_pairs(task, told, pairs.data_seed)
        except (ValueError, IndexError, RuntimeError) as error:
            told_why = f"{type(error).__name__}: {error}"
            raise UserError(
                f"the variant {name!r} of this task makes no documents ({told_why}); leave it out"
            ) from error
    return found


def prove_cohort(
    models: Sequence[Model | Adapted],
    pairs: Pairs,
    routes: Sequence[Sequence[Route]],
    variants: Mapping[str, Pairs] | None = None,
    batch_documents: int = 64,
    fresh_documents: int = FRESH,
) -> list[Proof]:
    """The proof of every model, each with routes of its own."""
    for model in models:
        if isinstance(model, Adapted):  # past a boundary that is none, every route is sufficient and necessary
            demand_boundaries(model, pairs.original.tokens)
    members = Members(models)
    tested: list[list[TestedRoute]] = [[] for _ in models]
    sizes: list[list[Variant]] = [[] for _ in models]
    with members.evaluating():
        for found, more in zip(tested, _tested(members, pairs, routes, USUAL, batch_documents), strict=True):
            found += more
        followed, unasked = _followed(members, pairs, fresh_documents), unasked_at(members, pairs, batch_documents)
        unmoved = unmoved_by(members, pairs, batch_documents)
        for name, other in (variants or {}).items():
            reason = _refused(members.first, other)
            right = [torch.empty(0, dtype=torch.bool)] * len(models) if reason else _right(members, other.original)
            guessing = other.task.guessing() if other.task is not None else 0.0
            for own, answered in zip(sizes, right, strict=True):
                own.append(Variant(name, guessing, answered, reason))
            if not reason:
                for found, more in zip(tested, _tested(members, other, routes, name, batch_documents), strict=True):
                    found += more
    return [
        Proof(tuple(own), tuple(follows), tuple(others), tuple(blocks), tuple(stays))
        for own, follows, others, blocks, stays in zip(tested, followed, sizes, unasked, unmoved, strict=True)
    ]


def stations(model: Model | Adapted, pairs: Pairs) -> tuple[str, ...]:
    """Where routes are told apart; see `Facts.stations`."""
    return facts_of(model, pairs).stations


def _tested(
    members: Members, pairs: Pairs, routes: Sequence[Sequence[Route]], on: str, batch_documents: int
) -> list[list[TestedRoute]]:
    facts = facts_of(members.first, pairs)
    sites = facts.stations
    known = list(dict.fromkeys(route for own in routes for route in own))
    for route in known:
        if route.slot not in pairs.corrupted:
            raise UnknownName("slot that is corrupted", route.slot, pairs.corrupted)
        if len(route.carriers) != len(sites):
            raise UserError(
                f"a route through this model names a role at each of {', '.join(sites) or 'no station'},"
                f" got {', '.join(route.carriers) or 'none'}"
            )
        for role in route.carriers:
            if role != ANYWHERE:
                pairs.positions(role)
            elif not facts.one_block:  # with all positions left alone there, nothing would be tested
                raise UserError(f"a route names a role at each of {', '.join(sites)}, and {ANYWHERE!r} is none")
    here = pairs.to(device_of(members.first))
    found: list[list[TestedRoute]] = [[] for _ in members.models]
    for slot in dict.fromkeys(route.slot for route in known):
        # Every member tries as many routes, its own first; what the others' would give is thrown away.
        own = [[route for route in each if route.slot == slot] for each in routes]
        most = max(map(len, own))
        padded = [(each + [each[0] if each else Route(slot, known[0].carriers)] * most)[:most] for each in own]
        parts: list[Tensor] = []
        for chunk in here.chunks(_documents(members, here, batch_documents, most)):
            at = torch.stack([_places(chunk, each, len(sites)) for each in padded])
            parts.append(members.map(_both_ways(chunk, slot, sites), at).cpu())
        table = torch.cat(parts, -1)  # [k, 5, routes, n]
        for number, each in enumerate(own):
            for i, route in enumerate(each):
                gap, sufficient, necessary, answered, kept = table[number, :, i]
                shares = half(sufficient), half(necessary)
                found[number].append(TestedRoute(slot, route.carriers, on, gap > 0, *shares, answered > 0, kept > 0))
    return found


def _documents(members: Members, pairs: Pairs, batch_documents: int, routes: int) -> int:
    return max(1, min(len(pairs), batching(members.first, pairs, batch_documents, len(members)).rows // routes))


def _places(pairs: Pairs, routes: Sequence[Route], count: int) -> Tensor:
    """[routes, stations, n], -1 where all positions are left alone."""
    if not count:
        return torch.zeros(len(routes), 0, len(pairs), dtype=torch.int64, device=pairs.original.tokens.device)
    anywhere = torch.full_like(pairs.reads.last, -1)
    at = [[anywhere if role == ANYWHERE else pairs.positions(role) for role in route.carriers] for route in routes]
    return torch.stack([torch.stack(each) for each in at])


def _both_ways(pairs: Pairs, slot: str, sites: Sequence[str]) -> Program:
    """[5, routes, n] from places [routes, stations, n]: whether the document counts, sufficient, necessary, whether the
    answer is right along the route alone, and without it."""
    clean, corrupted = pairs.original.tokens, pairs.corrupted[slot].tokens
    read, targets = pairs.reads.positions[:, :1], pairs.reads.targets[:, :1]
    others = None if slot not in pairs.reads.others else pairs.reads.others[slot][:, :1]

    def program(model: Model | Adapted, places: Tensor) -> Tensor:
        routes = len(places)

        def run(tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            found = runner_of(model).run(tokens, read, sites, read)
            return found.logits, {site: found.cache[site] for site in sites}

        def along(tokens: Tensor, elsewhere: dict[str, Tensor]) -> Tensor:
            """[routes, n, 1, v]: a run of which, off the route, everything is as elsewhere."""
            taps: dict[str, Tap] = {}
            for number, site in enumerate(sites):
                kept = elsewhere[site]
                place = places[:, number].flatten()[:, None]
                at = (place == torch.arange(kept.shape[1], device=kept.device)) | (place < 0)
                kept = kept.repeat(routes, *[1] * (kept.dim() - 1))
                at = at.view(*at.shape, *[1] * (kept.dim() - 2))
                taps[site] = lambda x, at=at, kept=kept: torch.where(at, x, kept)
            with edit(model, taps):
                return model(tokens.repeat(routes, 1), read.repeat(routes, 1)).unflatten(0, (routes, -1))

        from_clean, seen_clean = run(clean)
        from_corrupted, seen_corrupted = run(corrupted)
        compared = counterfactual_or_runner_up(others, from_corrupted, targets)
        top, bottom = (Effects.of(logits, targets, compared) for logits in (from_clean, from_corrupted))
        alone = Effects.of(along(clean, seen_corrupted), targets, compared)
        without = Effects.of(along(corrupted, seen_clean), targets, compared)
        high, low = top.logit_difference[:, 0], bottom.logit_difference[:, 0]
        gap = (top.accuracy[:, 0] > 0) & (bottom.accuracy[:, 0] == 0) & (high > low)
        size = torch.where(gap, high - low, torch.ones_like(high))
        shares = [(alone.logit_difference[..., 0] - low) / size, (high - without.logit_difference[..., 0]) / size]
        answers = [edited.accuracy[..., 0].to(high.dtype) for edited in (alone, without)]
        return torch.stack([gap.to(high.dtype).expand(routes, -1), *shares, *answers])

    return program


def _right(members: Members, batch: Batch) -> list[Tensor]:
    """By model: [n] whether documents with one answer each are answered rightly."""
    return [right for right, _ in _answered(members, batch, batch.answers()[1])]


def _answered(members: Members, batch: Batch, before: Tensor) -> list[Tensor]:
    """By model: [2, n] whether documents with one answer each are answered rightly, and whether with `before` [n]."""
    device = device_of(members.first)
    size = batching(members.first, batch, 64, len(members)).rows
    parts = [slice(start, start + size) for start in range(0, len(batch), size)]
    found = [members.map(_answers(batch[part].to(device), before[part].to(device))).cpu() for part in parts]
    return list(torch.cat(found, -1))


def _answers(batch: Batch, before: Tensor) -> Program:
    """[2, n] whether the answer of each document is right, and whether it is the one of before."""
    read, answers = batch.answers()

    def program(model: Model | Adapted) -> Tensor:
        logits = runner_of(model).run(batch.tokens, read[:, None], (), read[:, None]).logits[:, 0]
        return torch.stack([answer_correct(logits, answer) for answer in (answers, before)])

    return program


def _followed(members: Members, pairs: Pairs, documents: int) -> list[list[Followed]]:
    """By model: every kind of counterfactual that the task predicts the answer of, made of fresh documents."""
    found: list[list[Followed]] = [[] for _ in members.models]
    if pairs.task is None or not pairs.task.counterfactuals or not documents:
        return found
    fresh, counterfactuals = _counterfactuals(
        type(pairs.task), pairs.task.model_dump_json(), pairs.data_seed, documents, torch.get_default_dtype()
    )
    before, answers = _right(members, fresh), fresh.answers()[1]
    for kind, changed in counterfactuals.items():
        possible = changed.labels["changed"] > 0
        for own, was, (now, stays) in zip(found, before, _answered(members, changed, answers), strict=True):
            own.append(Followed(kind, was[possible], now[possible], stays[possible]))
    return found


@lru_cache(maxsize=4)
def _counterfactuals(
    task_class: type[Task], settings: str, data_seed: int, documents: int, drawn_in: torch.dtype
) -> tuple[Batch, dict[str, Batch]]:
    """Fresh documents of a task, and by kind what becomes of them: the same for all cohorts of a sweep, and with
    thousands of symbols to choose from they take as long to make as to run. Random numbers of another default precision
    are other numbers."""
    assert drawn_in == torch.get_default_dtype()
    task = task_class.model_validate_json(settings)
    fresh = task.sample(documents, stream(data_seed, "proof"), "test")
    kinds = task.counterfactuals
    found = {kind: task.counterfactual(kind, fresh, stream(data_seed, "proof", kind)) for kind in kinds}
    # Whoever knows an answer because all others are taken follows exchanged keys, but not one that leaves a stranger.
    rng = stream(data_seed, "proof", MOVED)
    twice = also_elsewhere(task, fresh, task.together[0], rng) if task.together else None
    return fresh, found if twice is None else {**found, MOVED: with_another(task, twice, task.together[0], rng)}


def _refused(model: Model | Adapted, pairs: Pairs) -> str:
    """Why the model cannot take these documents, or nothing; learned positions are not the only thing that ends."""
    tokens = pairs.original.tokens[:1].to(device_of(model))
    try:
        model(tokens)
    except (UserError, IndexError, RuntimeError) as error:  # a foreign module fails in its own way
        return str(error).partition("\n")[0] or type(error).__name__
    return ""
