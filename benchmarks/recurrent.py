"""Steps a second of LSTM and GRU cohorts on a GPU: with their kernels, and with plain operations, in the same run.

    python -m benchmarks.recurrent

Nine models of four layers and width 64 (and 128) on documents of 39 tokens. Writes benchmarks/results/recurrent.json.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.training import RESULTS, make_stack
from mixerscope import kernels
from mixerscope.machine import Machine, matmuls
from mixerscope.spec import RunSpec
from mixerscope.training.stack import UNROLLED

LAYERS, MODELS, PAIRS = 4, 9, 18


def recurrent_spec(architecture: str, width: int, precision: str) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {"name": "ar", "num_pairs": PAIRS, "num_keys": 64, "num_values": 64},
            "model": {"architecture": architecture, "width": width, "layers": LAYERS, "max_length": 64},
            "train": {"documents": 32 * 200, "precision": precision},
        }
    )


def steps_per_s(spec: RunSpec, machine: Machine, seconds: float) -> float:
    with matmuls(spec.train.precision), kernels.switched(machine.kernels):
        stack = make_stack(spec, MODELS, machine)
        stack.build()
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            stack.advance(UNROLLED)
            torch.cuda.synchronize()
            steps += UNROLLED
        return steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", nargs="+", default=("lstm", "gru"))
    parser.add_argument("--widths", nargs="+", type=int, default=(64, 128))
    parser.add_argument("--precision", choices=("float32", "tf32"), default="tf32")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "precision": options.precision,
        "rows": rows,
    }
    for architecture in options.architectures:
        for width in options.widths:
            spec = recurrent_spec(architecture, width, options.precision)
            rate = {
                name: steps_per_s(spec, Machine("cuda", kernels=name, compile=True), options.seconds)
                for name in ("plain", "auto")
            }
            row = {"architecture": architecture, "width": width, "layers": LAYERS, "models": MODELS}
            row |= {"plain_steps_per_s": rate["plain"], "steps_per_s": rate["auto"]}
            rows.append(row | {"ratio": rate["auto"] / rate["plain"]})
            print(json.dumps(rows[-1]), flush=True)
            # At once: a call that is cut short loses one row.
            whole = result | {"kernels": kernels.used()}
            (options.out / "recurrent.json").write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()
