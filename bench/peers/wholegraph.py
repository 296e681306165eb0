"""WholeGraph (pylibwholegraph) on one GPU: its sampling without replacement and `append_unique`, batch by batch.

`multilayer_sample_without_replacement` is its own loop over the layers: a sample of one hop, then the unique vertices
with the targets first. It lists fanouts as spsample does, nearest to the seeds first. Memory for results comes from
torch, by callbacks in Python, or in C++ where its extension for torch can be compiled (a compiler, Ninja and the CUDA
toolkit): `extension` among the figures says which.
"""

from __future__ import annotations

# First: WholeGraph's libraries need those of CUDA that torch brings and loads.
import torch  # isort: split

import contextlib
import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import libwholegraph
import numpy as np
import pylibwholegraph.torch as wholegraph

from peers.cuda_timing import timed
from peers.task import Figures, Inputs, Options, Task, Work

PACKAGES = ("pylibwholegraph", "torch")

MEMORY = ("continuous", "cuda")
"""One range of addresses in the GPU's memory, which is the fastest for one process."""


@cache
def _communicator() -> Any:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29577")
    wholegraph.init_torch_env(0, 1, 0, 1, wm_log_level="error")
    return wholegraph.get_global_communicator()


@cache
def _has_extension() -> bool:
    """Compile and load the C++ callbacks; False where that fails."""
    if os.environ.get("SPSAMPLE_BENCH_WHOLEGRAPH_EXTENSION", "1") == "0":
        return False
    folder = Path(libwholegraph.__file__).parent
    for name, part in (("CPLUS_INCLUDE_PATH", "include"), ("LIBRARY_PATH", "lib64")):
        os.environ[name] = os.pathsep.join(filter(None, (str(folder / part), os.environ.get(name))))
    with contextlib.suppress(Exception):  # whatever a compiler lacks
        wholegraph.compile_cpp_extension()
        return True
    return False


def _stored(values: np.ndarray) -> Any:
    """A WholeMemory tensor of these values."""
    host = torch.from_numpy(np.ascontiguousarray(values))
    made = wholegraph.create_wholememory_tensor(_communicator(), *MEMORY, [len(host)], host.dtype, None)
    local, _ = made.get_local_tensor()
    local.copy_(host)
    return made


@cache
def _graph(inputs: Inputs, form: str) -> Any:
    graph = wholegraph.GraphStructure()
    graph.set_csr_graph(_stored(inputs.indptr), _stored(inputs.indices))
    if form == "exponential":
        weights = np.random.default_rng(2).standard_exponential(len(inputs.indices), np.float32)
        graph.set_edge_attribute("weight", _stored(weights))
    return graph


def batches(inputs: Inputs, options: Options) -> Work:
    """All batches, one after the other; seeds lie on the device."""
    torch.cuda.init()
    extension = _has_extension()
    form = options.get("graph", "unweighted")
    graph = _graph(inputs, form)
    weight = "weight" if form == "exponential" else None
    seeds = torch.from_numpy(inputs.seeds(options).astype(inputs.indices.dtype)).cuda()
    sample = partial(graph.multilayer_sample_without_replacement, max_neighbors=options["fanouts"], weight_name=weight)

    def work() -> Figures:
        edges = 0
        for batch in seeds:
            _, _, _, columns = sample(batch)
            edges += sum(len(layer) for layer in columns)
        return {"batches": len(seeds), "edges": edges, "extension": len(seeds) * float(extension)}

    return timed(work, partial(torch.cuda.Event, enable_timing=True))


TASKS: dict[str, Task] = {"batches": batches}
