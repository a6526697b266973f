"""How long `mixerscope ls mixers` takes, over how long `import torch` takes: both as whole processes, in turns, in CPU
time (waiting for a busy machine is not counted). The promise is at most a quarter.

    python -m benchmarks.ls_startup
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS = 15
RESULT = Path(__file__).parent / "results" / "ls_startup.json"
LIST = [sys.executable, "-m", "mixerscope", "ls", "mixers"]
TORCH = [sys.executable, "-c", "import torch"]


def seconds(command: list[str]) -> float:
    """CPU time of one process, start to end."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    for command in (LIST, TORCH):
        seconds(command)  # the first of each reads from a cold disk
    pairs = [(seconds(LIST), seconds(TORCH)) for _ in range(ROUNDS)]
    low, middle, high = statistics.quantiles([listing / torch for listing, torch in pairs], n=4)
    row = {
        "what": "mixerscope ls mixers / import torch",
        "rounds": ROUNDS,
        "ls_seconds": round(statistics.median(listing for listing, _ in pairs), 3),
        "torch_seconds": round(statistics.median(torch for _, torch in pairs), 3),
        "ratio": round(middle, 4),
        "ratio_quartiles": f"{low:.4f} .. {high:.4f}",
    }
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    RESULT.write_text(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
