"""`mixerscope sample`: look at a task's documents, or pipe them elsewhere."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter

from mixerscope.cli.console import results
from mixerscope.errors import UserError


def sample(
    task: str,
    /,
    *,
    n: Annotated[int, Parameter(name=("--n", "-n"))] = 3,
    seed: int = 0,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Documents of a task, with the roles of their tokens.

    Parameters
    ----------
    task
        `mixerscope ls tasks`; `atr:paper` for a preset.
    n
        How many.
    seed
        The same seed gives the same documents.
    set_
        field=value, such as num_pairs=4; may be given several times. `mixerscope show TASK` lists the fields.
    json_
        One JSON object a line: tokens, symbols, targets by position, roles, labels, answer.
    """
    from mixerscope.cli.documents import document_text, legend
    from mixerscope.cli.settings import parse_task
    from mixerscope.randomness import stream
    from mixerscope.spec import parse_settings
    from mixerscope.tasks.render import document

    if n < 1:
        raise UserError(f"--n = {n} should be at least 1")
    made = parse_task(task, {path.removeprefix("task."): value for path, value in parse_settings(set_).items()})
    batch = made.sample(n, stream(seed, "sample"))
    if json_:
        for index in range(n):
            sys.stdout.write(json.dumps(document(made, batch, index)) + "\n")
        return 0
    console = results()
    console.print(legend(batch))
    for index in range(n):
        console.print()
        console.print(document_text(made, batch, index))
    return 0
