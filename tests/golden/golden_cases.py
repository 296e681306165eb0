"""How the golden vectors are computed: the inputs, and what a backend returns for them.

`make_golden.py` writes the results of the reference backend to law.json; `test_golden.py` compares all backends.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np

import spsample as sp
from spsample.backends import ColumnMatrix, Draw, Matrix, QuantisationRule, StackedSelector
from spsample.loading.local_order import LocalBatches
from spsample.sparse import CSRMatrix, derive_key, normalize_rows

INLINE_LIMIT = 12
"""Minibatches of bulks of at most that many seeds are written out, of larger ones only the hash."""


# --- inputs ---------------------------------------------------------------------------------------------------------


def small_edges():
    """14 vertices: a multi-edge (4 times), self loops, a hub, vertices without in- or out-edges; not in order."""
    edges = [[v % 13, 0] for v in range(1, 12)] + [[3, 1]] * 4 + [[2, 1], [7, 1], [1, 1], [5, 5], [0, 5]]
    edges += [[(v * v + 3) % 11, v] for v in range(2, 12)] + [[(5 * v + 1) % 12, v] for v in range(2, 12)]
    edges += [[9, 2], [4, 2], [4, 2], [12, 3], [6, 3], [10, 3], [1, 4], [2, 4], [8, 10], [11, 10]]
    return [edges[(7 * k) % len(edges)] for k in range(len(edges))] if len(edges) % 7 else edges


def small_weights(count):
    """Zeros, equal weights, and 12 orders of magnitude."""
    return [0.0 if k % 9 == 4 else (1 + k % 5) * 10.0 ** -(k % 13) for k in range(count)]


def ring_edges(n=110):
    """In-degrees from 0 to 22, by integer arithmetic only."""
    return [[(v * v + 17 * k + 3 * k * k) % n, v] for v in range(n) for k in range((v * v * 31 + 7 * v) % 23)]


def edge_lists():
    return {"small": small_edges(), "ring": ring_edges()}


def graphs():
    """Graphs on these edges, as plain data."""
    count = {name: len(edges) for name, edges in edge_lists().items()}
    singles = [float(np.float32(0.1 * (1 + k % 7))) for k in range(count["small"])]
    table = {
        "small": ("small", None, "float32", "unweighted"),
        "small row": ("small", None, "float32", "row"),
        "small weighted": ("small", small_weights(count["small"]), "float64", "weighted"),
        "small float32": ("small", singles, "float32", "weighted"),
        "ring": ("ring", None, "float32", "unweighted"),
        "ring row": ("ring", None, "float32", "row"),
        "ring weighted": ("ring", small_weights(count["ring"]), "float64", "weighted"),
    }
    fields = ("edges", "weights", "dtype", "weighting")
    nodes = {"small": 14, "ring": 110}
    return {
        name: {"num_nodes": nodes[given[0]], **dict(zip(fields, given, strict=True))} for name, given in table.items()
    }


def build_graph(given, edges):
    weights = None if given["weights"] is None else np.array(given["weights"], given["dtype"])
    edge_index = np.array(edges[given["edges"]], np.int64).T
    graph = sp.Graph.from_edge_index(edge_index, num_nodes=given["num_nodes"], edge_weight=weights)
    return graph.normalized("row") if given["weighting"] == "row" else graph


KEY = [0x243F6A88, 0x85A308D3]

KNOWN_ANSWERS = [  # Random123, kat_vectors: philox4x32 10
    {"counter": [0] * 4, "key": [0, 0], "words": [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]},
    {
        "counter": [2**32 - 1] * 4,
        "key": [2**32 - 1] * 2,
        "words": [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    },
    {
        "counter": [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        "key": [0xA4093822, 0x299F31D0],
        "words": [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    },
]

KEYS = [
    {"random_seed": seed, "epoch": epoch, "purpose": purpose}
    for seed in (0, 1, 2**32, 2**64 - 1)
    for epoch in (0, 3, 2**40 + 5)
    for purpose in (1, 2)
]

SHUFFLES = [
    {"count": count, "random_seed": seed, "epoch": epoch}
    for count, seed, epoch in [(0, 0, 0), (1, 0, 0), (2, 5, 1), (20, 0, 0), (20, 0, 1), (64, 2**63 + 1, 7)]
]

DRAWS = [
    {"key": KEY, "vertex": vertex, "hop": hop, "batch": batch, "total": total, "wide": wide, "count": 24}
    for (vertex, hop, batch), (total, wide) in itertools.product(
        [(0, 0, 0), (2**32 + 7, 2, 9), (2**48 - 1, 255, 2**32 - 1)],
        [
            (1, False),
            (10, False),
            (3 * 2**30, False),  # a quarter of the words is rejected
            (2**31 + 1, False),  # almost half
            (2**32 - 1, False),
            (2**32, False),
            (7, True),  # a wide row late in its redraws
            (2**32 + 1, True),
            (3 * 2**61, True),
            (2**62 + 1, True),
            (2**63 - 1, True),
        ],
    )
]

UNIFORM_ROWS = [
    {"key": KEY, "hop": hop, "batch": batch, "vertex": vertex, "degree": degree, "size": size, "replace": replace}
    for hop, batch, vertex in [(0, 0, 0), (2, 2**32 - 1, 17)]
    for degree, size, replace in [
        *((d, s, r) for d in (0, 1, 5) for s in (1, 5, 6) for r in (False, True)),
        (40, 10, False),
        (40, 39, False),
        (40, 10, True),
        (3, 70, True),
        (1000, 25, False),
    ]
]

WEIGHTS = {
    "zeros": [0.0, 0.0],
    "equal": [0.1] * 12,
    "one positive": [0.0, 0.25, 0.0],
    "integers": [1.0, 2.0, 3.0, 4.0, 0.0, 6.0],
    "ties": [1.0, 2.0**-32, 1.5 * 2.0**-31, 2.5 * 2.0**-32, 3.5 * 2.0**-33],
    "narrow at the limit": [1.0, 2.0**-20, 2.0**-21, 2.0**-18],
    "wide below the limit": [1.0, 1.1 * 2.0**-21, 2.0**-22, 2.0**-18],
    "12 orders": [10.0**-k for k in range(13)] + [0.0],
    "rounds": [1e12, 1.0, 1e6, 2.0, 3.0, 0.0, 4.0],
    "rounds narrow": [2.0**20, 1.0, 2.0**10, 3.0, 1.0],
    "extreme": [1.7e308, 5e-324, 1e-310, 1.0],
    "subnormal": [5e-324, 1e-323, 1.5e-323],
    "raised to one": [1.0, 1e-30, 1e-40],
    "thirds": [1 / 3, 2 / 3, 1e-5, 1.0],
    "single": [3.7],
    "empty": [],
}

WEIGHTED_ROWS = [
    {"key": KEY, "hop": 1, "batch": 6, "vertex": 3, "weights": weights, "size": size, "replace": replace}
    for weights, size, replace in itertools.product(WEIGHTS.values(), (1, 2, 4), (False, True))
]

FRONTIERS = [
    {"graph": graph, "frontier": frontier, "q": q, "size": size, "replace": replace, "hop": 1, "batch": 11, "key": KEY}
    for (graph, frontier), q, size, replace in itertools.product(
        [("small", [0, 5, 1]), ("small", []), ("small", [13]), ("small", list(range(14))), ("ring", [3, 100, 7, 60])],
        [None, "equal", "skewed"],
        [1, 3, 9],
        [False, True],
    )
]


def frontier_numerators(case):
    """q of each frontier row: None, or powers of two, also so far apart that draws are wide and need many rounds."""
    if case["q"] is None:
        return None
    step = 0 if case["q"] == "equal" else 13
    return [2 ** (3 + step * (r % 4)) for r in range(len(case["frontier"]))]


DISTRIBUTIONS = {
    "empty": [],
    "one": [5],
    "quarter rejected": [2**30] * 3,
    "exactly 2^32": [2**30] * 4,
    "just wide": [2**30] * 4 + [1],
    "wide, quarter rejected": [2**61] * 3,
    "zeros between": [0, 3, 0, 0, 5, 1, 0],
    "rounds": [2**50, 1, 2**25, 3, 7, 2**40],
    "many": [(k * k) % 97 for k in range(120)],
    "nearly 2^62": [2**62 - 5, 1, 1, 1, 1],
}

COLUMN_DRAWS = [
    {"key": KEY, "hop": 3, "batch": batch, "numerators": N, "size": size, "replace": replace}
    for batch, N, size, replace in itertools.product((0, 2**32 - 1), DISTRIBUTIONS.values(), (1, 3, 7), (False, True))
]

QUANTISED = [
    {"weights": weights, "shift": shift, "power": power, "column_power": column_power}
    for weights, (shift, power, column_power) in itertools.product(
        [w for w in WEIGHTS.values() if max(w, default=0.0) <= 10.0],
        [(24, 1, 1), (54, 1, 1), (50, 2, 1), (0, 2, 1), (24, 1, 2), (20, 2, 2)],
    )
]

SAMPLERS = [
    *(
        ("GraphSAGE", [3, 2], {"replace": replace, "weighted": weighted, "include_targets": targets})
        for replace, weighted, targets in itertools.product((False, True), (None, False), (True, False))
    ),
    ("GraphSAGE", [-1, 2], {}),
    ("GraphSAGE", [2, 2, 2], {"layout": "subgraph"}),
    ("GraphSAGE", [3, -1], {"layout": "subgraph", "replace": True}),
    *(
        ("LADIES", [4, 3], {"law": law, "values": values, "replace": replace, "include_targets": targets})
        for law, (values, replace), targets in itertools.product(
            ("norm", "squared_count"),
            (("unbiased", False), ("unbiased", True), ("reference", False)),
            (True, False),
        )
    ),
    ("LADIES", [5, 5, 5], {"normalize_rows": True}),
    *(
        ("FastGCN", [4, 6], {"values": values, "replace": replace, "include_targets": targets})
        for (values, replace), targets in itertools.product(
            (("unbiased", False), ("unbiased", True), ("reference", False)), (True, False)
        )
    ),
    ("FastGCN", [5, 5], {"normalize_rows": True}),
]


def bulks():
    cases = []
    for name in graphs():
        seeds = [4, 2, 0, 2, 13, 1, 5, 1] if name.startswith("small") else [(37 * k) % 110 for k in range(24)]
        for number, (sampler, sizes, options) in enumerate(SAMPLERS):
            cases.append(
                {
                    "graph": name,
                    "seeds": seeds,
                    "sampler": sampler,
                    "sizes": sizes,
                    "options": options,
                    "batch_size": 3 if name.startswith("small") else 10,
                    "random_seed": 2**40 + number,
                    "epoch": number % 4,
                    "first_batch": [0, 5, 2**32 - 8][number % 3],
                }
            )
    return cases


# --- results --------------------------------------------------------------------------------------------------------


def one_row(case, data=None):
    """A matrix whose row `vertex` has the case's entries, columns 0, 1, ..., and the selector of that row."""
    degree = len(data) if data is not None else case["degree"]
    n = max(degree, case["vertex"]) + 1
    indptr = np.where(np.arange(n + 1) > case["vertex"], degree, 0).astype(np.int64)
    Q = StackedSelector(np.array([0, 1]), np.array([case["vertex"]], np.int32), np.array([case["batch"]], np.int64))
    return Matrix(indptr, np.arange(degree, dtype=np.int32), None if data is None else np.array(data, np.float64)), Q


