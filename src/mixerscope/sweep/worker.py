"""`python -m mixerscope.sweep.worker`: a sweep where only torch, numpy, pydantic and safetensors are installed.

The same as `mixerscope sweep`, in plain lines: for cluster jobs and for GPUs that are lent for minutes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mixerscope.errors import MixerscopeError, complain
from mixerscope.sweep.call import SOURCE, Call, carry_out


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sweep and returns its exit code: 0 fine, 1 some cohort failed, 2 wrong input, 130 interrupted."""
    options = vars(_parser().parse_args(argv))
    try:
        return carry_out(options.pop("FILE"), Call(**options))
    except (MixerscopeError, KeyboardInterrupt) as error:
        return complain(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mixerscope.sweep.worker",
        description=__doc__,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("FILE", help=SOURCE)
    kinds = get_type_hints(Call)
    for option in fields(Call):
        words = f"--{option.name.replace('_', '-')}"
        parser.add_argument(words, help=option.metadata["help"], **_read_as(kinds[option.name]))
    return parser


def _read_as(kind: Any) -> dict[str, Any]:
    """How argparse reads an option of this type: a switch, one of a few words, a list, or one value."""
    if kind is bool:
        return {"action": "store_true"}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    kind = next((one for one in get_args(kind) if one is not type(None)), kind)  # without `| None`
    return {"action": "append", "type": get_args(kind)[0]} if get_origin(kind) is list else {"type": kind}


if __name__ == "__main__":
    sys.exit(main())
