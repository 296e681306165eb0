"""Throw garbage and nearly valid arguments at the public entry points.

Success, an `SpSampleError`, and a `MemoryError` are right; anything else is a finding, and so is a crash of the process
(--log names the case in progress). Not collected by pytest.

    python tests/fuzz/fuzz_entry_points.py --minutes 5 --seed 1
    python tests/fuzz/fuzz_entry_points.py --only bulk_sample --first 1234 --cases 1      # one case again
"""

from __future__ import annotations

import argparse
import io
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse

import spsample as sp
from spsample.errors import SpSampleError
from spsample.sparse import CSRMatrix, Draw, its_sample, normalize_rows, select_rows, spgemm

MAX_NODES = 50

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


# --- entry points: each makes its arguments and calls -----------------------------------------------------------------


def fuzz_graph(make, folder):
    graph = make.graph()
    assert graph.num_edges == len(graph.indices)
    graph.to_scipy()
    repr(graph)


def fuzz_bulk_sample(make, folder):
    graph = make.either(make.graph, 0.02)
    n = graph.num_nodes if isinstance(graph, sp.Graph) else 5
    sampler = make.either(make.sampler, 0.02)
    if n > 10**5:  # an absurd id made an absurd graph
        return
    seeds = make.rng.integers(0, n, make.integer(0, 40))
    seeds = make.either(lambda: make.spoilt(seeds) if make.chance(0.3) else seeds)
    options = {"batch_size": make.either(lambda: make.integer(1, 30))}
    for name, right in (
        ("random_seed", lambda: make.integer(0, 2**62)),
        ("epoch", lambda: make.integer(0, 2**62)),
        ("first_batch", lambda: make.choice([0, 5, 2**32 - 3, 2**32 - 1])),
        ("edge_ids", lambda: make.chance(0.5)),
        ("duplicates", lambda: make.choice(["merge", "error"])),
        ("backend", lambda: make.choice([None, "cpu", "reference"])),
    ):
        if make.chance(0.4):
            options[name] = make.either(right)
    bulk = sp.bulk_sample(graph, seeds, sampler, **options)
    for minibatch in bulk:
        minibatch.to_scipy()
        repr(minibatch)
    repr(bulk)


def fuzz_csr_matrix(make, folder):
    rows, columns = make.integer(0, 12), make.integer(1, 12)
    A = make.matrix(rows, columns)
    P = normalize_rows(make.either(lambda: A))
    P.to_scipy()
    size = make.either(lambda: make.integer(1, 9))
    draw = Draw((make.integer(0, 2**32), 1), make.either(lambda: 0, 0.02), size, make.chance(0.5))
    ids = make.either(lambda: np.arange(rows)) if make.chance(0.3) else None
    if not (isinstance(size, int) and size > 10**6):
        its_sample(P, draw, batch_ids=ids)


def fuzz_spgemm(make, folder):
    a, b, c = (make.integer(0 if i == 0 else 1, 12) for i in range(3))
    A = make.matrix(a, b)
    B = make.matrix(b if make.chance(0.95) else c, c)
    backend = make.either(lambda: make.choice([None, "cpu", "reference"]))
    spgemm(make.either(lambda: A, 0.02), make.either(lambda: B, 0.02), backend=backend)
    rows = make.either(lambda: make.rng.integers(0, max(a, 1), 5))
    select_rows(A, rows, backend=backend)


def fuzz_shuffle(make, folder):
    count = make.either(lambda: make.integer(0, 99), 0.3)
    if isinstance(count, (int, np.integer)) and 10**7 < count < 2**62:
        return
    sp.shuffle(count, make.either(lambda: 3, 0.3), make.either(lambda: 3, 0.3))