def draw_of(case):
    return Draw(tuple(case["key"]), case["hop"], case["size"], case["replace"])


def column_sample(sample):
    return {
        "columns": sample.columns.tolist(),
        "counts": sample.counts.tolist(),
        "total": int(sample.totals[0]),
        "whole": bool(sample.whole[0]),
    }


def philox(backend, case):
    return backend.philox(np.array([case["counter"]], np.uint32), tuple(case["key"]))[0].tolist()


def uniform_row(backend, case):
    A, Q = one_row(case)
    return backend.sample_rows_uniform(A, Q, draw_of(case), True).positions.tolist()


def weighted_row(backend, case):
    A, Q = one_row(case, case["weights"])
    return backend.sample_rows_weighted(A, Q, draw_of(case), True).positions.tolist()


def entry_draw(backend, case, graph):
    Q = StackedSelector(
        np.array([0, len(case["frontier"])]),
        np.array(case["frontier"], np.int32),
        np.array([case["batch"]], np.int64),
    )
    q = frontier_numerators(case)
    numerators = None if q is None else np.array(q, np.uint64)
    return column_sample(backend.draw_entries(Matrix(graph.indptr, graph.indices), Q, numerators, draw_of(case)))


def column_draw(backend, case):
    """Columns are 10, 12, 14, ...: positions and columns cannot be mistaken for one another."""
    N = np.array(case["numerators"], np.uint64)
    columns = 10 + 2 * np.arange(len(N), dtype=np.int64)
    kept = N > 0
    P = ColumnMatrix(
        np.array([0, int(kept.sum())]), columns[kept], N[kept], np.array([N.sum(dtype=np.uint64)], np.uint64)
    )
    return column_sample(backend.draw_columns(P, np.array([case["batch"]], np.int64), draw_of(case)))


