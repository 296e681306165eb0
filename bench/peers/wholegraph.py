"""WholeGraph (pylibwholegraph): sampling without replacement and `append_unique`, batch by batch, on one GPU.

Memory for results comes from torch, by callbacks in Python, or in C++ where its extension for torch can be compiled (a
compiler, Ninja and the CUDA toolkit): the figure ``extension`` says which.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import gpu
from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs


def batches(inputs: Inputs) -> Work:
    """Its own loop over the layers, which lists fanouts nearest to the seeds first; seeds lie on the device."""
    where, sampling = gpu.torch_gpu(), gpu.Sampling.of(inputs)
    sampling.require("sage", "weighted")
    import torch

    wholegraph, extension = _ready()
    graph = wholegraph.GraphStructure()
    graph.set_csr_graph(_stored(wholegraph, inputs.indptr), _stored(wholegraph, inputs.indices))
    weights = sampling.weights(inputs)
    if weights is not None:
        graph.set_edge_attribute("weight", _stored(wholegraph, weights))
    seeds = torch.from_numpy(inputs.seeds.astype(inputs.indices.dtype)).to(where)
    options = {"max_neighbors": sampling.fanouts, "weight_name": None if weights is None else "weight"}
    sample = partial(graph.multilayer_sample_without_replacement, **options)

    def work() -> Figures:
        edges = sum(len(columns) for batch in seeds for columns in sample(batch)[3])
        return {"batches": len(seeds), "edges": edges, "extension": float(extension)}

    return gpu.timed(work)


def _stored(wholegraph: Any, values: np.ndarray) -> Any:
    """These values in one range of addresses of the GPU's memory, which is the fastest for one process."""
    import torch

    host, group = torch.from_numpy(np.ascontiguousarray(values)), wholegraph.get_global_communicator()
    made = wholegraph.create_wholememory_tensor(group, "continuous", "cuda", [len(host)], host.dtype, None)
    made.get_local_tensor()[0].copy_(host)
    return made


@cache
def _ready() -> tuple[Any, bool]:
    """The package, initialised once in a process, and whether its C++ callbacks could be compiled and loaded."""
    import libwholegraph
    import pylibwholegraph.torch as wholegraph
    import torch

    torch.cuda.init()
    wholegraph.init_torch_env(0, 1, 0, 1, wm_log_level="error")
    folder = Path(libwholegraph.__file__).parent
    for name, part in (("CPLUS_INCLUDE_PATH", "include"), ("LIBRARY_PATH", "lib64")):
        os.environ[name] = os.pathsep.join(filter(None, (str(folder / part), os.environ.get(name))))
    with contextlib.suppress(Exception):  # whatever a compiler lacks
        wholegraph.compile_cpp_extension()
        return wholegraph, True
    return wholegraph, False


PEER = Peer(
    "WholeGraph",
    ("torch", "pylibwholegraph"),  # torch first: it loads the libraries of CUDA that WholeGraph needs
    {"gpu-bulks": (Side("WholeGraph", batches),)},
)
