"""What was found, as sentences. Each is derived from the verdicts; none is written in advance."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mixerscope.analysis import false_names
from mixerscope.analysis.rules import NOT_LEARNED, NOT_RETRIEVAL, OTHER
from mixerscope.report.data import DIVERGED, UNJUDGED, UNPATCHED, ModelResult, TaskGroup
from mixerscope.report.numbers import percent
from mixerscope.report.tracking import MEANINGS

SAME_ACCURACY = 0.05
"""Models whose accuracies lie within this of each other are said to have the same accuracy."""
UNNAMED = "a route that has no name yet"
"""What 'other' means; mechanisms with a name are explained by their task."""
NAMED_AT_MOST = 4
"""Models that a sentence lists by name; more are counted by architecture."""


@dataclass(frozen=True)
class Finding:
    headline: str
    details: tuple[str, ...]


def finding(group: TaskGroup) -> Finding:
    """The headline of one task and the sentences that carry it."""
    by_route: dict[tuple[str, tuple[str, ...]], list[ModelResult]] = defaultdict(list)
    unnamed: dict[str, list[ModelResult]] = defaultdict(list)
    for model in group.models:
        if model.verdict and model.verdict.route:
            by_route[model.mechanism, model.verdict.route].append(model)
        else:
            unnamed[model.mechanism].append(model)
    details = [
        f"{_names(models)}: {' → '.join(route)} ({': '.join(filter(None, [mechanism, gloss(models[0], mechanism)]))})."
        for (mechanism, route), models in by_route.items()
    ]
    named = [model for models in by_route.values() for model in models]
    if accuracies := _accuracies(named):
        guessing = [model.guessing for model in named if model.guessing is not None]
        beside = f", where guessing gives {percent(guessing[0])}" if guessing else ""
        details.append(f"Accuracy on fresh documents: {_span(accuracies)}{beside}.")
    details += [
        f"{_names(models)}: {mechanism}{_in_words(mechanism, models)}{_how_well(models)}."
        for mechanism, models in unnamed.items()
    ]
    if any(len({v.mechanism for v in model.verdicts}) > 1 for model in group.models):
        details.append("Corrupting another slot gives another verdict; see the cards.")
    return Finding(_headline(list(by_route), named, unnamed), tuple(details))


def page_headline(groups: Sequence[TaskGroup]) -> Finding:
    """The headline of the page: that of its one task, or a count where there are several."""
    if len(groups) == 1:
        return finding(groups[0])
    models = sum(len(group.models) for group in groups)
    details = tuple(f"Task {i + 1}, {group.title}: {finding(group).headline}." for i, group in enumerate(groups))
    return Finding(f"{models} models on {len(groups)} tasks", details)


def _headline(
    routes: list[tuple[str, tuple[str, ...]]], named: list[ModelResult], unnamed: dict[str, list[ModelResult]]
) -> str:
    if not named:
        tracked = [model for models in unnamed.values() for model in models if model.tracked and model.tracked.verdict]
        if len(tracked) == sum(map(len, unnamed.values())):
            return _tracked_headline(unnamed)
        if set(unnamed) == {NOT_LEARNED} and len(unnamed[NOT_LEARNED]) == 1:
            return "Not learned"
        if NOT_LEARNED in unnamed and set(unnamed) <= {NOT_LEARNED, DIVERGED}:
            return "No model learned the task"
        if set(unnamed) == {NOT_RETRIEVAL}:
            return "Solved without retrieval"
        if set(unnamed) == {DIVERGED}:
            return "Training diverged"
        if set(unnamed) == {UNPATCHED}:
            return "The model cannot be patched" if len(unnamed[UNPATCHED]) == 1 else "No model can be patched"
        if set(unnamed) == {UNJUDGED}:
            return "Trained and not judged"
        return "No mechanism could be named"
    if len(routes) > 1:
        return (
            "Same accuracy, different mechanism"
            if _same_accuracy(named)
            else "Different mechanisms, different accuracy"
        )
    mechanism = routes[0][0] if _kind(routes[0][0]) != OTHER else "an unnamed route"
    if len(named) == 1:
        return f"{named[0].label} learned {mechanism}"
    if unnamed:
        everyone = len(named) + sum(map(len, unnamed.values()))
        return f"{mechanism[0].upper()}{mechanism[1:]} in {len(named)} of {everyone} models"
    return f"Same mechanism in {'both' if len(named) == 2 else f'all {len(named)}'} models: {mechanism}"


def _tracked_headline(by_name: dict[str, list[ModelResult]]) -> str:
    """Of models that track a state."""
    named = {name: models for name, models in by_name.items() if name in MEANINGS}
    everyone = sum(map(len, by_name.values()))
    if len(named) > 1:
        same = _same_accuracy([model for models in named.values() for model in models])
        return f"{'Same accuracy, different' if same else 'Different'} ways of tracking the state"
    if not named:
        if set(by_name) == {"not learned"}:
            return "Not learned" if everyone == 1 else "No model learned the task"
        return "How the state is tracked is not determined"
    [(name, models)] = named.items()
    how = {"carried": "carried", "recomputed": "recomputed at each position", "length-specific": "held by position"}
    where = (
        "" if everyone == 1 else f" in {'all' if len(models) == everyone else f'{len(models)} of'} {everyone} models"
    )
    return f"The state is {how[name]}{where}"


def state_gloss(mechanism: str, models: Sequence[ModelResult]) -> str:
    """A verdict on a state in plain words; empty for others."""
    tracked = any(model.tracked and model.tracked.verdict for model in models)
    return MEANINGS.get(mechanism, "") if tracked else ""


def _in_words(mechanism: str, models: Sequence[ModelResult]) -> str:
    meaning = state_gloss(mechanism, models)
    return f" ({meaning})" if meaning else ""


def how_sure(models: Sequence[ModelResult]) -> list[str]:
    """How far the names at the top of a page can be relied upon, in sentences."""
    verdicts = [verdict for model in models for verdict in model.verdicts]
    proven = [v for v in verdicts if v.route and v.share and any(test.name == "sufficient" for test in v.tests)]
    said: list[str] = []
    if proven:
        weakest = min(verdict.share.low for verdict in proven if verdict.share)
        asked = [test for verdict in proven for test in verdict.tests if test.passed is not None]
        passed = sum(bool(test.passed) for test in asked)
        named = sum(bool(verdict.route) for verdict in verdicts)
        if len(proven) < named:
            which = f"{len(proven)} of {named} routes were"
        else:
            which = "every named route was" if named > 1 else "the named route was"
        said.append(
            f"{which} put to the proof: {passed} of {len(asked)} tests passed, and at least {percent(weakest)} of the"
            " documents take it (the lowest end of an interval)"
        )
    expected = false_names(verdicts)
    if expected.named and expected.needed:
        names = f"{expected.named} name{'' if expected.named == 1 else 's'}"
        said.append(f"of {names}, {expected.at_most} at most are expected to be wrong by chance")
    if expected.untested:
        said.append(
            f"{expected.untested} name{' rests' if expected.untested == 1 else 's rest'} on no proof of the route"
        )
    if tests := [model.tracked.answered for model in models if model.tracked and model.tracked.verdict]:
        each = str(min(tests)) if min(tests) == max(tests) else f"{min(tests)} to {max(tests)}"
        said.append(f"{len(tests)} verdict{'' if len(tests) == 1 else 's'} on states, by {each} questions each")
    seeds = [model.seeds for model in models]
    if seeds and max(seeds) == 1:
        said.append("one seed of each model: another seed may learn otherwise")
    elif seeds:
        each = str(max(seeds)) if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
        said.append(f"{each} seeds of each setting")
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in said]


def how_tested(models: Sequence[ModelResult]) -> list[str]:
    """How the names at the top of a page were reached, in sentences."""
    said: list[str] = []
    patched = [model.facts for model in models if model.facts]
    if patched:
        documents = sorted({facts.documents for facts in patched})
        span = str(documents[0]) if len(documents) == 1 else f"{documents[0]} to {documents[-1]}"
        said.append(f"Activation patching between {span} pairs of documents that differ in one token.")
    if any(test.name == "sufficient" for model in models for verdict in model.verdicts for test in verdict.tests):
        said.append(
            "Then the proof: the route alone must bring the answer back, without it the answer must go, and changed"
            " documents must be answered as the task predicts."
        )
    if any(model.tracked and model.tracked.interchanges for model in models):
        said.append("Another state was written into the middle of documents: answers that hold it must follow.")
    if any(model.tracked and model.tracked.erasures for model in models):
        said.append("The state was erased, and a fresh probe asked whether it was gone.")
    count = f"{len(models)} model{'' if len(models) == 1 else 's'}."
    return [count, *(said or ["Trained, and nothing more was asked."])]


def gloss(model: ModelResult, mechanism: str) -> str:
    """A mechanism in plain words; empty where the task has none for it."""
    return UNNAMED if _kind(mechanism) == OTHER else model.glosses.get(mechanism, "")


def _kind(mechanism: str) -> str:
    """`other: offset +3` is an 'other'."""
    return mechanism.split(":")[0]


def _accuracies(models: Sequence[ModelResult]) -> list[float]:
    return [value for model in models if (value := model.any_accuracy) is not None]


def _same_accuracy(models: Sequence[ModelResult]) -> bool:
    found = _accuracies(models)
    return max(found, default=0) - min(found, default=0) <= SAME_ACCURACY


def _span(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _how_well(models: Sequence[ModelResult]) -> str:
    """What is known of models without a verdict: how well they do."""
    found = [model for model in models if not model.verdicts and model.any_accuracy is not None]
    of = {model.answers for model in found} - {"accuracy"}
    which = f" ({' or '.join(sorted(of))})" if of else ""
    return f", at an accuracy of {_span(_accuracies(found))}{which}" if found else ""


def _names(models: Sequence[ModelResult]) -> str:
    names = [model.label for model in models]
    if len(names) > NAMED_AT_MOST:
        counts = Counter(model.architecture for model in models)
        names = [f"{architecture} x{count}" for architecture, count in counts.items()]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