def shared_draw(backend, case):
    """The same distribution over columns 0, 1, ... as prefix sums, zeros included."""
    cumulative = np.cumsum(np.array(case["numerators"], np.uint64), dtype=np.uint64)
    return column_sample(backend.draw_shared(cumulative, np.array([case["batch"]], np.int64), draw_of(case)))


def quantised(backend, case):
    """Numerators of one row of weights, each in a column of its own, and of the same as the whole graph."""
    degree = len(case["weights"])
    A, Q = one_row({"vertex": 0, "batch": 0, "degree": degree}, case["weights"])
    rule = QuantisationRule(np.array([case["shift"]], np.int64), case["power"], case["column_power"])
    P = backend.merge_columns(A, Q, rule)
    merged = dict(zip(P.columns.tolist(), P.numerators.tolist(), strict=True))
    numerators = [merged.get(v, 0) for v in range(degree)]
    return {"numerators": numerators, "exponent": int(backend.row_exponents(A)[0])}


def row_rule(weights):
    """Numerators under the row rule, by the public `normalize_rows` (zeros left out)."""
    W = CSRMatrix(
        np.array([0, len(weights)]), np.arange(len(weights), dtype=np.int32), np.array(weights, np.float64), (1, 20)
    )
    P = normalize_rows(W).matrix
    merged = dict(zip(P.columns.tolist(), P.numerators.tolist(), strict=True))
    return [merged.get(v, 0) for v in range(len(weights))]


