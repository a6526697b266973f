"""Every error Mixerscope raises on purpose. A `UserError` is the user's to fix: one sentence, exit code 2."""

import difflib
import signal
import sys
from collections.abc import Iterable

FINE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of commands."""
LONGEST = 2000
"""Characters of a complaint: it may quote what somebody else wrote."""
MOST_NAMED = 40
"""Dotted names in one sentence; of more only how they begin."""


class MixerscopeError(Exception):
    """Base of all errors raised on purpose."""


class UserError(MixerscopeError, ValueError):
    """The input is wrong; the message says what was expected."""


class UnknownName(UserError):
    """A name that no registry, spec or model knows."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        self.known = sorted({*known})
        local = name.startswith("local/") and name not in self.known
        help_ = (
            "; it is a class of somebody's own: name its file, as in --use file.py:Class, or ms.use('file.py:Class')"
        )
        super().__init__(f"no {what} named {name!r}{help_ if local else nearest(name, self.known)}")


class CorruptFile(MixerscopeError):
    """A file whose bytes are not the ones that were written."""


class CannotWrite(MixerscopeError):
    """The disk is full, or a quota is, or a folder cannot be written to."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(f"cannot write {path}: {error.strerror or error}")


class Held(UserError):
    """Another process is making this run."""

    def __init__(self, name: str, holder: str, touched: float = 0.0) -> None:
        self.touched = touched
        """When the holder last showed that it is alive, by the file system's clock."""
        super().__init__(f"{name} is being made by {holder}")


class Interrupted(MixerscopeError):
    """A signal asked the process to end."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        super().__init__(f"interrupted by {number.name}; finished runs are kept, and the next call goes on from here")


class SiteNeverFired(MixerscopeError):
    """A site was asked for and the forward pass never went through it."""


class SiteFiredAgain(MixerscopeError):
    """A site fired more than once in one forward pass, so 'its' activation is not one value."""


class SelfTestFailed(MixerscopeError):
    """The checks that precede every intervention grid did not hold for this model."""


def complain(error: MixerscopeError | KeyboardInterrupt) -> int:
    """Says in one line on stderr why a command ends, whatever the message looks like; returns its exit code."""
    remark("interrupted; finished runs are kept" if isinstance(error, KeyboardInterrupt) else str(error))
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Interrupted):
        return 128 + error.number
    return WRONG_INPUT if isinstance(error, UserError) else FAILED


def remark(text: str) -> None:
    """Says something in one line on stderr that nobody asked for and somebody should know."""
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"
    sys.stderr.write(f"mixerscope: {printable(text)}\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Text for a terminal: what would move the cursor or change colours is spelled out; ends of lines stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def nearest(name: str, known: Iterable[str]) -> str:
    """The tail of an error sentence: the closest known names, or all of them when nothing is close."""
    known = sorted(known)
    ending = [other for other in known if other.endswith(f".{name}")]
    if ending:
        return f"; did you mean {' or '.join(repr(c) for c in ending[:3])}?"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6) or _close_in_the_end(name, known)
    if close:
        return f"; did you mean {' or '.join(repr(c) for c in close)}?"
    begin = {other.partition(".")[0] for other in known}
    if len(known) > MOST_NAMED and len(begin) < len(known):
        return f"; known ones begin with {', '.join(sorted(begin))}, such as {next(one for one in known if '.' in one)}"
    return f"; known: {', '.join(known)}" if known else ""


def _close_in_the_end(name: str, known: list[str]) -> list[str]:
    """Dotted names of which the last part is like it."""
    ends = {other.rpartition(".")[2] for other in known}
    close = difflib.get_close_matches(name, sorted(ends), n=1, cutoff=0.75)
    return [other for other in known if other.rpartition(".")[2] in close][:3]
