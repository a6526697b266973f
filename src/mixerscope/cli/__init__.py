"""The command line. One file per verb, imported when it is used; torch is imported only by verbs that compute.

Exit codes: 0 fine, 1 a run failed, 2 the input is wrong. Results go to stdout, progress and complaints to stderr.
"""

import io
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnknownCommandError, UnusedCliTokensError

from mixerscope import __version__
from mixerscope.errors import FINE, MixerscopeError, UnknownName, UserError, complain

BROKEN_PIPE = 141

# Target, summary, example; said here so that `mixerscope --help` need not import the verbs.
VERBS = {
    "demo": (
        "demo:demo",
        "Train three architectures on a small recall task, patch them, write a report.",
        "mixerscope demo",
    ),
    "ls": ("ls:ls", "List mixers, architectures, tasks or finished runs.", "mixerscope ls tasks"),
    "show": (
        "show:show",
        "Everything there is to know about a mixer, an architecture or a task.",
        "mixerscope show mamba --width 128",
    ),
    "sample": (
        "sample:sample",
        "Documents of a task, with the roles of their tokens.",
        "mixerscope sample ar --n 2 --set num_pairs=4",
    ),
    "new": (
        "new:new",
        "Write something to start from: a spec file, or a package with a mixer, a task or a stage.",
        "mixerscope new mixer my-mixer",
    ),
    "run": (
        "run:run",
        "Train one model, intervene on it and name its mechanism.",
        "mixerscope run mamba.json --set train.lr=3e-3 --set seed=1",
    ),
    "sweep": (
        "sweep:sweep",
        "Train many models at once: every combination of what a file varies.",
        "mixerscope sweep figure3 --device cuda --stop-after 480",
    ),
    "reproduce": (
        "reproduce:reproduce",
        "Run an experiment of the paper by the name of its figure.",
        "mixerscope reproduce fig3 --dry-run --device cuda",
    ),
    "figure": (
        "figure:figure",
        "Draw a figure of the paper again from kept results.",
        "mixerscope figure fig3 reproduction",
    ),
    "finetune": (
        "finetune:finetune",
        "Fine-tune a pretrained model on a task that tracks a state, beside its shape with random weights.",
        "mixerscope finetune --model pythia-160m --task dyck",
    ),
    "status": ("status:status", "How far the runs in a folder are, and who is making them.", "mixerscope status runs"),
    "verify": ("verify:verify", "Check every file of finished runs against its hash.", "mixerscope verify runs"),
    "gc": ("gc:gc", "Remove what killed processes left behind; finished runs are not touched.", "mixerscope gc runs"),
    "judge": (
        "judge:judge",
        "Name the mechanisms of finished runs again, from what was stored, with other rules if you like.",
        "mixerscope judge runs --set rules.carries=0.7",
    ),
    "pack": ("pack:pack", "Finished runs in one file, without weights.", "mixerscope pack runs best.pack --best"),
    "unpack": ("unpack:unpack", "Run folders out of a packed file.", "mixerscope unpack figure3.pack --out runs"),
    "report": ("report:report", "One HTML page over the finished runs in a folder.", "mixerscope report runs"),
    "serve": (
        "serve:serve",
        "The same page over a folder that is still being written, refreshed while a sweep runs.",
        "mixerscope serve runs",
    ),
    "collect": (
        "collect:collect",
        "One Parquet file of every table of every run in a folder, or in a pack.",
        "mixerscope collect runs --out runs.parquet",
    ),
    "export": (
        "export:export",
        "A run as a folder for the Hugging Face Hub, or results as records of Every Eval Ever.",
        "mixerscope export runs/demo/deltanet-0123456789ab --to deltanet-on-recall",
    ),
    "track": (
        "track:track",
        "Learning curves, scores and verdicts of finished runs for TensorBoard, W&B (offline) or Trackio.",
        "mixerscope track runs --to tensorboard",
    ),
    "check": (
        "check:check",
        "Try a mixer or a task against every property that the rest relies on.",
        "mixerscope check my_lab/mixer.py:MyMixer",
    ),
    "doctor": ("doctor:doctor", "What works on this machine and what does not.", "mixerscope doctor"),
}


def make_app() -> App:
    app = App(
        name="mixerscope",
        help="Which mechanism did this sequence-model architecture learn? Start with `mixerscope demo`.",
        version=__version__,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for verb, (target, summary, example) in VERBS.items():
        app.command(f"mixerscope.cli.{target}", name=verb, help=f"{summary}\n\nExample: `{example}`")
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    tokens = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII only gets what it can show
    try:
        code = make_app()(tokens, exit_on_error=False, print_error=False, verbose=False)
        return code if isinstance(code, int) else FINE
    except UnknownCommandError as error:
        return complain(_unknown_command(error, tokens))
    except UnusedCliTokensError as error:
        verb, unused = " ".join(error.command_chain or ()), (error.unused_tokens or tokens)[0]
        return complain(UserError(f"{verb} does not take {unused!r}; `mixerscope {verb} --help` says what it takes"))
    except CycloptsError as error:
        return complain(UserError(str(error)))
    except (MixerscopeError, KeyboardInterrupt) as error:
        return complain(error)
    except BrokenPipeError:
        # The reader (`| head`) has gone; what Python would still flush at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _unknown_command(error: UnknownCommandError, tokens: list[str]) -> UserError:
    app = error.app
    known = [name for name in app if not name.startswith("-")] if app is not None else list(VERBS)
    return UnknownName("command", (error.unused_tokens or tokens)[0], known)
