"""Bad graphs, bad seeds, bad options: a clear exception that names the argument and the first bad entry."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from stand_ins import OnDevice

from spsample.common.checks import require_choice, require_int
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.store import Graph
from spsample.store.validation import check_num_nodes, validate_seeds

INDPTR = np.array([0, 2, 3, 4])
INDICES = np.array([0, 1, 2, 0])
EDGES = np.array([[0, 1, 2, 0], [0, 0, 1, 2]])


class Broken:
    """Has no array in it."""

    def __repr__(self):
        return "<broken>"


def changed(array, position, value, dtype=None):
    array = np.array(array, dtype=dtype)
    array[position] = value
    return array


def csr(indptr=INDPTR, indices=INDICES, data=None, **options):
    return lambda: Graph(indptr, indices, data, **options)


def edges(edge_index=EDGES, **options):
    return lambda: Graph.from_edge_index(edge_index, **options)


def seeds(value, num_nodes=10):
    return lambda: validate_seeds(value, num_nodes)


def broken_csr(**parts):
    matrix = scipy.sparse.csr_array((np.ones(4), INDICES, INDPTR), shape=(3, 3))
    for name, value in parts.items():
        setattr(matrix, name, value)
    return matrix


def broken_csc(**parts):
    matrix = scipy.sparse.csc_array((np.ones(4), INDICES, INDPTR), shape=(3, 3))
    for name, value in parts.items():
        setattr(matrix, name, value)
    return matrix


def huge_rows():
    """2**31 vertices without edges, in eight bytes."""
    return np.broadcast_to(np.int64(0), (2**31 + 1,))


def diag(values):
    return scipy.sparse.diags_array(np.array(values)).tocsr()


def coo(values):
    return scipy.sparse.coo_array((np.array(values), ([0, 1], [1, 0])), shape=(2, 2))


MASKED = np.ma.masked_array([0, 1, 2, 0], mask=[0, 0, 1, 0])
BIG = np.array([0, 2**63 + 5, 1, 0], dtype=np.uint64)
HALF = np.array([0.0, 0.5, 1.0, 2.0])
INF = np.inf

# name: (call, exception, argument, words of the message)
CASES = {
    # CSR: indptr
    "indptr empty": (csr(indptr=[]), InputError, "indptr", "length 0"),
    "no vertices": (csr(indptr=[0], indices=[]), InputError, "indptr", "at least one vertex"),
    "indptr starts late": (csr(indptr=[1, 2, 3, 4]), InputError, "indptr", "1 at position 0"),
    "indptr starts negative": (csr(indptr=[-1, 2, 3, 4]), InputError, "indptr", "-1 at position 0"),
    "indptr falls": (csr(indptr=[0, 3, 2, 4]), InputError, "indptr", "2 at position 2, after 3"),
    "indptr falls last": (csr(indptr=[0, 2, 5, 4]), InputError, "indptr", "4 at position 3, after 5"),
    "indptr ends short": (csr(indptr=[0, 2, 3, 3]), InputError, "indptr", "3 at position 3"),
    "indptr ends long": (csr(indptr=[0, 2, 3, 9]), InputError, "indptr", "9 at position 3"),
    "indptr float": (csr(indptr=INDPTR.astype(float)), DTypeError, "indptr", "float64 (first entry 0.0)"),
    "indptr 2-D": (csr(indptr=INDPTR.reshape(2, 2)), InputError, "indptr", "shape (2, 2)"),
    "indptr column": (csr(indptr=INDPTR.reshape(4, 1)), InputError, "indptr", ".reshape(-1)"),
    "indptr scalar": (csr(indptr=4), InputError, "indptr", "the scalar 4"),
    "indptr None": (csr(indptr=None), DTypeError, "indptr", "None"),
    "indptr uint64": (csr(indptr=BIG), InputError, "indptr", f"{2**63 + 5} at position 1"),
    # CSR: indices
    "index negative": (csr(indices=changed(INDICES, 2, -1)), InputError, "indices", "-1 at position 2"),
    "index too large": (csr(indices=changed(INDICES, 1, 3)), InputError, "indices", "3 at position 1"),
    "index int32": (csr(indices=changed(INDICES, 3, -7, "i4")), InputError, "indices", "-7 at position 3"),
    "index big-endian": (
        csr(indices=changed(INDICES, 3, 99, ">i8")),
        InputError,
        "indices",
        "99 at position 3",
    ),
    "index uint64": (csr(indices=BIG), InputError, "indices", f"{2**63 + 5} at position 1"),
    "index uint32": (csr(indices=changed(INDICES, 0, 2**32 - 1, "u4")), InputError, "indices", "4294967295"),
    "indices float": (csr(indices=HALF), DTypeError, "indices", "dtype float64 (first entry 0.0)"),
    "indices bool": (csr(indices=INDICES > 0), DTypeError, "indices", "bool (first entry False)"),
    "indices strings": (csr(indices=["a", "b", "c", "d"]), DTypeError, "indices", "first entry 'a'"),
    "indices objects": (csr(indices=[0, None, 1, 2]), DTypeError, "indices", "None at position 1"),
    "indices dates": (csr(indices=INDICES.astype("M8[D]")), DTypeError, "indices", "datetime64"),
    "indices records": (csr(indices=np.zeros(4, "i4,i4")), DTypeError, "indices", "first entry (0, 0)"),
    "indices masked": (csr(indices=MASKED), DTypeError, "indices", "position 2"),
    "indices ragged": (csr(indices=[[0, 1], [2]]), InputError, "indices", "uneven lengths"),
    "indices 2-D": (csr(indices=INDICES.reshape(2, 2)), InputError, "indices", "shape (2, 2)"),
    "indices a set": (csr(indices={0, 1}), DTypeError, "indices", "of type set"),
    "indices a dict": (csr(indices={0: 1}), DTypeError, "indices", "of type dict"),
    "indices text": (csr(indices="0120"), DTypeError, "indices", "'0120' of type str"),
    "indices on a GPU": (csr(indices=OnDevice()), DTypeError, "indices", "device cuda:0"),
    "indices nothing": (csr(indices=Broken()), DTypeError, "indices", "<broken>"),
    "indices sparse": (csr(indices=scipy.sparse.eye(4)), DTypeError, "indices", "from_scipy"),
    "int32 too narrow": (
        csr(huge_rows(), np.zeros(0, "i4")),
        CapacityError,
        "indices",
        "int32 for 2147483648",
    ),
    # CSR: weights and edge ids
    "weight nan": (csr(data=[1, 2, np.nan, -1]), InputError, "data", "nan at position 2"),
    "weight negative": (csr(data=[1, -0.5, np.nan, 1]), InputError, "data", "-0.5 at position 1"),
    "weight inf": (csr(data=[1, 2, 3, INF]), InputError, "data", "inf at position 3"),
    "weight -inf": (csr(data=[-INF, 2, 3, 4]), InputError, "data", "-inf at position 0"),
    "weight float32": (csr(data=np.array([1, 2, np.nan, 1], "f4")), InputError, "data", "nan at position 2"),
    "weight negative int": (csr(data=[1, 2, -3, 4]), InputError, "data", "-3.0 at position 2"),
    "weight inexact": (csr(data=[1, 2**53 + 1, 3, 4]), InputError, "data", f"{2**53 + 1} at position 1"),
    "weight wide": (csr(data=np.array([2, 1, 3, 4]) / np.longdouble(3)), InputError, "data", "at position 0"),
    "weight complex": (csr(data=np.array([1j, 0, 0, 0])), DTypeError, "data", "first entry 1j"),
    "weights strings": (csr(data=["1", "2", "3", "4"]), DTypeError, "data", "first entry '1'"),
    "weights short": (csr(data=[1, 2, 3]), InputError, "data", "length 3; expected length 4"),
    "weights long": (csr(data=np.ones(5)), InputError, "data", "length 5; expected length 4"),
    "weights column": (csr(data=np.ones((4, 1))), InputError, "data", "shape (4, 1)"),
    "weights scalar": (csr(data=1.0), InputError, "data", "the scalar 1.0"),
    "weights masked": (csr(data=np.ma.masked_invalid([1, np.nan, 1, 1])), DTypeError, "data", "position 1"),
    "edge ids short": (csr(edge_ids=[1, 2]), InputError, "edge_ids", "length 2; expected length 4"),
    "edge ids negative": (csr(edge_ids=[1, 2, -5, 3]), InputError, "edge_ids", "-5 at position 2"),
    "edge ids float": (csr(edge_ids=HALF), DTypeError, "edge_ids", "float64"),
    # lists of edges
    "edges transposed": (edges(EDGES.T), InputError, "edge_index", "shape (4, 2)"),
    "edges transposed, advice": (edges(EDGES.T), InputError, "edge_index", "Pass its transpose."),
    "edges 1-D": (edges(EDGES[0]), InputError, "edge_index", "shape (4,)"),
    "edges 3-D": (edges(EDGES[None]), InputError, "edge_index", "shape (1, 2, 4)"),
    "edges scalar": (edges(3), InputError, "edge_index", "shape ()"),
    "edges ragged": (edges([[0, 1], [2]]), InputError, "edge_index", "uneven lengths"),
    "edges float": (edges(EDGES + 0.5), DTypeError, "edge_index", "first entry 0.5"),
    "edges whole floats": (edges(EDGES.astype(float)), DTypeError, "edge_index", "float64"),
    "edges bool": (edges(EDGES > 0), DTypeError, "edge_index", "dtype bool"),
    "edges negative": (edges(changed(EDGES, (1, 2), -4)), InputError, "edge_index", "-4 at position (1, 2)"),
    "all edges negative": (edges([[-1], [-1]]), InputError, "edge_index", "-1 at position (0, 0)"),
    "edges beyond": (
        edges(num_nodes=2),
        InputError,
        "edge_index",
        "2 at position (0, 2); expected vertex ids in [0, 2)",
    ),
    "edges beyond, advice": (edges(num_nodes=2), InputError, "edge_index", "num_nodes=2 was given"),
    "edges none": (edges(np.zeros((2, 0), int)), InputError, "edge_index", "pass num_nodes"),
    "edges uint64": (edges([BIG, BIG]), InputError, "edge_index", f"{2**63 + 5} at position (0, 1)"),
    "edges above 48 bits": (
        edges([[0], [2**48]]),
        CapacityError,
        "edge_index",
        f"{2**48} at position (1, 0)",
    ),
    "edges of a matrix": (edges(scipy.sparse.eye(2)), DTypeError, "edge_index", "scipy dia matrix"),
    "num_nodes 0": (edges(num_nodes=0), InputError, "num_nodes", "got 0"),
    "num_nodes negative": (edges(num_nodes=-3), InputError, "num_nodes", "got -3"),
    "num_nodes float": (edges(num_nodes=3.0), DTypeError, "num_nodes", "3.0 of type float"),
    "num_nodes bool": (edges(num_nodes=True), DTypeError, "num_nodes", "True of type bool"),
    "num_nodes text": (edges(num_nodes="3"), DTypeError, "num_nodes", "'3' of type str"),
    "num_nodes huge": (edges(num_nodes=2**48 + 1), CapacityError, "num_nodes", str(2**48 + 1)),
    "edge weight nan": (edges(edge_weight=[1, 1, np.nan, 1]), InputError, "edge_weight", "nan at position 2"),
    "edge weight negative": (
        edges(edge_weight=[1, -1, 1, 1]),
        InputError,
        "edge_weight",
        "-1.0 at position 1",
    ),
    "edge weight short": (
        edges(edge_weight=[1, 1]),
        InputError,
        "edge_weight",
        "length 2; expected length 4",
    ),
    "edge weight 2-D": (edges(edge_weight=np.ones((4, 1))), InputError, "edge_weight", "shape (4, 1)"),
    "edge weight complex": (edges(edge_weight=EDGES[0] * 1j), DTypeError, "edge_weight", "complex128"),
    # scipy matrices
    "matrix dense": (lambda: Graph.from_scipy(np.eye(3)), DTypeError, "matrix", "type ndarray"),
    "matrix oblong": (
        lambda: Graph.from_scipy(scipy.sparse.csr_array((3, 4))),
        InputError,
        "matrix",
        "(3, 4)",
    ),
    "matrix nan": (
        lambda: Graph.from_scipy(diag([1, np.nan])),
        InputError,
        "matrix.data",
        "nan at position 1",
    ),
    "matrix negative": (
        lambda: Graph.from_scipy(coo([1.0, -2])),
        InputError,
        "matrix.data",
        "-2.0 at position 1",
    ),
    "matrix complex": (lambda: Graph.from_scipy(diag([1j, 1])), DTypeError, "matrix.data", "first entry 1j"),
    "matrix index": (
        lambda: Graph.from_scipy(broken_csr(indices=changed(INDICES, 1, 8))),
        InputError,
        "matrix.indices",
        "8 at position 1",
    ),
    "matrix indptr": (
        lambda: Graph.from_scipy(broken_csr(indptr=changed(INDPTR, 1, 9))),
        InputError,
        "matrix.indptr",
        "3 at position 2, after 9",
    ),
    "matrix truncated": (
        lambda: Graph.from_scipy(broken_csr(indices=INDICES[:2])),
        InputError,
        "matrix.data",
        "length 4; expected length 2",
    ),
    "matrix csc indptr": (
        lambda: Graph.from_scipy(broken_csc(indptr=changed(INDPTR, 1, 10**6))),
        InputError,
        "matrix",
        "a broken csc matrix",
    ),
    # seeds
    "seed negative": (
        seeds([1, 2, -3]),
        InputError,
        "seeds",
        "-3 at position 2; expected vertex ids in [0, 10)",
    ),
    "seed too large": (seeds([1, 10, 11]), InputError, "seeds", "10 at position 1"),
    "seed uint64": (seeds(BIG), InputError, "seeds", f"{2**63 + 5} at position 1"),
    "seed wide list": (seeds([1, 2**70]), DTypeError, "seeds", f"{2**70} at position 1"),
    "seeds float": (seeds([1.0, 2.0]), DTypeError, "seeds", "float64 (first entry 1.0)"),
    "seeds mask": (seeds(np.ones(10, bool)), DTypeError, "seeds", "numpy.flatnonzero(mask)"),
    "seeds list of bools": (seeds([1, True]), DTypeError, "seeds", "True at position 1"),
    "seeds 2-D": (seeds([[1, 2], [3, 4]]), InputError, "seeds", "shape (2, 2)"),
    "seeds scalar": (seeds(3), InputError, "seeds", "the scalar 3"),
    "seeds None": (seeds(None), DTypeError, "seeds", "None"),
    "seeds text": (seeds("123"), DTypeError, "seeds", "'123'"),
    "seeds objects": (seeds([1, None]), DTypeError, "seeds", "None at position 1"),
    "seeds ragged": (seeds([1, [2, 3]]), InputError, "seeds", "uneven lengths"),
    "seeds masked": (seeds(MASKED), DTypeError, "seeds", "position 2"),
    "seeds generator": (seeds(i for i in range(3)), DTypeError, "seeds", "generator"),
    "seeds on a GPU": (seeds(OnDevice()), DTypeError, "seeds", "device cuda:0"),
    # integers and choices
    "integer too small": (
        lambda: require_int("k", 0, 1, 9),
        InputError,
        "k",
        "got 0; expected an integer in [1, 9]",
    ),
    "integer too large": (
        lambda: require_int("k", 10, maximum=9),
        InputError,
        "k",
        "got 10; expected an integer of at most 9",
    ),
    "integer a float": (lambda: require_int("k", 1.0), DTypeError, "k", "1.0 of type float"),
    "integer a bool": (lambda: require_int("k", True), DTypeError, "k", "True of type bool"),
    "integer a NumPy bool": (lambda: require_int("k", np.True_), DTypeError, "k", "of type bool"),
    "integer None": (lambda: require_int("k", None), DTypeError, "k", "None"),
    "integer an array": (lambda: require_int("k", np.array(3)), DTypeError, "k", "of type ndarray"),
    "vertices negative": (lambda: check_num_nodes("n", -1), InputError, "n", "-1"),
    "choice unknown": (
        lambda: require_choice("law", "norms", ("norm",)),
        InputError,
        "law",
        "'norms'; expected one of 'norm'",
    ),
    "choice no text": (lambda: require_choice("law", 1, ("norm",)), DTypeError, "law", "1 of type int"),
}


@pytest.mark.parametrize(("call", "kind", "argument", "words"), CASES.values(), ids=CASES.keys())
def test_bad_input_is_refused(assert_refused, call, kind, argument, words):
    assert_refused(call, kind, argument, words)


def test_there_are_enough_cases():
    assert len(CASES) >= 40


@pytest.mark.parametrize("ids", [2**40, 2**47])
def test_a_stray_id_is_no_crash(ids):
    """More vertices than memory holds: an exception, which says what to look for."""
    with pytest.raises(CapacityError, match=r"num_nodes: got .* vertex id may be far too large"):
        Graph.from_edge_index([[0], [ids]])


def torch_cases():
    """Tensors that have no plain array in host memory."""
    torch = pytest.importorskip("torch")
    return {
        "meta device": (torch.zeros(4, dtype=torch.int64, device="meta"), "device meta"),
        "sparse tensor": (torch.eye(4).to_sparse(), "torch.sparse_coo"),
        "sparse CSR tensor": (torch.eye(4).to_sparse_csr(), "torch.sparse_csr"),
        "gradients": (torch.ones(4, requires_grad=True), "detach()"),
        "bfloat16": (torch.ones(4, dtype=torch.bfloat16), "BFloat16"),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", ["meta device", "sparse tensor", "sparse CSR tensor", "gradients", "bfloat16"])
def test_bad_tensors_are_refused(name):
    tensor, words = torch_cases()[name]
    for call, argument in (
        (csr(data=tensor), "data"),
        (seeds(tensor), "seeds"),
        (edges(tensor), "edge_index"),
    ):
        with pytest.raises(DTypeError) as caught:
            call()
        assert caught.value.argument == argument
        assert words in str(caught.value)


def test_a_gpu_tensor_is_refused():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with pytest.raises(DTypeError, match="device cuda:0"):
        validate_seeds(torch.zeros(3, dtype=torch.int64, device="cuda"), 10)


def test_bad_input_changes_nothing():
    indices = changed(INDICES, 1, 9)
    before = indices.copy()
    with pytest.raises(InputError):
        Graph(INDPTR, indices)
    np.testing.assert_array_equal(indices, before)
    assert indices.flags.writeable
