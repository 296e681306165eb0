"""Bad samplers, calls and matrices: a clear exception that names the argument and the first bad entry."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from stand_ins import OnDevice

import spsample as sp
from spsample.errors import BackendError, DTypeError, InputError
from spsample.sparse import CSRMatrix, Draw, its_sample, normalize_rows, select_rows, shuffle, spgemm

GRAPH = sp.Graph.from_edge_index([[1, 2, 3, 0, 2], [0, 0, 1, 3, 4]], num_nodes=10)
SAMPLER = sp.GraphSAGE([2, 2])


def sage(fanouts=(2,), **options):
    return lambda: sp.GraphSAGE(fanouts, **options)


def ladies(layer_sizes=(2,), **options):
    return lambda: sp.LADIES(layer_sizes, **options)


def fastgcn(layer_sizes=(2,), **options):
    return lambda: sp.FastGCN(layer_sizes, **options)


def call(seeds=(0, 1), *, graph=GRAPH, sampler=SAMPLER, **options):
    return lambda: sp.bulk_sample(graph, seeds, sampler, **{"batch_size": 2, **options})


def csr(indptr=(0, 1, 3), indices=(1, 0, 1), data=(1.0, 2.0, 3.0), shape=(2, 2)):
    """A CSRMatrix of the arrays given; tuples become arrays."""
    arrays = [np.array(a) if isinstance(a, tuple) else a for a in (indptr, indices, data)]
    return lambda: CSRMatrix(*arrays, shape)


def matrix(data=(1.0, 2.0, 3.0), columns=2):
    values = None if data is None else np.array(data)
    return CSRMatrix(np.array([0, 1, 3]), np.array([1, 0, 1]), values, (2, columns))


def sample_matrix(draw, **options):
    return lambda: its_sample(normalize_rows(matrix()), draw, **options)


KEY = (1, 2)
BIG = 2**64

# name: (call, exception, argument, words of the message)
CASES = {
    # fanouts
    "fanout 0": (sage([3, 0]), InputError, "fanouts[1]", "got 0; expected an integer >= 1, or -1"),
    "fanout -2": (sage([-2]), InputError, "fanouts[0]", "got -2"),
    "fanout float": (sage([2, 3.0]), DTypeError, "fanouts[1]", "3.0 of type float"),
    "fanout nan": (sage([float("nan")]), DTypeError, "fanouts[0]", "nan"),
    "fanout bool": (sage([True, 2]), DTypeError, "fanouts[0]", "True of type bool"),
    "fanout text": (sage([2, "3"]), DTypeError, "fanouts[1]", "'3' of type str"),
    "fanout None": (sage([2, None]), DTypeError, "fanouts[1]", "None"),
    "fanout huge": (sage([2, 2**29 + 1]), InputError, "fanouts[1]", str(2**29 + 1)),
    "fanout beyond int64": (sage([2**70]), InputError, "fanouts[0]", str(2**70)),
    "fanouts a number": (sage(10), DTypeError, "fanouts", "got 10; expected a list of integers"),
    "fanouts text": (sage("15,10"), DTypeError, "fanouts", "'15,10'"),
    "fanouts bytes": (sage(b"\x02"), DTypeError, "fanouts", "list of integers"),
    "fanouts None": (sage(None), DTypeError, "fanouts", "None"),
    "fanouts empty": (sage([]), InputError, "fanouts", "0 layers; expected 1 to 255"),
    "fanouts nested": (sage([[2, 3]]), DTypeError, "fanouts[0]", "[2, 3] of type list"),
    "fanouts 2-D": (sage(np.ones((2, 2), int)), InputError, "fanouts", "shape (2, 2)"),
    "fanouts 0-D": (sage(np.array(3)), InputError, "fanouts", "shape ()"),
    "fanouts of floats": (sage(np.array([2.0])), DTypeError, "fanouts[0]", "float64"),
    "fanouts a set": (sage({2, 3}), DTypeError, "fanouts", "list of integers"),
    "fanouts a dict": (sage({0: 2}), DTypeError, "fanouts", "list of integers"),
    "fanouts a generator": (sage(i for i in (2, 3)), DTypeError, "fanouts", "generator"),
    "256 layers": (sage([1] * 256), InputError, "fanouts", "256 layers"),
    "layer size 0": (ladies([4, 0]), InputError, "layer_sizes[1]", "got 0"),
    "layer size -1": (ladies([-1]), InputError, "layer_sizes[0]", "got -1; expected an integer in [1, "),
    "layer size float": (fastgcn([4.5]), DTypeError, "layer_sizes[0]", "4.5"),
    "layer sizes empty": (fastgcn(()), InputError, "layer_sizes", "0 layers"),
    "layer sizes a number": (ladies(512), DTypeError, "layer_sizes", "512"),
    # options of samplers
    "replace text": (sage(replace="yes"), DTypeError, "replace", "'yes'; expected True or False"),
    "replace None": (ladies(replace=None), DTypeError, "replace", "None"),
    "replace 1": (fastgcn(replace=1), DTypeError, "replace", "got 1"),
    "include_targets 0": (sage(include_targets=0), DTypeError, "include_targets", "got 0"),
    "weighted text": (sage(weighted="auto"), DTypeError, "weighted", "'auto'"),
    "weighted 1": (sage(weighted=1), DTypeError, "weighted", "got 1"),
    "weighted 0": (sage(weighted=0), DTypeError, "weighted", "got 0"),
    "weighted an array": (sage(weighted=np.ones(3)), DTypeError, "weighted", "expected True, False or None"),
    "layout unknown": (sage(layout="block"), InputError, "layout", "'block'; expected one of 'blocks', 'subgraph'"),
    "layout no text": (sage(layout=None), DTypeError, "layout", "None"),
    "subgraph without targets": (
        sage(layout="subgraph", include_targets=False),
        InputError,
        "include_targets",
        "got False; expected True with layout='subgraph'",
    ),
    "law unknown": (ladies(law="norms"), InputError, "law", "'norms'; expected one of 'norm', 'squared_count'"),
    "law no text": (ladies(law=2), DTypeError, "law", "2 of type int"),
    "values unknown": (ladies(values="biased"), InputError, "values", "'biased'"),
    "values no text": (fastgcn(values=True), DTypeError, "values", "True of type bool"),
    "reference with replacement": (
        ladies(values="reference", replace=True),
        InputError,
        "values",
        "'reference' with replace=True",
    ),
    "normalize_rows text": (fastgcn(normalize_rows="sum"), DTypeError, "normalize_rows", "'sum'"),
    # bulk_sample
    "graph None": (call(graph=None), DTypeError, "graph", "type NoneType; expected an spsample.Graph"),
    "graph a matrix": (call(graph=scipy.sparse.eye_array(10).tocsr()), DTypeError, "graph", "Graph.from_scipy"),
    "graph the class": (call(graph=sp.Graph), DTypeError, "graph", "expected an spsample.Graph"),
    "sampler None": (call(sampler=None), DTypeError, "sampler", "None; expected a Sampler"),
    "sampler the class": (call(sampler=sp.GraphSAGE), DTypeError, "sampler", "GraphSAGE"),
    "sampler the fanouts": (call(sampler=[15, 10]), DTypeError, "sampler", "[15, 10]"),
    "batch_size 0": (call(batch_size=0), InputError, "batch_size", "got 0; expected an integer of at least 1"),
    "batch_size -1": (call(batch_size=-1), InputError, "batch_size", "got -1"),
    "batch_size float": (call(batch_size=2.0), DTypeError, "batch_size", "2.0 of type float"),
    "batch_size None": (call(batch_size=None), DTypeError, "batch_size", "None"),
    "batch_size bool": (call(batch_size=True), DTypeError, "batch_size", "True of type bool"),
    "batch_size text": (call(batch_size="2"), DTypeError, "batch_size", "'2' of type str"),
    "random_seed negative": (call(random_seed=-1), InputError, "random_seed", "got -1"),
    "random_seed 2^64": (call(random_seed=BIG), InputError, "random_seed", str(BIG)),
    "random_seed float": (call(random_seed=0.0), DTypeError, "random_seed", "0.0 of type float"),
    "random_seed None": (call(random_seed=None), DTypeError, "random_seed", "None"),
    "epoch negative": (call(epoch=-1), InputError, "epoch", "got -1"),
    "epoch 2^64": (call(epoch=BIG), InputError, "epoch", str(BIG)),
    "epoch text": (call(epoch="1"), DTypeError, "epoch", "'1'"),
    "first_batch negative": (call(first_batch=-1), InputError, "first_batch", "got -1"),
    "first_batch 2^32": (call(first_batch=2**32), InputError, "first_batch", str(2**32)),
    "first_batch too late": (
        call([0, 1, 2], first_batch=2**32 - 1),
        InputError,
        "first_batch",
        f"expected an integer in [0, {2**32 - 2}]",
    ),
    "first_batch too late, no seeds": (call([], first_batch=2**32), InputError, "first_batch", str(2**32)),
    "first_batch float": (call(first_batch=1.0), DTypeError, "first_batch", "1.0"),
    "edge_ids text": (call(edge_ids="yes"), DTypeError, "edge_ids", "'yes'; expected True or False"),
    "edge_ids an array": (call(edge_ids=np.ones(2)), DTypeError, "edge_ids", "True or False"),
    "duplicates unknown": (
        call(duplicates="drop"),
        InputError,
        "duplicates",
        "'drop'; expected one of 'merge', 'error'",
    ),
    "duplicates None": (call(duplicates=None), DTypeError, "duplicates", "None"),
    "duplicates found": (
        call([4, 5, 6, 6], duplicates="error"),
        InputError,
        "seeds",
        "6 again at position 3, in batch 1",
    ),
    "backend unknown": (
        call(backend="cuda0"),
        InputError,
        "backend",
        "'cuda0'; expected one of ['cpu', 'cuda', 'reference']",
    ),
    "backend no text": (call(backend=3), DTypeError, "backend", "3"),
    "backend a list": (call(backend=["cpu"]), DTypeError, "backend", "['cpu']"),
    "backend empty": (call(backend=""), InputError, "backend", "''"),
    "weights that are not there": (
        call(sampler=sp.GraphSAGE([2], weighted=True)),
        InputError,
        "weighted",
        "True on a graph without weights",
    ),
    # seeds
    "seed negative": (call([0, -3]), InputError, "seeds", "-3 at position 1; expected vertex ids in [0, 10)"),
    "seed too large": (call([0, 1, 10]), InputError, "seeds", "10 at position 2"),
    "seed beyond int64": (call(np.array([0, 2**63], np.uint64)), InputError, "seeds", str(2**63)),
    "seeds float": (call([0.0, 1.0]), DTypeError, "seeds", "float64"),
    "seeds nan": (call([0, float("nan")]), DTypeError, "seeds", "float64"),
    "seeds mask": (call(np.ones(10, bool)), DTypeError, "seeds", "numpy.flatnonzero(mask)"),
    "seeds 2-D": (call([[0, 1], [2, 3]]), InputError, "seeds", "shape (2, 2)"),
    "seeds a number": (call(3), InputError, "seeds", "the scalar 3"),
    "seeds text": (call("012"), DTypeError, "seeds", "'012'"),
    "seeds strings": (call(["0", "1"]), DTypeError, "seeds", "first entry '0'"),
    "seeds None": (call(None), DTypeError, "seeds", "None"),
    "seeds with None": (call([0, None]), DTypeError, "seeds", "None at position 1"),
    "seeds on a GPU": (call(OnDevice()), DTypeError, "seeds", "device cuda:0"),
    "seeds sparse": (call(scipy.sparse.eye_array(3)), DTypeError, "seeds", "a scipy dia matrix"),
    # CSRMatrix
    "csr indptr short": (csr(indptr=(0, 3)), InputError, "indptr", "length 2; expected length 3"),
    "csr indptr empty": (
        csr(indptr=np.zeros(0, int), shape=(0, 2)),
        InputError,
        "indptr",
        "length 0; expected length 1",
    ),
    "csr indptr falls": (csr(indptr=(0, 4, 3)), InputError, "indptr", "3 at position 2, after 4"),
    "csr indptr starts late": (csr(indptr=(1, 1, 3)), InputError, "indptr", "1 at position 0"),
    "csr indptr ends short": (csr(indptr=(0, 1, 2)), InputError, "indptr", "2 at position 2"),
    "csr indptr float": (csr(indptr=(0.0, 1.0, 3.0)), DTypeError, "indptr", "float64"),
    "csr indptr a list": (csr(indptr=[0, 1, 3]), DTypeError, "indptr", "list; expected a NumPy array"),
    "csr indptr 2-D": (csr(indptr=np.zeros((3, 1), int)), InputError, "indptr", "shape (3, 1)"),
    "csr indptr None": (csr(indptr=None), DTypeError, "indptr", "NoneType"),
    "csr index too large": (
        csr(indices=(1, 0, 2)),
        InputError,
        "indices",
        "2 at position 2; expected columns in [0, 2)",
    ),
    "csr index negative": (csr(indices=(1, -1, 0)), InputError, "indices", "-1 at position 1"),
    "csr indices float": (csr(indices=(1.0, 0.0, 1.0)), DTypeError, "indices", "float64"),
    "csr indices bool": (csr(indices=(True, False, True)), DTypeError, "indices", "bool"),
    "csr indices uint64": (csr(indices=np.ones(3, np.uint64)), DTypeError, "indices", "uint64"),
    "csr indices big-endian": (csr(indices=np.array([1, 0, 1], ">i4")), DTypeError, "indices", "dtype >i4"),
    "csr data short": (csr(data=(1.0, 2.0)), InputError, "data", "length 2; expected length 3"),
    "csr data text": (csr(data=("a", "b", "c")), DTypeError, "data", "U1"),
    "csr data objects": (csr(data=np.array([1, None, 2], object)), DTypeError, "data", "object"),
    "csr data 2-D": (csr(data=np.ones((3, 1))), InputError, "data", "shape (3, 1)"),
    "csr shape 1-D": (csr(shape=(2,)), InputError, "shape", "(2,); expected two integers"),
    "csr shape None": (csr(shape=None), InputError, "shape", "None"),
    "csr shape negative": (csr(shape=(2, -1)), InputError, "shape", "(2, -1)"),
    "csr shape float": (csr(shape=(2.0, 2)), InputError, "shape", "(2.0, 2)"),
    "csr from no matrix": (lambda: CSRMatrix.from_scipy(np.eye(2)), DTypeError, "matrix", "ndarray"),
    # the algebra
    "spgemm shapes": (
        lambda: spgemm(matrix(), matrix(), backend="reference") and spgemm(matrix(columns=3), matrix()),
        InputError,
        "B",
        "shape (2, 2); expected 3 rows",
    ),
    "spgemm types": (lambda: spgemm(matrix(), matrix([1, 2, 3])), DTypeError, "data", "float64 and int64"),
    "spgemm of bools": (lambda: spgemm(matrix([True] * 3), matrix(None)), DTypeError, "data", "bool"),
    "spgemm of complex": (lambda: spgemm(matrix([1j, 2, 3]), matrix([1j, 2, 3])), DTypeError, "data", "complex128"),
    "spgemm of an array": (lambda: spgemm(np.eye(2), matrix()), DTypeError, "A", "ndarray; expected a CSRMatrix"),
    "spgemm by None": (lambda: matrix() @ None, DTypeError, "B", "NoneType; expected a CSRMatrix"),
    "spgemm backend": (lambda: spgemm(matrix(), matrix(), backend="gpu"), InputError, "backend", "'gpu'"),
    "select row too large": (
        lambda: select_rows(matrix(), np.array([0, 2])),
        InputError,
        "rows",
        "2 at position 1; expected rows in [0, 2)",
    ),
    "select row negative": (lambda: select_rows(matrix(), np.array([-1])), InputError, "rows", "-1 at position 0"),
    "select rows float": (lambda: select_rows(matrix(), np.array([0.0])), DTypeError, "rows", "float64"),
    "select rows mask": (lambda: select_rows(matrix(), np.array([True, False])), DTypeError, "rows", "bool"),
    "select rows 2-D": (lambda: select_rows(matrix(), np.zeros((1, 1), int)), InputError, "rows", "shape (1, 1)"),
    "select rows ragged": (lambda: select_rows(matrix(), [[0], [0, 1]]), InputError, "rows", "uneven lengths"),
    "select rows of an array": (lambda: select_rows(np.eye(2), np.array([0])), DTypeError, "A", "ndarray"),
    "normalize negative": (
        lambda: normalize_rows(matrix([1.0, -2.0, 3.0])),
        InputError,
        "matrix.data",
        "-2.0 at position 1",
    ),
    "normalize nan": (
        lambda: normalize_rows(matrix([1.0, 2.0, np.nan])),
        InputError,
        "matrix.data",
        "nan at position 2",
    ),
    "normalize inf": (
        lambda: normalize_rows(matrix([np.inf, 2.0, 1.0])),
        InputError,
        "matrix.data",
        "inf at position 0",
    ),
    "normalize complex": (lambda: normalize_rows(matrix([1j, 2.0, 1.0])), DTypeError, "matrix.data", "complex128"),
    "normalize an array": (lambda: normalize_rows(np.eye(2)), DTypeError, "matrix", "ndarray; expected a CSRMatrix"),
    "sample an array": (lambda: its_sample(np.eye(2), Draw(KEY, 0, 1)), DTypeError, "P", "ndarray"),
    "sample weights": (
        lambda: its_sample(matrix(), Draw(KEY, 0, 1)),
        DTypeError,
        "P",
        "CSRMatrix; expected what normalize_rows",
    ),
    "sample size 0": (sample_matrix(Draw(KEY, 0, 0)), InputError, "draw.size", "got 0"),
    "sample size -1": (sample_matrix(Draw(KEY, 0, -1)), InputError, "draw.size", "got -1"),
    "sample hop 256": (sample_matrix(Draw(KEY, 256, 1)), InputError, "draw.hop", "got 256"),
    "sample key": (sample_matrix(Draw((1, 2**32), 0, 1)), InputError, "draw.key", str(2**32)),
    "sample ids short": (
        sample_matrix(Draw(KEY, 0, 1), batch_ids=np.array([1])),
        InputError,
        "batch_ids",
        "length 1; expected length 2",
    ),
    "sample id negative": (
        sample_matrix(Draw(KEY, 0, 1), batch_ids=np.array([1, -1])),
        InputError,
        "batch_ids",
        "-1 at position 1",
    ),
    "sample id 2^32": (
        sample_matrix(Draw(KEY, 0, 1), batch_ids=np.array([2**32, 1])),
        InputError,
        "batch_ids",
        "4294967296 at position 0",
    ),
    "sample ids float": (
        sample_matrix(Draw(KEY, 0, 1), batch_ids=np.array([1.0, 2.0])),
        DTypeError,
        "batch_ids",
        "float64",
    ),
    "shuffle negative": (lambda: sp.shuffle(-1), InputError, "count", "got -1"),
    "shuffle float": (lambda: sp.shuffle(3.0), DTypeError, "count", "3.0 of type float"),
    "shuffle seed": (lambda: sp.shuffle(3, BIG), InputError, "random_seed", str(BIG)),
    "shuffle epoch": (lambda: sp.shuffle(3, 0, -1), InputError, "epoch", "got -1"),
    "shuffle backend": (lambda: shuffle(3, backend="gpu"), InputError, "backend", "'gpu'"),
}


@pytest.mark.parametrize(("attempt", "kind", "argument", "words"), CASES.values(), ids=CASES.keys())
def test_bad_input_is_refused(assert_refused, attempt, kind, argument, words):
    assert_refused(attempt, kind, argument, words)


def test_there_are_enough_cases():
    assert len(CASES) >= 100


def test_errors_are_also_those_of_python():
    with pytest.raises(ValueError):
        sp.GraphSAGE([0])
    with pytest.raises(TypeError):
        sp.GraphSAGE(["a"])


def test_messages_stay_short():
    for attempt in (
        sage([*range(10**5), "x"]),
        call(sampler=list(range(10**5))),
        call(duplicates="x" * 10**5),
        call(backend="x" * 10**5),
        sage("x" * 10**5),
        sage(weighted="x" * 10**5),
        sage(replace=list(range(10**5))),
    ):
        with pytest.raises(InputError) as caught:
            attempt()
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", ["meta", "gradients", "float"])
def test_bad_seed_tensors(kind):
    torch = pytest.importorskip("torch")
    tensor = {
        "meta": torch.zeros(3, dtype=torch.int64, device="meta"),
        "gradients": torch.zeros(3, requires_grad=True),
        "float": torch.zeros(3),
    }[kind]
    with pytest.raises(DTypeError, match="seeds: got"):
        call(tensor)()


def test_a_huge_batch_size_is_one_batch():
    for batch_size in (2**31, 2**63, 2**100):
        assert len(call([0, 1, 2], batch_size=batch_size)()) == 1


def test_a_backend_that_cannot_be_loaded(monkeypatch):
    from spsample.backends import registry

    monkeypatch.setitem(registry._CLASSES, "broken", ("spsample.backends.broken", "BrokenBackend"))
    with pytest.raises(BackendError, match=r"backend 'broken' cannot be loaded: .*use backend='reference'"):
        sp.bulk_sample(GRAPH, [0], SAMPLER, batch_size=1, backend="broken")


def test_bad_calls_change_nothing():
    seeds = np.array([0, 1, 99])
    with pytest.raises(InputError):
        sp.bulk_sample(GRAPH, seeds, SAMPLER, batch_size=2)
    assert seeds.tolist() == [0, 1, 99]
    assert len(sp.bulk_sample(GRAPH, seeds[:2], SAMPLER, batch_size=2)) == 1