def dataset_arrays(make):
    n = make.integer(6, 30)
    indptr, indices, _ = make.csr_arrays(n)
    order = make.rng.permutation(n)
    arrays = {
        "indptr": indptr,
        "indices": indices,
        "x": make.rng.normal(size=(n, 3)).astype(np.float32),
        "y": make.rng.integers(-1, 3, n),
        "train_idx": order[: n // 2],
        "val_idx": order[n // 2 : n // 2 + 1],
        "test_idx": order[n // 2 + 1 :],
        "meta": np.array('{"name": "fuzz"}'),
    }
    if make.chance(0.3):
        x = scipy.sparse.random_array((n, 4), density=0.3, rng=make.rng, format="csr")
        del arrays["x"]
        parts = {"x_indptr": x.indptr, "x_indices": x.indices, "x_data": (x.data > 0).astype(np.uint8)}
        arrays |= {**parts, "x_shape": np.array(x.shape)}
    return arrays


def fuzz_load_dataset(make, folder):
    if make.chance(0.15):
        text = make.choice(
            ["rmat:", "planted:", "digits", "rmat:3,2", "planted:30,3,2,0.1", "x.npz", "rmat:-1,2", "planted:9"]
        )
        at = make.integer(0, len(text) + 1)
        junk = make.choice(["", ",", "a", "-", ".", ":", "0", "1e9", "nan", " "])
        spec = text[:at] + junk + text[at:]
        large = any(int(number) > 40 for number in re.findall(r"\d+", spec))  # legal, and slow
        if "digits" not in spec and not (large or re.match(r"rmat:[1-9]\d", spec)):
            sp.load_dataset(make.either(lambda: spec), split=make.either(lambda: 0), random_seed=make.either(lambda: 1))
        return
    arrays = dataset_arrays(make)
    for name in list(arrays):
        if make.chance(0.05):
            del arrays[name]
        elif make.chance(0.08) and arrays[name].dtype.kind in "if":
            arrays[name] = np.asarray(make.spoilt(arrays[name]))
        elif make.chance(0.03):
            garbage = make.garbage()
            arrays[name] = garbage if isinstance(garbage, np.ndarray) else np.array(make.choice([0, "{", 1.5, b"x"]))
    buffer = io.BytesIO()
    make.choice([np.savez, np.savez_compressed])(buffer, **arrays)
    raw = bytearray(buffer.getvalue())
    kind = make.integer(0, 5)
    if kind == 0:
        del raw[make.integer(0, len(raw)) :]
    elif kind == 1:
        for _ in range(make.integer(1, 9)):
            raw[make.integer(0, len(raw))] = make.integer(0, 256)
    elif kind == 2:
        raw = restored(raw, make)
    path = Path(folder) / "fuzz.npz"
    path.write_bytes(bytes(raw))
    sp.load_dataset(str(path), split=make.either(lambda: 0))


def restored(raw, make):
    """The same archive, intact, with bytes of one .npy changed: past the checksums of the zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(bytes(raw))) as source, zipfile.ZipFile(out, "w") as target:
        names = source.namelist()
        broken = make.choice(names)
        for name in names:
            content = bytearray(source.read(name))
            if name == broken:
                for _ in range(make.integer(1, 5)):
                    content[make.integer(0, min(len(content), 140))] = make.integer(0, 256)
            target.writestr(name, bytes(content))
    return bytearray(out.getvalue())


TARGETS = {
    "graph": fuzz_graph,
    "bulk_sample": fuzz_bulk_sample,
    "csr_matrix": fuzz_csr_matrix,
    "spgemm": fuzz_spgemm,
    "shuffle": fuzz_shuffle,
    "load_dataset": fuzz_load_dataset,
}


def attempt(name, seed, folder):
    """Outcome of one case: "ok", the name of the exception, or "FINDING"."""
    try:
        TARGETS[name](Maker(seed), folder)
    except SpSampleError as error:
        return type(error).__name__ if str(error) else "FINDING", None
    except MemoryError:
        return "MemoryError", None
    except Exception as error:
        return "FINDING", error
    return "ok", None


def report(counts, findings):
    for name in TARGETS:
        outcomes = {outcome: n for (target, outcome), n in sorted(counts.items()) if target == name}
        if outcomes:
            print(f"{name:13} {sum(outcomes.values()):8}  " + ", ".join(f"{k} {v}" for k, v in outcomes.items()))
    print(f"{sum(counts.values())} cases, {sum(n for (_, o), n in counts.items() if o == 'FINDING')} findings")
    for place, (name, seed, trace) in findings.items():
        print(f"\n--- {name}, seed {seed}: {place}\n{trace}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0, help="base of the cases' seeds")
    parser.add_argument("--only", choices=sorted(TARGETS), help="one entry point")
    parser.add_argument("--first", type=int, help="seed of the first case, instead of one from --seed")
    parser.add_argument("--cases", type=int, default=10**12, help="at most so many")
    parser.add_argument("--gigabytes", type=int, default=4, help="address space")
    parser.add_argument("--log", type=Path, help="file that always holds the case in progress")
    return parser.parse_args()


def main():
    options = arguments()
    resource.setrlimit(resource.RLIMIT_AS, (options.gigabytes << 30,) * 2)  # a MemoryError instead of a full machine
    warnings.simplefilter("ignore")
    names = [options.only] if options.only else list(TARGETS)
    first = options.seed * 10**9 if options.first is None else options.first
    counts, findings = Counter(), {}
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        seed = first
        while time.monotonic() < deadline and seed < first + options.cases:
            name = names[seed % len(names)]
            if options.log:
                options.log.write_text(f"{name} {seed}\n")
            outcome, error = attempt(name, seed, folder)
            counts[name, outcome] += 1
            if error is not None:
                frames = traceback.extract_tb(error.__traceback__)
                place = f"{type(error).__name__} at {frames[-1].filename}:{frames[-1].lineno}"
                findings.setdefault(place, (name, seed, "".join(traceback.format_exception(error)[-4:])))
            seed += 1
    report(counts, findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
