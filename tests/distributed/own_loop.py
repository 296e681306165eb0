"""Runs `examples/own_loop_ranks.py` as it is and keeps what it trained: `own_loop.py FOLDER STORE [EPOCHS]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import torch

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "own_loop_ranks.py"


def main(folder: str) -> None:
    sys.argv = [str(PROGRAM), *sys.argv[2:]]
    told = runpy.run_path(str(PROGRAM), run_name="__main__")
    weights = torch.nn.utils.parameters_to_vector(told["model"].parameters()).detach().numpy()
    np.save(Path(folder) / f"{told['comm'].rank}.npy", weights)


if __name__ == "__main__":
    main(sys.argv[1])
