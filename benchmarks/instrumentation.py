"""What it costs that every model can be opened: the forward pass with its sites, none of them tapped, over the same
pass with every site replaced by a plain function. Both run in turns, each round gives one ratio of CPU time (waiting
for a busy machine is not counted), and the median over rounds is reported with its quartiles.

    python -m benchmarks.instrumentation
"""

import json
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from mixerscope.model import Model, build_model
from mixerscope.sites import Site, named_sites
from mixerscope.spec import ModelSpec

ARCHITECTURES = ("attention", "base_conv", "based", "deltanet", "h3", "hyena", "mamba")
WIDTH, LAYERS, DOCUMENTS, LENGTH, VOCABULARY = 64, 2, 32, 37, 8196
ROUNDS = 400
RESULT = Path(__file__).parent / "results" / "instrumentation.json"


def same(x: Tensor) -> Tensor:
    return x


def without_sites(model: nn.Module) -> None:
    """Puts a plain function where each site was, which is as bare as the same code can run."""
    for module in model.modules():
        for name in [name for name, child in module.named_children() if isinstance(child, Site)]:
            delattr(module, name)
            setattr(module, name, same)


def seconds(model: Model, tokens: Tensor, read: Tensor) -> float:
    start = time.thread_time()
    model(tokens, read)
    return time.thread_time() - start


@torch.no_grad()
def measure(architecture: str) -> dict[str, float | int | str]:
    spec = ModelSpec(architecture=architecture, width=WIDTH, layers=LAYERS)
    opened, bare = build_model(spec, VOCABULARY, seed=0), build_model(spec, VOCABULARY, seed=0)
    without_sites(bare)
    tokens = torch.randint(VOCABULARY, (DOCUMENTS, LENGTH), generator=torch.Generator().manual_seed(0))
    read = torch.full((DOCUMENTS, 1), LENGTH - 3)
    assert torch.equal(opened(tokens, read), bare(tokens, read)), "the two models must compute the same bits"
    pairs: list[tuple[float, float]] = []
    for round_ in range(ROUNDS + 5):
        # Turn about, so that neither always runs on the warmer cache.
        first, second = (opened, bare) if round_ % 2 else (bare, opened)
        a, b = seconds(first, tokens, read), seconds(second, tokens, read)
        pairs.append((a, b) if round_ % 2 else (b, a))
    pairs = pairs[5:]
    low, middle, high = statistics.quantiles([a / b for a, b in pairs], n=4)
    return {
        "architecture": architecture,
        "sites": len(named_sites(opened)),
        "bare_ms": round(1e3 * statistics.median(b for _, b in pairs), 3),
        "ratio": round(middle, 4),
        "ratio_quartiles": f"{low:.4f} .. {high:.4f}",
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = [measure(architecture) for architecture in ARCHITECTURES]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    RESULT.parent.mkdir(exist_ok=True)
    setting = {"width": WIDTH, "layers": LAYERS, "documents": DOCUMENTS, "length": LENGTH, "rounds": ROUNDS}
    RESULT.write_text(
        json.dumps({"what": "instrumented / bare", "device": "cpu", **setting, "rows": rows}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
