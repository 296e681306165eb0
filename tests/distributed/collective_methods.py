"""Every collective method of a graph on ranks, against the graph on one process: a table of methods.

`python tests/distributed/collective_methods.py [METHOD...]` compares all of them over all algorithms, grids, graphs
and layouts; test_collective_methods.py every pair of them.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from itertools import pairwise, product

import numpy as np
from partitioned_cases import SAMPLERS, batches_of, divisors

import spsample as sp
from spsample.backends import Draw
from spsample.comm import run_threads
from spsample.data import load_dataset
from spsample.distributed import ProcessGrid, ReplicatedGraph
from spsample.distributed.algorithms import ALGORITHMS as BY_NAME
from spsample.distributed.cooperative import owners_of, share_out
from spsample.errors import SpSampleError
from spsample.features import PartitionedFeatures, score
from spsample.sparse import RowSelector, column_norms, derive_key, normalize_rows, square
from spsample.sparse.keys import SAMPLING

ALGORITHMS = (*BY_NAME, "auto", "replicated")
GRIDS = [(p, c) for p in range(1, 9) for c in divisors(p)]
LAYOUTS = ("ranges", "parts and hubs")
SCORES = ("out-degree", "random", "presc", "replay", "inclusion", "posterior", "reverse-pagerank")
OPTIONS = {"presc": {"epochs": 2}, "replay": {"epochs": range(2)}}
NUM_BATCHES = 11
TIMEOUT = 60


# ------------------------------------------------------------------------------------------------------------ graphs


def weighted(graph):
    weights = np.random.default_rng(3).exponential(1.0, graph.num_edges).astype(np.float32)
    weights[::17] = 0
    return sp.Graph(graph.indptr, graph.indices, weights)


def star():
    """Vertex 5 is next to the first 60 of 80 vertices, which are next to it alone; the others have no edges."""
    ends = np.stack([np.arange(60), np.full(60, 5)])
    return sp.Graph.from_edge_index(np.concatenate([ends, ends[::-1]], axis=1), num_nodes=80)


def empty_rows():
    """Of 97 rows the 4 last ones have entries: most ranges of vertices have none."""
    sources = np.random.default_rng(1).integers(0, 97, 80)
    return sp.Graph.from_edge_index(np.stack([sources, 93 + np.arange(80) % 4]), num_nodes=97)


@cache
def graphs():
    skewed = load_dataset("rmat:8,6").graph
    return {
        "rmat": skewed,
        "rmat, rows normalised": skewed.normalized("row"),
        "rmat, weights": weighted(skewed),
        "star": star(),
        "star, weights": weighted(star()),
        "empty rows, weights": weighted(empty_rows()),
        "no edges": sp.Graph(np.zeros(11, np.int64), np.zeros(0, np.int32)),
    }


def on_ranks(comm, graph, c, algorithm, layout="ranges"):
    grid = ProcessGrid(comm, c)
    if algorithm == "replicated":
        return ReplicatedGraph(graph, comm), grid
    options = {}
    if layout == "parts and hubs":
        parts = np.random.default_rng(0).integers(0, grid.num_blocks, graph.num_nodes)
        options = {"partition": parts, "replicate_hubs": 500}
    return sp.PartitionedGraph.from_graph(graph, grid, algorithm=algorithm, **options), grid


# ----------------------------------------------------------------------------------------------------------- methods
# Each takes a graph and the grid, None on one process, and returns arrays by name: all that this rank has of them.


def row_sums(graph, grid):
    return {"": [graph.row_sums()]}


def row_sums_of_a_duplicate(graph, grid):
    twin = graph.duplicate()
    sums = twin.row_sums()
    twin.close()
    return {"": [sums]}


def row_sums_normalized(graph, grid):
    return {} if graph.weighting == "weighted" else {"": [graph.normalized("row").row_sums()]}


def block_row(graph, grid):
    A = graph.block_row()
    vertices = np.arange(graph.num_nodes) if A.ids is None else A.ids
    if grid is not None and graph.num_block_rows > 1:
        np.testing.assert_array_equal(graph.block_rows_of(np.arange(graph.num_nodes))[vertices], grid.row)
    rows = dict(zip(vertices.tolist(), pairwise(A.indptr.tolist()), strict=True))
    return {v: [A.indices[lo:hi], None if A.data is None else A.data[lo:hi]] for v, (lo, hi) in rows.items()}


def add_block_rows(graph, grid):
    return {"": [graph.add_block_rows(np.bincount(graph.block_row().indices, minlength=graph.num_nodes))]}


def facts(graph, grid):
    return {"": [np.array([graph.num_nodes, graph.num_edges]), graph.weighting, str(graph.index_dtype), graph.digest]}


def score_of(name, graph, grid):
    seeds, options = np.arange(0, graph.num_nodes, 3), OPTIONS.get(name, {})
    return {"": [score(name, graph, seeds, one, 8, **options) for one in (sp.GraphSAGE([3, 2]), sp.LADIES([9, 9]))]}


def bulk(sampler, graph, grid):
    seeds = np.random.default_rng(1).integers(0, graph.num_nodes, 100)
    return batches_of(sp.bulk_sample(graph, seeds, sampler, batch_size=9, random_seed=5, epoch=2, edge_ids=True))


def shared_out(graph, grid):
    """The vertices of batches of which each rank has those that it owns."""
    mine = sp.bulk_sample(graph, np.arange(min(50, graph.num_nodes)), sp.GraphSAGE([3, 2]), batch_size=8)
    batches = mine if grid is None else share_out(mine, owners_of(graph), grid.comm)
    return {(batch.batch_id, v): [] for batch in batches for v in batch.src_nodes.tolist()}


def loader(graph, grid):
    """With features in block rows of the same grid."""
    x = np.random.default_rng(4).random((graph.num_nodes, 3), np.float32)
    source = x if grid is None else PartitionedFeatures.of(x, grid)
    options = {"batch_size": 7, "bulk_size": 16, "features": source, "random_seed": 3}
    batches = list(sp.BulkLoader(graph, np.arange(0, graph.num_nodes, 2), sp.GraphSAGE([3, 2]), **options))
    return {batch.batch_id: [batch.seeds, batch.src_nodes, batch.x] for batch in batches if len(batch.seeds)}


def features(graph, grid):
    """Each rank asks for the rows in an order of its own."""
    x = np.random.default_rng(4).random((graph.num_nodes, 3), np.float32)
    if grid is None:
        return {v: [row] for v, row in enumerate(x)}
    ids = np.random.default_rng(grid.comm.rank).permutation(graph.num_nodes)
    return {v: [row] for v, row in zip(ids.tolist(), PartitionedFeatures.of(x, grid).gather(ids), strict=True)}


# What follows asks a frontier; `Q` has rows of the batches that a rank samples.


def selector(graph, positions):
    rng = np.random.default_rng(9)
    sizes = np.minimum(rng.integers(0, 14, NUM_BATCHES), graph.num_nodes)  # one batch is empty
    batches = [rng.permutation(graph.num_nodes)[:size] for size in sizes]
    vertices = np.concatenate([batches[i] for i in positions] or [np.zeros(0)]).astype(graph.index_dtype)
    return RowSelector(np.cumsum([0, *sizes[positions]]), vertices, np.asarray(positions, np.int64))


DRAW = Draw(derive_key(3, 0, SAMPLING), 0, 5)


def of_batches(Q, ptr, *arrays):
    """Arrays whose batch i is `ptr[i]` to `ptr[i + 1]`, by batch."""
    bounds = pairwise(np.asarray(ptr).tolist())
    return {
        batch: [None if array is None else array[lo:hi] for array in arrays]
        for batch, (lo, hi) in zip(Q.batch_ids.tolist(), bounds, strict=True)
    }


def row_statistics(A, Q):
    return of_batches(Q, Q.batch_ptr, *A.frontier(Q).row_statistics)


def batch_statistics(A, Q):
    return of_batches(Q, np.arange(len(Q.batch_ids) + 1), *A.frontier(Q).batch_statistics)


def take_rows(A, Q):
    entries = A.frontier(Q).take_rows(True)
    return of_batches(Q, entries.rows.entry_ptr, entries.rows.columns, entries.edge_ids)


def sample_rows(A, Q):
    entries = A.frontier(Q).sample_rows(DRAW, "weighted" if A.weighting == "weighted" else "uniform", True)
    return of_batches(Q, entries.rows.entry_ptr, entries.rows.columns, entries.edge_ids)


def drawn(law, A, Q):
    P = normalize_rows(law(A, Q))
    sample = P.draw_columns(DRAW)
    excluded = P.F.entry_counts(sample)
    extracted = P.F.extract(*ascending(sample), True)
    return {
        batch: [*one, *other, *more]
        for (batch, one), other, more in zip(
            of_batches(Q, sample.indptr, sample.columns, sample.counts).items(),
            of_batches(Q, Q.batch_ptr, excluded).values(),
            of_batches(Q, extracted.rows.entry_ptr, extracted.rows.columns, extracted.edge_ids).values(),
            strict=True,
        )
    }


def ascending(sample):
    """The columns of each batch, ascending."""
    batch = np.repeat(np.arange(len(sample.indptr) - 1), np.diff(sample.indptr))
    return sample.indptr, sample.columns[np.lexsort((sample.columns, batch))]


def locate(A, Q):
    """The first and the last entry of each row that has any."""
    F = A.frontier(Q)
    counts = F.row_statistics.counts
    rows = np.flatnonzero(counts).repeat(2)
    offsets = np.where(np.arange(len(rows)) % 2, counts[rows] - 1, 0)
    return of_batches(Q, np.searchsorted(rows, Q.batch_ptr), F.locate(rows, offsets))


def merge_columns(A, Q):
    P = normalize_rows(square(Q.per_batch() @ A))
    merged = P.F.merge_columns(P.rule)
    return of_batches(Q, merged.indptr, merged.columns, merged.numerators)


def norms(A, Q):
    sample = A.column_norms.draw(Q.batch_ids, DRAW)
    return of_batches(Q, sample.indptr, sample.columns, sample.counts, A.column_norms.numerators(sample.columns))


LAWS = {
    "Q A": lambda A, Q: Q.per_batch() @ A,
    "(Q A) squared": lambda A, Q: square(Q.per_batch() @ A),
    "column norms": lambda A, Q: column_norms(Q, A),
}
FRONTIER = {
    **{f.__name__: f for f in (row_statistics, batch_statistics, take_rows, sample_rows, locate, merge_columns, norms)},
    **{f"draw and extract, {name}": partial(drawn, law) for name, law in LAWS.items()},
}


def asked(method, graph, grid, own=False):
    """Of the rows of the batches that this rank samples, or of those that it gets."""
    A = graph.operand()
    positions = graph.local_batches(NUM_BATCHES) if own else graph.sampled_batches(NUM_BATCHES)
    with graph.sampling():
        return method(A, selector(graph, positions))


METHODS = {
    **{f.__name__: f for f in (row_sums, row_sums_of_a_duplicate, row_sums_normalized, block_row, add_block_rows)},
    **{f.__name__: f for f in (facts, shared_out, loader, features)},
    **{f"score {name}": partial(score_of, name) for name in SCORES},
    **{f"bulk {sampler!r}": partial(bulk, sampler) for sampler in SAMPLERS},
    **{name: partial(asked, method) for name, method in FRONTIER.items()},
}

# -------------------------------------------------------------------------------------------------------- comparison


@cache
def of_one_process(method, graph):
    return METHODS[method](graphs()[graph], None)


def difference(method, graph, per_rank):
    """What is not as on one process, or ""."""
    want = of_one_process(method, graph)
    for rank, got in enumerate(per_rank):
        if isinstance(got, str):
            return got
        for key, arrays in got.items():
            for number, (mine, other) in enumerate(zip(arrays, want[key], strict=True)):
                if np.asarray(mine).dtype != np.asarray(other).dtype or not np.array_equal(mine, other):
                    return f"rank {rank}: array {number} of {key!r}"
    missing = want.keys() - set().union(*per_rank)
    return f"{len(missing)} of {len(want)} on no rank" if missing else ""


def differences(p, c, algorithm, graph, layout, methods):
    """The methods that give something else on ranks than on one process, and what."""

    def body(comm):
        shared, grid = on_ranks(comm, graphs()[graph], c, algorithm, layout)
        return {method: answer(method, shared, grid) for method in methods}

    def answer(method, shared, grid):
        try:
            return METHODS[method](shared, grid)
        except SpSampleError as error:
            return f"{type(error).__name__}: {error}"

    per_rank = run_threads(p, body, TIMEOUT)
    found = {method: difference(method, graph, [rank[method] for rank in per_rank]) for method in methods}
    return {method: what for method, what in found.items() if what}


def main(chosen):
    methods, wrong, done = chosen or list(METHODS), 0, 0
    for algorithm, (p, c) in product(ALGORITHMS, GRIDS):
        for graph, layout in product(graphs(), LAYOUTS[: 1 if algorithm == "replicated" else 2]):
            try:
                found = differences(p, c, algorithm, graph, layout, methods)
            except Exception as error:
                found = {"all methods": f"{type(error).__name__}: {error}"}
            wrong, done = wrong + len(found), done + len(methods)
            for method, what in found.items():
                print(f"{algorithm}, {p // c} x {c}, {graph}, {layout}: {method}: {what}", flush=True)
    print(f"{done} comparisons of {len(methods)} methods, {wrong} differ")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
