"""Both halves of a fine-tuning, one after the other: the pretrained model, and its shape with random weights."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from mixerscope.artifacts import Lengths, Probes
from mixerscope.experiments.finetune.pretrained import Pretrained, as_tagger
from mixerscope.experiments.finetune.results import ABOUT, PRETRAINED, RANDOM, TunedResult, write_tuned
from mixerscope.experiments.finetune.tuning import Settings, Tell, tuned
from mixerscope.interventions.adapt import Adapted
from mixerscope.interventions.tagging import demand_states
from mixerscope.machine import Machine
from mixerscope.registry import TASKS
from mixerscope.spec import id_of, parse
from mixerscope.spec.reading import typed_settings
from mixerscope.spec.run import task_object
from mixerscope.tasks import StateTask


def finetune_both(
    path: Path, task_text: str, words: Sequence[str], settings: Settings, machine: Machine, out: Path, tell: Tell
) -> tuple[Path, list[str]]:
    """Makes what is missing of the two, and gives their folder and a line about each."""
    task = read_task(task_text, words)
    source = Pretrained.at(path)
    dumped = {"name": TASKS.name_of(type(task)), **task.model_dump(mode="json")}
    identity = {"model": source.sha256, "task": dumped, "settings": settings.__dict__}
    folder = out / f"{source.name}-{id_of(identity)}"
    about = {
        "model": source.name,
        "type": source.config.model_type,
        "layers": source.config.num_hidden_layers,
        "sha256": source.sha256,
        "task": dumped,
        "device": torch.cuda.get_device_name() if machine.device == "cuda" else "cpu",
        "torch": torch.__version__,
    }

    def random() -> Adapted:
        return as_tagger(source.random(settings.seed), task.vocab_size)

    makers: dict[str, Callable[[], Adapted]] = {
        PRETRAINED: lambda: as_tagger(source.load(), task.vocab_size),
        RANDOM: random,
    }
    missing = [which for which in makers if not (folder / which / ABOUT).is_file()]
    if missing:
        random()  # what no model can be made of is refused before the other one is trained and written
    for which in missing:
        found = tuned(
            makers[which], random, task, settings, machine, lambda what, *rest, w=which: tell(f"{w}: {what}", *rest)
        )
        write_tuned(folder, which, about, settings, found)
    return folder, [_line(TunedResult(folder / which)) for which in makers]


def read_task(text: str, words: Sequence[str]) -> StateTask:
    """`dyck`, or `dyck:after-close`, with settings over it."""
    said = {**task_object(text), **typed_settings(list(words))}
    name, preset = said.pop("name"), said.pop("preset", None)
    cls = TASKS.load(name)
    fields = {**(cls.preset_fields(preset) if preset else {}), **said}
    return demand_states(parse(cls, fields))


def _line(found: TunedResult) -> str:
    lengths, probes = found.find(Lengths), found.find(Probes)
    at = {one.times: one.last.value for one in lengths.lengths} if lengths else {}
    longer = ", ".join(f"{times}x {value:.2f}" for times, value in at.items())
    which, passed = found.about["weights"], "" if found.about["passed"] else " (below the gate: no more was measured)"
    best = ""
    if probes is not None:
        row = dict(zip(probes.sites, probes.accuracy[0], strict=True))
        site = max(probes.boundaries, key=lambda name: row[name])
        best = f"; a probe reads {row[site]:.2f} at {site}"
    return f"{which} weights: accuracy {found.about['accuracy']:.3f}{passed}; last answer {longer}{best}"
