"""`mixerscope check`: does a mixer keep the promises that everything else here rests on?"""

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from mixerscope.cli.console import plain_table, results


def check(
    name: str,
    /,
    *,
    width: int = 16,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> int:
    """Try every property a mixer must have; exits with 1 when it is refused, naming the failed tests.

    Parameters
    ----------
    name
        A mixer's name, `pkg.module:Class` or `path/file.py:Class`.
    width
        Width at which it is tried.
    set_
        option=value, such as relative=rope; may be given several times.
    """
    from mixerscope.check import check_mixer
    from mixerscope.spec import parse_settings

    console = results()
    found = check_mixer(name, width=width, options=parse_settings(set_))
    table = plain_table("test", "", "what was found")
    for result in found:
        outcome = Text("passed", "green") if result.passed else Text("failed", "red")
        table.add_row(result.name, outcome, Text(result.detail))
    console.print(table)
    failed = [result.name for result in found if not result.passed]
    if failed:
        console.print(f"{name} is refused: {', '.join(failed)}", markup=False, soft_wrap=True)
        return 1
    console.print(f"{name} passed all {len(found)} tests", markup=False, soft_wrap=True)
    return 0
