"""`mixerscope figure`: a figure of the paper drawn again from what is kept, without a GPU."""

from pathlib import Path

from mixerscope.cli.console import results


def figure(name: str, folder: Path, /) -> int:
    """Draw a figure from kept results, as SVG, PNG and HTML, with ours beside the published numbers.

    Parameters
    ----------
    name
        fig1, fig3, fig4a and so on, table-params, or `all` that have runs.
    folder
        Where `mixerscope reproduce` keeps results; the drawing goes into the figure's own folder there.
    """
    from mixerscope.experiments.paper.render import load_results, missing, write_figure
    from mixerscope.experiments.paper.sweeps import figure_names, load_figure

    if name != "all":
        results().print(f"{name} is in {write_figure(name, folder)}", markup=False, soft_wrap=True)
        return 0
    found = load_results(folder)
    for each in map(load_figure, figure_names()):
        if missing(each, found) != "everything":
            results().print(f"{each.name} is in {write_figure(each.name, folder, found)}", markup=False, soft_wrap=True)
    return 0
