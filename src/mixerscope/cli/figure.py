"""`mixerscope figure`: a figure of the paper drawn again from what is kept, without a GPU."""

from pathlib import Path

from mixerscope.cli.console import results
from mixerscope.errors import UserError


def figure(name: str, folder: Path, /, *, preset: str | None = None) -> int:
    """Draw a figure from kept results, as SVG, PNG and HTML, with ours beside the published numbers.

    Parameters
    ----------
    name
        fig1, fig3, fig4a and so on, table-params, task-flip, or `all` that have runs.
    folder
        Where `mixerscope reproduce` keeps results; the drawing goes into the figure's own folder there.
    preset
        `paper` chooses learning rates on the documents that are reported, `clean` on others; as the runs were kept
        unless you say.
    """
    from mixerscope.experiments.paper.render import kept_figures, load_results, write_figure
    from mixerscope.experiments.paper.sweeps import load_figure
    from mixerscope.experiments.task_flip.study import NAME

    if name == NAME or (name == "all" and (folder / NAME).is_dir()):
        from mixerscope.experiments.task_flip.render import write_study

        if name == NAME and preset is not None:
            raise UserError(f"{NAME} is read in one way; leave --preset out")

        results().print(f"{NAME} is in {write_study(folder)}", markup=False, soft_wrap=True)
        if name == NAME:
            return 0
    figures = [load_figure(name)] if name != "all" else []
    if preset is not None and figures and not figures[0].parts:
        raise UserError(f"{name} is of models that are not trained, so it is read in one way; leave --preset out")
    found = load_results(folder, preset) if name == "all" or figures[0].parts else None
    if found is not None and not figures:
        figures = kept_figures(folder, found)
    for each in figures:
        place = write_figure(each.name, folder, found)
        results().print(f"{each.name} is in {place}", markup=False, soft_wrap=True)
    return 0
