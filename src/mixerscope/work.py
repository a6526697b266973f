"""`python -m mixerscope.work ITEM.json`: makes what a work item describes, as far as no other process is making it.

The one command behind every way of running a sweep: processes of one machine, tasks of a cluster, jobs of a queue. It
runs where torch, numpy, pydantic and safetensors are installed.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mixerscope.errors import FAILED, FINE, MixerscopeError, complain
from mixerscope.signals import ended_when, heeded, parent_gone


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 fine, 1 some cohort failed, 2 wrong input, 128 + n ended by signal n."""
    parser = argparse.ArgumentParser(prog="python -m mixerscope.work", description=__doc__)
    parser.add_argument("ITEM", type=Path, help="a JSON file that `mixerscope sweep` wrote")
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started this one does")
    asked = parser.parse_args(argv)
    try:
        alone = parent_gone() if asked.with_parent else bool
        return work(asked.ITEM, alone)
    except (MixerscopeError, KeyboardInterrupt) as error:
        return complain(error)


def work(path: Path, gone: Callable[[], bool] = bool) -> int:
    """Makes an item, and gives the exit code. Ends early, with a checkpoint, if the item is taken away meanwhile."""
    from mixerscope.sweep.execute import execute
    from mixerscope.sweep.items import read_item
    from mixerscope.sweep.plan import make_plan
    from mixerscope.sweep.text import Lines

    item = read_item(path)
    root, machine = Path(item.root), item.on()
    with heeded(), ended_when(lambda: gone() or not path.exists()):
        sizes = {"in_flight": item.in_flight, "largest": item.largest}
        plan = make_plan(item.specs(), root, machine, **sizes, skip=item.skip, shard=item.shard)
        outcome = execute(
            plan,
            root,
            machine,
            stop_after=item.stop_after,
            keep_weights=item.keep_weights,
            listener=Lines(),
            call=item.call,
            leave=item.leave,
        )
    return FAILED if outcome.failed or plan.damaged else FINE


if __name__ == "__main__":
    sys.exit(main())
