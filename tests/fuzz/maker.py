"""Values at random for arguments: most are nearly right, so that they get past the first checks."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse

import spsample as sp
from spsample.sparse import CSRMatrix

MAX_NODES = 50
MANY = 9

SCALARS = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        7,
        255,
        256,
        2**31 - 1,
        2**31,
        2**32,
        2**48,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
    ),
    *(
        1.0,
        0.5,
        -0.0,
        float("nan"),
        float("inf"),
        1j,
        "",
        "0",
        "row",
        "é",
        "\x00",
        b"x",
        (),
        [],
        {},
        object(),
        Ellipsis,
    ),
    *(
        np.int8(3),
        np.uint64(2**63),
        np.float32(2),
        np.bool_(True),
        np.array(3),
        np.datetime64("NaT"),
        int,
        len,
        range(3),
    ),
]
DTYPES = [
    "i1",
    "u1",
    "i2",
    "i4",
    "i8",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "?",
    "O",
    "U3",
    "S2",
    ">i4",
    ">f8",
    "M8[s]",
    "V4",
]


class Maker:
    """Values at random; most are nearly right, so that they get past the first checks."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, p):
        return self.rng.random() < p

    def choice(self, options):
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low, high):
        return int(self.rng.integers(low, high))

    def scalar(self):
        return self.choice(SCALARS)

    def either(self, right, p=0.06):
        """What `right` makes, rarely garbage."""
        return self.garbage() if self.chance(p) else right()

    def few(self, right, p=0.06):
        """As `either`, without numbers that are legal and take long."""
        value = self.either(right, p)
        return right() if isinstance(value, (int, np.integer)) and value > MANY else value

    def garbage(self):
        kind = self.integer(0, 5)
        if kind == 0:
            return self.array()
        if kind == 1:
            return [self.scalar() for _ in range(self.integer(0, 4))]
        if kind == 2:
            return scipy.sparse.random_array((3, 3), density=0.5, rng=self.rng)
        return self.scalar()

    def array(self):
        shape = tuple(self.rng.integers(0, 4, self.integer(0, 4)).tolist())
        return self.cast(self.rng.integers(-3, 9, shape))

    def cast(self, array):
        """As another dtype, in another layout, or with a bad entry."""
        kind = self.integer(0, 9)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                if kind <= 2:
                    return array.astype(self.choice(DTYPES))
            except (TypeError, ValueError):
                return array
        if kind == 3:
            return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
        if kind == 4:
            return array.tolist()
        if kind == 5:
            return np.asfortranarray(array)
        if kind == 6:
            return array[..., None]
        if kind == 7:
            return array[:-1] if array.ndim else array
        return array

    def spoilt(self, array):
        """Now and then with one entry changed, or in another form."""
        if array.size and self.chance(0.15):
            array = array.copy()
            kinds = {"f": [np.nan, np.inf, -1.0, 1e300, 5e-324, 0.0], "i": [-1, 2**31 - 1, -(2**31), 60, 0], "u": [255]}
            bad = np.array(self.choice(kinds[array.dtype.kind]))
            with np.errstate(all="ignore"):
                array.flat[self.integer(0, array.size)] = bad.astype(array.dtype)
        return self.cast(array) if self.chance(0.15) else array

    # --- graphs -----------------------------------------------------------------------------------------------------
    def csr_arrays(self, n, columns=None):
        lengths = self.rng.integers(0, 6, n)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices = self.rng.integers(0, columns or n, indptr[-1]).astype(self.choice(["i4", "i8"]))
        data = (self.rng.random(len(indices)) * 10.0 ** self.rng.integers(-12, 3)).astype(self.choice(["f4", "f8"]))
        return indptr, indices, data

    def graph(self):
        n = self.integer(1, MAX_NODES)
        form = self.integer(0, 3)
        if form == 0:
            indptr, indices, data = (self.spoilt(a) for a in self.csr_arrays(n))
            weights = self.choice([None, data])
            edge_ids = self.spoilt(np.arange(len(indices))) if self.chance(0.3) else None
            graph = sp.Graph(self.either(lambda: indptr), self.either(lambda: indices), weights, edge_ids=edge_ids)
        elif form == 1:
            edges = self.rng.integers(0, n, (2, self.integer(0, 200)))
            options = {"num_nodes": self.either(lambda: n)} if self.chance(0.7) else {}
            if self.chance(0.5):
                options["edge_weight"] = self.spoilt(self.rng.random(edges.shape[1]))
            graph = sp.Graph.from_edge_index(self.either(lambda: self.spoilt(edges)), **options)
        else:
            graph = sp.Graph.from_scipy(self.either(lambda: self.scipy_matrix(n)))
        return self.derived(graph)

    def scipy_matrix(self, n):
        kind = self.choice(["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
        columns = n if self.chance(0.95) else n + 1
        matrix = scipy.sparse.random_array((n, columns), density=0.1, rng=self.rng, format=kind)
        name = self.choice(["indptr", "indices", "data", "row", "col"])
        if self.chance(0.2) and hasattr(matrix, name) and getattr(matrix, name).dtype.kind in "if":
            part = getattr(matrix, name)
            if name != "data" or part.ndim == 1:
                spoilt = self.spoilt(part)
                if isinstance(spoilt, np.ndarray) and spoilt.ndim == 1 and name not in ("row", "col"):
                    setattr(matrix, name, spoilt)
        return matrix

    def derived(self, graph):
        if self.chance(0.3):
            graph = graph.with_self_loops()
        if self.chance(0.4):
            graph = graph.normalized(self.either(lambda: self.choice(["row", "sym"])))
        return graph

    # --- samplers ---------------------------------------------------------------------------------------------------
    def sizes(self, low):
        size = lambda: self.either(lambda: self.integer(low, 9), 0.02)  # noqa: E731
        return self.either(lambda: [size() for _ in range(self.integer(1, 4))])

    def flag(self):
        return self.either(lambda: self.choice([True, False]), 0.03)

    def sampler(self):
        options = {name: self.flag() for name in ("replace", "include_targets") if self.chance(0.5)}
        if self.chance(0.5):
            if self.chance(0.3):
                options["weighted"] = self.either(lambda: self.choice([None, True, False]))
            if self.chance(0.4):
                options["layout"] = self.either(lambda: self.choice(["blocks", "subgraph"]))
            return sp.GraphSAGE(self.sizes(-1), **options)
        if self.chance(0.5):
            options["values"] = self.either(lambda: self.choice(["unbiased", "reference"]))
        if self.chance(0.3):
            options["normalize_rows"] = self.flag()
        if self.chance(0.5):
            return sp.FastGCN(self.sizes(1), **options)
        return sp.LADIES(self.sizes(1), law=self.either(lambda: self.choice(["norm", "squared_count"])), **options)

    def matrix(self, rows, columns):
        indptr, indices, data = self.csr_arrays(rows, columns)
        data = data.astype(self.choice(["f4", "f8", "f8", "f8", "i8", "u8", "i2"]))
        arrays = [
            self.either(lambda a=a: self.spoilt(a), 0.02) if self.chance(0.2) else a for a in (indptr, indices, data)
        ]
        return CSRMatrix(*arrays, self.either(lambda: (rows, columns), 0.03))

    # --- calls ------------------------------------------------------------------------------------------------------
    def options(self, p=0.5, **rights):
        """Some of the options, each rarely garbage."""
        return {name: self.either(right) for name, right in rights.items() if self.chance(p)}

    def path(self, folder):
        """A path that nothing is at; an existing one; now and then none."""
        name = self.choice(["new", "new.npz", "a/b/c", ".", "", "é", "x" * 300, "nul\x00byte"])
        right = lambda: folder / name if self.chance(0.7) else f"{folder}/{name}"  # noqa: E731
        return self.either(right, 0.15)

    def features(self, n):
        """Rows for n vertices."""
        dense = lambda: self.rng.normal(size=(n, 3)).astype(self.choice(["f4", "f8", "f2", "i4", "u1"]))  # noqa: E731
        sparse = lambda: scipy.sparse.random_array((n, 3), density=0.4, rng=self.rng, format="csr")  # noqa: E731
        return self.either(lambda: self.spoilt(dense()) if self.chance(0.8) else sparse())

    def sound_graph(self):
        """A graph without a fault."""
        n = self.integer(2, MAX_NODES)
        edges = self.rng.integers(0, n, (2, self.integer(0, 200)))
        weights = self.rng.random(edges.shape[1]) if self.chance(0.4) else None
        return sp.Graph.from_edge_index(edges, num_nodes=n, edge_weight=weights)

    def sound_sampler(self):
        """A sampler without a fault."""
        sizes = [self.integer(1, 6) for _ in range(self.integer(1, 3))]
        made = self.choice([sp.GraphSAGE, sp.LADIES, sp.FastGCN])(sizes)
        if made.kind == "node-wise" and self.chance(0.2):
            return sp.Biased(made, np.arange(0), self.choice([0.5, 2, 8.0]), importance_weights=self.chance(0.3))
        return made
