"""TensorBoard's event files, without TensorFlow and without torch."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mixerscope.export.trackers import Tracked

Event: Any = import_module("tensorboard.compat.proto.event_pb2").Event
Summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
hparams_pb: Any = import_module("tensorboard.plugins.hparams.summary_v2").hparams_pb
text_pb: Any = import_module("tensorboard.plugins.text.summary_v2").text_pb
EventFileWriter: Any = import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter


def send(runs: Sequence[Tracked], out: Path, project: str) -> None:
    """A folder for each run below `out`. The time of an event is its step: when it was sent says nothing."""
    for run in runs:
        writer = EventFileWriter(str(out / run.name))
        last = run.series[-1][0] if run.series else 0
        writer.add_event(Event(summary=hparams_pb(run.config, trial_id=run.run_id)))
        for step, values in run.series:
            writer.add_event(_scalars(values, step))
        writer.add_event(_scalars(run.final, last))
        for tag, text in {"model": run.label, **run.texts}.items():
            writer.add_event(Event(step=last, wall_time=last, summary=text_pb(tag, text)))
        writer.close()


def _scalars(values: Mapping[str, float], step: int) -> Any:
    found = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    return Event(step=step, wall_time=step, summary=Summary(value=found))
