"""`mixerscope finetune`: a pretrained model on a task that tracks a state, beside its shape with random weights."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mixerscope.cli.console import remarks, results
from mixerscope.errors import FINE


def finetune(
    *,
    model: Path,
    task: str,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path = Path("runs/finetune"),
    steps: int = 3000,
    batch_size: int = 64,
    lr: float = 2e-5,
    seed: int = 0,
    documents: int = 2000,
    device: Literal["cpu", "cuda"] = "cpu",
) -> int:
    """Fine-tune a pretrained model, and one of random weights, to track a state; then probe, erase, recover.

    Parameters
    ----------
    model
        A folder with config.json and model.safetensors, as transformers saves it; nothing is fetched.
    task
        A task that tracks a state, such as dyck, parity or group, or `dyck:after-close` for a preset of it.
    set_
        path=value of the task, such as length=12; may be given several times.
    out
        Results get a folder of their own in here; what is there is not made again.
    steps
        Updates of the weights.
    batch_size
        Documents in one of them.
    lr
        The largest learning rate.
    seed
        Of documents, and of the random weights.
    documents
        That probes are fitted on.
    device
        Where models are trained and looked at.
    """
    from mixerscope.experiments.finetune.command import finetune_both
    from mixerscope.experiments.finetune.tuning import Settings
    from mixerscope.machine import Machine

    settings = Settings(steps=steps, batch_size=batch_size, lr=lr, seed=seed, documents=documents)

    def tell(what: str, done: int, total: int, note: str) -> None:
        remarks().print(f"{what} {done}/{total} {note}".rstrip(), markup=False, soft_wrap=True)

    folder, lines = finetune_both(model, task, set_ or [], settings, Machine(device), out, tell)
    for line in lines:
        results().print(line, markup=False, soft_wrap=True)
    results().print(f"results are in {folder}", markup=False, soft_wrap=True)
    return FINE
