"""`mixerscope reproduce`: the experiments of the paper, each by the name of its figure."""

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import FINE, UnknownName, UserError

if TYPE_CHECKING:
    from mixerscope.experiments.paper.sweeps import Choice, Figure
    from mixerscope.experiments.task_flip.study import Asked
    from mixerscope.sweep.call import Call
    from mixerscope.sweep.expand import Sweep

ALL, CLAIMS, PAGE, STATES = "all", "claims", "page", "task-flip"


def reproduce(
    name: str,
    /,
    *,
    preset: str | None = None,
    toy: Annotated[bool, Parameter(negative=())] = False,
    widths: str | None = None,
    seeds: int | None = None,
    only: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path | None = None,
    results_: Annotated[Path | None, Parameter(name="--results")] = None,
    collect: Annotated[list[Path] | None, Parameter(negative=())] = None,
    missing: Annotated[bool, Parameter(negative=())] = False,
    unproven: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    write_sweep: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    on: str = "local",
    slurm: Annotated[list[str] | None, Parameter(negative=())] = None,
    compile_: Annotated[bool, Parameter(name="--compile", negative=())] = False,
    stop_after: float | None = None,
    largest: int | None = None,
) -> int:
    """Train what a figure of the paper shows, and draw it; what is finished is not made again.

    Parameters
    ----------
    name
        fig1, fig3, fig4a and so on, table-params, or `all`; `claims` says what became of the paper's sentences, `page`
        writes one page over all that is kept; `task-flip` is the study of tracked states.
    preset
        `clean`, which is usual: rate chosen and results measured on different documents, proven verdicts, three seeds.
        `paper`: as published. `claims` reads what is kept as it was asked for, or as the other would.
    toy
        Tiny models and few steps: the whole of it in minutes on a CPU, to see that it works.
    widths
        Some of the figure's, such as 32,64; of `all` those figures that have them.
    seeds
        How many, from 0 on.
    only
        Parts of the figure or architectures, such as conv-1,conv-2 or mamba; of `all` those figures that have them.
    set_
        path=value, such as train.precision=float32; goes over every run; may be given several times.
    out
        Folder of the runs, which all figures share.
    results_
        Folder of what is kept: tables, drawings and ours beside published, a folder a figure.
    collect
        Train nothing; take in the runs of a pack or a folder of runs. May be given several times.
    missing
        Only cohorts of which some run is not among what is kept.
    unproven
        The same, and cohorts of which some run has no mechanism for want of a proof, which takes its training again.
    dry_run
        Say runs, cohorts and minutes, and do nothing.
    write_sweep
        Write the sweep into this file and do nothing: `python -m mixerscope.sweep.worker FILE` runs it where little is
        installed.
    device
        Where the models are trained and patched.
    on
        Where sweeps run: `local`, `local:3`, `slurm`, `ray`, as for `mixerscope sweep`.
    slurm
        An option of sbatch, such as partition=gpu; may be given several times.
    compile_
        Pass training steps through torch.compile: on a GPU twice the speed, after half a minute.
    stop_after
        Seconds after which nothing is running any more; call again for the rest.
    largest
        Models in one cohort at most; 35 unless you say otherwise.
    """
    from mixerscope.experiments.paper.data import kept_ids
    from mixerscope.experiments.paper.records import refuse_others
    from mixerscope.experiments.paper.render import refuse_to_keep
    from mixerscope.experiments.paper.sweeps import (
        USUAL_PRESET,
        Choice,
        figure_names,
        load_figure,
        share_of_each,
        sweeps_of,
        without,
    )
    from mixerscope.sweep.call import Call, check_call
    from mixerscope.sweep.plan import Imagined
    from mixerscope.sweep.table import typed_command

    known = [*figure_names(), ALL, CLAIMS, PAGE, STATES]
    if name not in known:
        raise UnknownName("figure", name, known)
    chosen = {"--preset": preset, "--widths": widths, "--seeds": seeds, "--only": only, "--set": set_}
    tasks = {"--collect": collect, "--missing": missing, "--unproven": unproven, "--dry-run": dry_run}
    machine = {"device": device, "compile": compile_, "stop_after": stop_after, "largest": largest}
    others = {"--device": device != "cpu", "--on": on != "local", "--slurm": slurm, "--out": out}
    others |= {"--compile": compile_, "--stop-after": stop_after, "--largest": largest, "--write-sweep": write_sweep}
    _refuse_idle(name, chosen | tasks | others, bool(collect), write_sweep is not None)
    kept = results_ or Path("reproduction-toy" if toy else "reproduction")
    if name in (CLAIMS, PAGE):
        return _say_claims(kept, preset) if name == CLAIMS else _write_page(kept)
    call = Call(dry_run=dry_run, on=on, slurm=slurm, **machine)
    check_call(call, Imagined(device, compile=compile_))
    taking_in = not dry_run and write_sweep is None
    if name == STATES:
        if unproven:
            raise UserError(f"{STATES} has no proofs of routes; leave --unproven out")
        from mixerscope.cli.reproduce_states import reproduce_states

        if preset not in (None, USUAL_PRESET):
            raise UserError(f"{STATES} has one preset, which is {USUAL_PRESET}; leave --preset out, got {preset!r}")
        asked, own = _asked(toy, widths, seeds, only, set_), out or Path("runs") / (f"{STATES}-toy" if toy else STATES)
        if taking_in:
            _refuse_unusable(kept, own)
            refuse_others(kept, Choice(toy=toy, settings=asked.settings), [STATES])
        return reproduce_states(asked, replace(call, out=own), kept, collect, missing, write_sweep, typed_command())
    choice = _choice(preset or USUAL_PRESET, toy, widths, seeds, only, set_)
    figures = [load_figure(each) for each in ([name] if name != ALL else figure_names())]
    figures = [figure for figure in figures if name != ALL or not figure.apart]
    folder = out or _usual_folder(figures, toy)
    # only one figure at a time can have runs with stages of their own; `all` has none of these
    there = kept_ids(kept, proven=unproven, of=figures[0]) if missing or unproven else set()
    if dry_run:
        return _say_cost(figures, choice, there, replace(call, out=folder))
    shares = share_of_each(figures, choice)
    sweeps = without([sweep for figure, own in shares for sweep in sweeps_of(figure, own)], there)
    if write_sweep is not None:
        return write_sweeps(sweeps, write_sweep)
    _refuse_unusable(kept, folder)
    if any(figure.parts for figure in figures):
        refuse_to_keep(kept, choice)
    title = figures[0].name if len(figures) == 1 else ALL
    code = FINE if collect or not sweeps else run_sweeps(title, sweeps, replace(call, out=folder))
    # Where nothing is missing there may be no runs at all.
    sources = collect or ([folder] if sweeps else [])
    return max(code, _keep([figure for figure, _ in shares], choice, sources, kept, typed_command()))


