"""`mixerscope check`: does a mixer or a task keep the promises that everything else here rests on?"""

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from mixerscope.cli.console import plain_table, results
from mixerscope.errors import UnknownName, UserError


def check(
    name: str,
    /,
    *,
    width: int | None = None,
    length: int | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> int:
    """Try every property a mixer or a task must have; exits with 1 when it is refused, naming the failed tests.

    Parameters
    ----------
    name
        The name of a mixer or a task, `atr:paper` for a preset, `pkg.module:Class` or `path/file.py:Class`.
    width
        Width at which a mixer is tried; 16 where none is given.
    length
        One more length of documents at which a mixer is tried, beside those up to 129.
    set_
        option=value, such as relative=rope or num_pairs=4; may be given several times.
    """
    from mixerscope.check import check_mixer, check_task
    from mixerscope.registry import TASKS
    from mixerscope.spec import parse_settings

    console = results()
    settings = parse_settings(set_)
    kind, known = _meant(name)
    if kind == TASKS.kind:
        if width is not None or length is not None:
            raise UserError(f"{name} is a task, which has no width and a length of its own")
        found = check_task(known, fields=settings)
    else:
        found = check_mixer(known, width=16 if width is None else width, options=settings, length=length)
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


def _meant(name: str) -> tuple[str, str]:
    """What kind of component a person named, and the name under which it is known."""
    from mixerscope.registry import MIXERS, TASKS, registry_of

    kinds = [(registry.kind, name) for registry in (MIXERS, TASKS) if name in registry]
    if len(kinds) == 2:
        raise UserError(f"{name!r} is both a mixer and a task; name the class by its file")
    if not kinds and name.partition(":")[0] in TASKS:
        kinds = [(TASKS.kind, name)]
    if not kinds and ":" not in name:
        raise UnknownName("mixer or task", name, [*MIXERS.names(), *TASKS.names()])
    if not kinds:
        registry = registry_of(name)
        if registry not in (MIXERS, TASKS):
            raise UserError(f"{name} is a kind of {registry.kind}; mixers and tasks can be checked")
        kinds = [(registry.kind, registry.adopt(name))]
    return kinds[0]
