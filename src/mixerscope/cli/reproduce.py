"""`mixerscope reproduce`: the experiments of the paper, each by the name of its figure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import FINE, UserError

if TYPE_CHECKING:
    from mixerscope.experiments.paper.sweeps import Choice, Figure
    from mixerscope.sweep.call import Call

ALL, CLAIMS = "all", "claims"


def reproduce(
    name: str,
    /,
    *,
    preset: str = "clean",
    toy: Annotated[bool, Parameter(negative=())] = False,
    widths: str | None = None,
    seeds: int | None = None,
    only: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    write_sweep: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    on: str = "local",
    compile_: Annotated[bool, Parameter(name="--compile", negative=())] = False,
    stop_after: float | None = None,
    largest: int | None = None,
) -> int:
    """Train what a figure of the paper shows, and draw it; what is finished is not made again.

    Parameters
    ----------
    name
        fig1, fig3, fig4a and so on, table-params, or `all`.
    preset
        `clean`: rate chosen and results measured on different documents, proven verdicts, three seeds. `paper`: as
        published.
    toy
        Tiny models and few steps: the whole of it in minutes on a CPU, to see that it works.
    widths
        Some of the figure's, such as 32,64.
    seeds
        How many, from 0 on.
    only
        Parts of the figure or architectures, such as conv-1,conv-2 or mamba.
    set_
        path=value, such as train.precision=float32; goes over every run; may be given several times.
    out
        Folder of the runs, which all figures share.
    dry_run
        Say runs, cohorts and minutes, and do nothing.
    write_sweep
        Write the sweep into this file and do nothing: `python -m mixerscope.sweep.worker FILE` runs it where little is
        installed.
    device
        Where the models are trained and patched.
    on
        The machine; `local` is the only one.
    compile_
        Pass training steps through torch.compile: on a GPU twice the speed, after half a minute.
    stop_after
        Seconds after which nothing is running any more; call again for the rest.
    largest
        Models in one cohort at most; 32 unless you say otherwise.
    """
    from mixerscope.experiments.paper.sweeps import figure_names, load_figure
    from mixerscope.sweep.call import Call

    if on != "local":
        raise UserError(f"--on {on}: runs are made on this machine; write them to a file with --write-sweep for others")
    choice = _choice(preset, toy, widths, seeds, only, set_)
    figures = [load_figure(each) for each in ([name] if name != ALL else figure_names())]
    figures = [figure for figure in figures if name != ALL or not figure.apart]
    folder = out or _usual_folder(figures, toy)
    if write_sweep is not None:
        return _write(figures, choice, write_sweep)
    call = Call(out=folder, device=device, compile=compile_, stop_after=stop_after, largest=largest, dry_run=dry_run)
    if dry_run:
        return _say_cost(figures, choice, call)
    return _run(figures, choice, call)


def _choice(
    preset: str, toy: bool, widths: str | None, seeds: int | None, only: str | None, words: list[str] | None
) -> "Choice":
    from mixerscope.experiments.paper.sweeps import Choice
    from mixerscope.spec.reading import typed_settings

    listed = [word.strip() for word in (widths or "").split(",") if word.strip()]
    if not all(word.isdecimal() for word in listed):
        raise UserError(f"--widths takes numbers with commas between them, such as 32,64, got {widths!r}")
    parts = tuple(word.strip() for word in (only or "").split(",") if word.strip())
    return Choice(preset, toy, tuple(map(int, listed)), seeds, parts, typed_settings(words))


def _usual_folder(figures: "list[Figure]", toy: bool) -> Path:
    own = figures[0].name if len(figures) == 1 and figures[0].apart else "paper"
    return Path("runs") / (f"{own}-toy" if toy else own)


def _write(figures: "list[Figure]", choice: "Choice", file: Path) -> int:
    from mixerscope.experiments.paper.sweeps import as_file, sweeps_of
    from mixerscope.sweep.expand import expand

    sweeps = [sweep for figure in figures for sweep in sweeps_of(figure, choice)]
    count = len(expand(sweeps))
    if not count:
        raise UserError(f"{figures[0].name} trains nothing, so there is no sweep to write")
    try:
        file.write_text(as_file(sweeps), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the sweep to {file}: {error.strerror}") from error
    results().print(f"{count} runs are in {file}", markup=False, soft_wrap=True)
    return FINE


def _say_cost(figures: "list[Figure]", choice: "Choice", call: "Call") -> int:
    from mixerscope.experiments.paper.cost import costs
    from mixerscope.sweep.plan import Imagined

    machine = Imagined(call.device, call.threads, call.kernels, call.compile)
    table = plain_table("figure", "runs", "shared", "finished", "cohorts", "minutes")
    for row in costs(figures, choice, call.out, machine, call.largest):
        numbers = (row.runs, row.shared, row.finished, row.cohorts)
        table.add_row(row.name, *map(str, numbers), f"{row.minutes:.0f}")
    results().print(table)
    return FINE


def _run(figures: "list[Figure]", choice: "Choice", call: "Call") -> int:
    from mixerscope.cli.sweep_progress import following_sweep
    from mixerscope.experiments.paper.sweeps import as_file, sweeps_of
    from mixerscope.store import make_folder
    from mixerscope.sweep.call import carry_out

    sweeps = [sweep for figure in figures for sweep in sweeps_of(figure, choice)]
    if not sweeps:
        return FINE
    name = figures[0].name if len(figures) == 1 else ALL
    make_folder(call.out)
    file = call.out / f"{name}.sweep.json"
    file.write_text(as_file(sweeps), encoding="utf-8")
    return carry_out(str(file), call, following_sweep)