READS = {CLAIMS: ("--preset",), PAGE: (), "table-params": ("--dry-run",)}
"""What those that train nothing read, beside --toy and --results."""
COLLECTS = ("--collect", "--preset", "--set")
WRITES = ("--write-sweep", "--preset", "--widths", "--seeds", "--only", "--set", "--missing", "--unproven")


def _refuse_idle(name: str, options: Mapping[str, Any], collects: bool, writes: bool) -> None:
    """Refuses options of which nothing would come, so that nobody takes them to have been heeded."""
    given = [option for option, value in options.items() if value is not None and value is not False]
    rules: list[tuple[bool, str, Collection[str]]] = [
        (name in READS, name, READS.get(name, ())),
        (collects, "--collect takes in every run of the figure that it finds, and", COLLECTS),
        (writes, "--write-sweep", WRITES),
    ]
    for there, what, read in rules:
        idle = [option for option in given if option not in read]
        if there and idle:
            raise UserError(f"{what} trains nothing; leave {' and '.join(idle)} out")


def _refuse_unusable(kept: Path, runs: Path) -> None:
    """Refuses folders that nothing could be written into, before anything is trained."""
    for option, folder in (("--results", kept), ("--out", runs)):
        there = next(part for part in (folder.absolute(), *folder.absolute().parents) if part.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise UserError(f"cannot write to {folder}; give {option} a folder that can be written to")


def _choice(
    preset: str, toy: bool, widths: str | None, seeds: int | None, only: str | None, words: list[str] | None
) -> "Choice":
    from mixerscope.experiments.paper.sweeps import Choice
    from mixerscope.spec.reading import typed_settings

    listed = [word.strip() for word in (widths or "").split(",") if word.strip()]
    if not all(word.isdecimal() for word in listed) or (widths is not None and not listed):
        raise UserError(f"--widths takes numbers with commas between them, such as 32,64, got {widths!r}")
    parts = _parts(only)
    return Choice(preset, toy, tuple(map(int, listed)), seeds, parts, typed_settings(words))


def _parts(only: str | None) -> tuple[str, ...]:
    parts = tuple(word.strip() for word in (only or "").split(",") if word.strip())
    if only is not None and not parts:
        raise UserError(f"--only takes names with commas between them, got {only!r}; leave it out for everything usual")
    return parts


def _asked(toy: bool, widths: str | None, seeds: int | None, only: str | None, words: list[str] | None) -> "Asked":
    from mixerscope.experiments.task_flip.study import Asked
    from mixerscope.spec.reading import typed_settings

    if widths is not None:
        raise UserError(f"{STATES} has one width; leave --widths out, or set another with --set model.width=64")
    parts = _parts(only)
    return Asked(toy, parts, seeds, typed_settings(words))


def _usual_folder(figures: "list[Figure]", toy: bool) -> Path:
    own = figures[0].name if len(figures) == 1 and figures[0].apart else "paper"
    return Path("runs") / (f"{own}-toy" if toy else own)


def write_sweeps(sweeps: "Sequence[Sweep]", file: Path) -> int:
    """Writes sweeps into a file for `mixerscope sweep` or the worker."""
    from mixerscope.experiments.paper.sweeps import as_file
    from mixerscope.sweep.expand import expand

    count = len(expand(sweeps))
    if not count:
        raise UserError("all of this is kept, or trains nothing, so there is no sweep to write")
    try:
        file.write_text(as_file(sweeps), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the sweep to {file}: {error.strerror}") from error
    results().print(f"{count} runs are in {file}", markup=False, soft_wrap=True)
    return FINE


def run_sweeps(name: str, sweeps: "Sequence[Sweep]", call: "Call") -> int:
    """Carries out sweeps and leaves them as a file beside their runs; where nothing may be written, nothing is."""
    from mixerscope.cli.sweep_progress import following_sweep
    from mixerscope.experiments.paper.sweeps import as_file
    from mixerscope.sweep.call import carry_out

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / f"{name}.sweep.json"
        file.write_text(as_file(sweeps), encoding="utf-8")
        try:
            return carry_out(str(file), call, following_sweep)
        finally:
            if call.out.is_dir() and not call.dry_run:
                (call.out / file.name).write_text(as_file(sweeps), encoding="utf-8")


def _say_cost(figures: "list[Figure]", choice: "Choice", kept: set[str], call: "Call") -> int:
    from mixerscope.experiments.paper.cost import costs
    from mixerscope.sweep.plan import Imagined

    machine = Imagined(call.device, call.threads, call.kernels, call.compile)
    table = plain_table("figure", "runs", "shared", "finished", "cohorts", "minutes")
    for row in costs(figures, choice, call.out, machine, call.largest, kept):
        numbers = (row.runs, row.shared, row.finished, row.cohorts)
        table.add_row(row.name, *map(str, numbers), f"{row.minutes:.0f}")
    results().print(table)
    return FINE


def _keep(figures: "list[Figure]", choice: "Choice", sources: list[Path], kept: Path, command: str) -> int:
    """Takes runs into the tables that are kept and draws the figures from there."""
    from mixerscope.cli.console import remarks
    from mixerscope.experiments.paper.render import load_results, missing, take_in, write_figure

    if sources and any(figure.parts for figure in figures):
        count = take_in(kept, figures, sources, choice, command)
        remarks().print(f"{count} runs are kept below {kept}", markup=False, soft_wrap=True)
    results_kept = load_results(kept) if any(figure.parts for figure in figures) else None
    for figure in figures:
        found = results_kept if figure.parts else None
        left = missing(figure, found) if found is not None else ""
        if left == "everything":
            remarks().print(f"{figure.name}: nothing was run of it", markup=False, soft_wrap=True)
            continue
        folder = write_figure(figure.name, kept, found)
        results().print(
            f"{figure.name} is in {folder}{f'; not run: {left}' if left else ''}", markup=False, soft_wrap=True
        )
    return FINE


def _say_claims(kept: Path, preset: str | None) -> int:
    from mixerscope.cli.console import remarks
    from mixerscope.experiments.paper.claims import tested_claims
    from mixerscope.experiments.paper.render import load_results

    found = load_results(kept, preset)
    table = plain_table("claim", "outcome", "effect", "models that pass", "seeds", "section", "command")
    for one in tested_claims(found):
        passed = f"{one.passed} of {one.models}"
        share = "" if one.interval is None else f"{passed} [{one.interval[0]:.2f}, {one.interval[1]:.2f}]"
        claim = one.claim
        table.add_row(claim.sentence, one.outcome, one.effect, share, str(one.seeds), claim.section, claim.command)
    results().print(table)
    remarks().print(f"learning rates are chosen as preset {found.choice.preset} does", markup=False, soft_wrap=True)
    return FINE


def _write_page(kept: Path) -> int:
    from mixerscope.experiments.paper.page import write_page

    results().print(f"the page is {write_page(kept)}", markup=False, soft_wrap=True)
    return FINE