def sample(backend, case, graph):
    sampler = getattr(sp, case["sampler"])(case["sizes"], **case["options"])
    options = {name: case[name] for name in ("batch_size", "random_seed", "epoch", "first_batch")}
    return sp.bulk_sample(graph, case["seeds"], sampler, edge_ids=True, backend=backend, **options)


def layer_arrays(layer):
    """One layer of a minibatch as lists."""
    return {
        "dst": layer.dst_nodes.tolist(),
        "src": layer.src_nodes.tolist(),
        "indptr": layer.adj.indptr.tolist(),
        "indices": layer.adj.indices.tolist(),
        "edge_ids": layer.edge_ids.tolist(),
        "data": None if layer.adj.data is None else layer.adj.data.tolist(),
    }


def bulk_hash(bulk):
    """SHA-256 over all minibatches: integers as int64, values as they are, little-endian, each after its length."""
    data = [layer.adj.data for minibatch in bulk for layer in minibatch.layers if layer.adj.data is not None]
    dtype = data[0].dtype.newbyteorder("<") if data else None
    return hash_of_lists([[layer_arrays(layer) for layer in minibatch.layers] for minibatch in bulk], dtype)


def hash_of_lists(minibatches, dtype):
    """The same of layers as lists; `dtype` is that of their values."""
    digest = hashlib.sha256()
    for layer in itertools.chain.from_iterable(minibatches):
        for name in ("dst", "src", "indptr", "indices", "edge_ids"):
            _update(digest, np.array(layer[name], "<i8"))
        if layer["data"] is not None:
            _update(digest, np.array(layer["data"], dtype))
    return digest.hexdigest()


def _update(digest, array):
    digest.update(len(array).to_bytes(8, "little") + array.tobytes())


def local_orders():
    """Parts of seeds on ranks: one and many, more ranks than parts, parts of one seed, seeds in the order given."""
    sizes = [(1, 1, 1, 4), (20, 2, 2, 4), (20, 2, 4, 3), (23, 3, 6, 2), (60, 4, 4, 5), (60, 4, 8, 64), (200, 8, 8, 2)]
    return [
        {
            **{"count": count, "num_parts": g, "ranks": ranks, "batch_size": b},
            "parts": [v if v < g else 0 if v % 4 else (7 * v * v + v // 3) % g for v in range(count)],
            **{"random_seed": count, "epoch": epoch, "shuffle": shuffle},
        }
        for count, g, ranks, b in sizes
        for epoch, shuffle in [(0, True), (3, True), (0, False)]
    ]


def local_batches(backend, case):
    """The positions of each batch, by batch id."""
    order = np.arange(case["count"])
    if case["shuffle"]:
        order = backend.shuffle(case["count"], derive_key(case["random_seed"], case["epoch"], 2))
    batches = LocalBatches(np.array(case["parts"]), case["num_parts"], case["ranks"], case["batch_size"])
    ordered = batches.ordered(order)
    return [ordered[batches.places(i, i + 1)].tolist() for i in range(batches.num_batches)]


def shuffled(backend, case):
    return backend.shuffle(case["count"], derive_key(case["random_seed"], case["epoch"], 2)).tolist()
