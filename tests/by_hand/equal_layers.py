"""`spsample.nn` beside PyG's layers on all rows, on random batches: values and gradients at the seeds, float64.

    python tests/by_hand/equal_layers.py --batches 2000

It prints the largest difference of each layer, and ends with status 1 where one is above 1e-11.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "nn"))

from layer_cases import CASES, worst_of

MOST = 1e-11


def main(batches: Annotated[int, typer.Option(min=1)] = 2000, seed: int = 1000) -> None:
    """Compare all cases on so many batches together."""
    torch.set_num_threads(1)
    each, worst = -(-batches // len(CASES)), {}
    for number, case in enumerate(CASES):
        worst[str(case)] = worst_of(case, seed + number, each)
        print(f"{worst[str(case)]:.1e}  {each} batches  {case}", flush=True)
    print(f"{each * len(CASES)} batches, largest difference {max(worst.values()):.1e}")
    raise typer.Exit(int(max(worst.values()) > MOST))


if __name__ == "__main__":
    typer.run(main)
