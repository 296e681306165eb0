"""`Graph.from_pyg`: PyG's data as a graph, with edge ids that are its columns."""

from __future__ import annotations

import numpy as np
import pytest

import spsample as sp
from spsample.errors import DTypeError, InputError
from spsample.store import to_scipy

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.data")

EDGES = torch.tensor([[2, 0, 1, 2, 0], [0, 1, 0, 0, 3]])


def test_edge_ids_are_columns_of_edge_index() -> None:
    graph = sp.Graph.from_pyg(pyg.Data(edge_index=EDGES, num_nodes=5))
    assert (graph.num_nodes, graph.num_edges, graph.weighting) == (5, 5, "unweighted")
    target = np.repeat(np.arange(5), graph.in_degrees())
    assert np.array_equal(EDGES.numpy()[:, graph.edge_ids], np.stack([graph.indices, target]))
    assert np.array_equal(graph.edge_ids, [2, 0, 3, 1, 4])


def test_the_number_of_vertices_is_that_of_the_data() -> None:
    assert sp.Graph.from_pyg(pyg.Data(edge_index=EDGES, x=torch.zeros(9, 2))).num_nodes == 9


def test_weights_only_where_they_are_named() -> None:
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    data = pyg.Data(edge_index=EDGES, num_nodes=4, edge_weight=weight, w=torch.arange(5).bfloat16())
    assert sp.Graph.from_pyg(data).data is None
    graph = sp.Graph.from_pyg(data, weight_attr="edge_weight")
    assert graph.weighting == "weighted"
    assert graph.data.tolist() == [3, 1, 4, 2, 5]
    assert sp.Graph.from_pyg(data, weight_attr="w").data.tolist() == [2, 0, 3, 1, 4]


def test_pygs_own_class_of_edges() -> None:
    edge_index = pytest.importorskip("torch_geometric").EdgeIndex(EDGES, sparse_size=(4, 4))
    assert sp.Graph.from_pyg(pyg.Data(edge_index=edge_index)).edge_ids.tolist() == [2, 0, 3, 1, 4]


def test_adj_t_of_torch_sparse() -> None:
    sparse = pytest.importorskip("torch_sparse")
    adj_t = sparse.SparseTensor(row=EDGES[1], col=EDGES[0], value=torch.arange(5.0), sparse_sizes=(4, 4))
    graph = sp.Graph.from_pyg(pyg.Data(adj_t=adj_t, w=torch.tensor([5.0, 6.0, 7.0, 8.0, 9.0])), weight_attr="w")
    assert graph.edge_ids is None  # entries are in the order of adj_t
    assert graph.indices.tolist() == [1, 2, 2, 0, 0]
    assert graph.data.tolist() == [5, 6, 7, 8, 9]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
@pytest.mark.parametrize("attr", [None, "w"])
def test_adj_t_of_torch_alone(layout, attr) -> None:
    """What ToSparseTensor makes where torch-sparse is not installed."""
    from torch_geometric.transforms import ToSparseTensor

    from spsample.pyg import NeighborLoader

    edges = torch.unique(torch.randint(0, 20, (2, 90), generator=torch.Generator().manual_seed(0)), dim=1)
    count = edges.shape[1]
    data = pyg.Data(edge_index=edges, x=torch.zeros(20, 1), w=torch.rand(count), edge_attr=torch.arange(count))
    data = ToSparseTensor(attr=attr, layout=layout, remove_edge_index=False)(data)
    both, matrix = data.clone(), data.adj_t.to_dense()
    del data.edge_index
    graph = sp.Graph.from_pyg(data)
    assert graph.edge_ids is None
    np.testing.assert_array_equal(to_scipy(graph).toarray() > 0, matrix > 0)
    for one in (data, both):
        for batch in NeighborLoader(one, [-1], input_nodes=[3, 7, 3], batch_size=3, random_seed=0):
            seeds = batch.n_id[:3]
            assert batch.adj_t.layout == layout
            assert torch.equal(batch.adj_t.to_dense()[:3], matrix[seeds][:, batch.n_id] * is_drawn(batch))
            assert torch.equal(batch.edge_attr, both.edge_attr[batch.e_id])
            assert ("edge_index" in batch) == (one is both)


def sparse_data(layout, **attributes):
    edges = torch.unique(torch.randint(0, 20, (2, 90), generator=torch.Generator().manual_seed(0)), dim=1)
    entries = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (20, 20)).coalesce()
    return pyg.Data(adj_t=entries if layout == torch.sparse_coo else entries.to_sparse_csr(), **attributes)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("error:Unable to accurately infer")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional"])
def test_attributes_are_cut_where_adj_t_alone_says_how_many_there_are(layout, subgraph_type) -> None:
    from spsample.pyg import NeighborLoader

    count = sparse_data(layout).adj_t._nnz()
    attributes = {"y": torch.arange(20) * 10, "z": [str(v) for v in range(20)], "a": np.arange(20)}
    attributes |= {"w": torch.arange(count) * 10, "u": list(range(count)), "label": torch.zeros(7)}
    data = sparse_data(layout, **attributes)
    for batch in NeighborLoader(data, [2], [7, 9, 3], batch_size=2, subgraph_type=subgraph_type, random_seed=0):
        assert torch.equal(batch.y, batch.n_id * 10)
        assert batch.z == [str(v) for v in batch.n_id.tolist()]
        assert batch.a.tolist() == batch.n_id.tolist()
        assert torch.equal(batch.w, batch.e_id * 10)
        assert batch.u == batch.e_id.tolist()
        assert batch.label.shape == (7,)
        assert not {"num_nodes", "num_edges"} & set(batch.keys())
    assert set(data.keys()) == {"adj_t", *attributes}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_labels_of_links_beside_adj_t(layout) -> None:
    """What RandomLinkSplit adds is of other edges than those of the graph."""
    from torch_geometric.transforms import RandomLinkSplit, ToSparseTensor

    from spsample.pyg import NeighborLoader

    edges = torch.unique(torch.randint(0, 20, (2, 90), generator=torch.Generator().manual_seed(0)), dim=1)
    split = RandomLinkSplit(num_val=0.1, num_test=0.1)(pyg.Data(x=torch.arange(20.0)[:, None], edge_index=edges))[0]
    data = ToSparseTensor(layout=layout)(split)
    graph = sp.Graph.from_pyg(data)
    assert graph.num_edges == data.adj_t._nnz() != len(data.edge_label)
    batch = next(iter(NeighborLoader(data, [2], [3, 4], batch_size=2, graph=graph)))
    assert torch.equal(batch.edge_label, data.edge_label)
    assert torch.equal(batch.x[:, 0].long(), batch.n_id)


class OtherSparse:
    """A sparse matrix of another package, as torch_sparse has it."""

    def coo(self):
        return EDGES[1], EDGES[0], None


def test_a_sparse_matrix_of_another_package_has_all_edges() -> None:
    data = pyg.Data(adj_t=OtherSparse(), edge_label=torch.zeros(9), num_nodes=4)
    assert sp.Graph.from_pyg(data).num_edges == 5


@pytest.mark.parametrize("key", ["edge_attr", "edge_weight", "edge_type"])
def test_merged_edges_beside_edge_index_have_a_way_out(key) -> None:
    twice = torch.cat([EDGES, EDGES], dim=1)
    data = pyg.Data(edge_index=twice, num_nodes=4, **{key: torch.zeros(10)})
    data.adj_t = torch.sparse_coo_tensor(twice.flip(0), torch.ones(10), (4, 4)).coalesce()
    with pytest.raises(
        InputError, match=r"^data.adj_t: got 4 entries.* 10 edges.*RemoveDuplicated.*, or del data.adj_t"
    ):
        sp.Graph.from_pyg(data)
    del data.adj_t
    assert sp.Graph.from_pyg(data).num_edges == 10


def is_drawn(batch):
    """Of a vertex that is there twice, edges lead out of its first place."""
    first = {v: place for place, v in reversed(list(enumerate(batch.n_id.tolist())))}
    return torch.tensor([first[v] == place for place, v in enumerate(batch.n_id.tolist())])


def test_typed_graphs_are_refused_with_what_to_do() -> None:
    data = pyg.HeteroData()
    data["a"].x = torch.zeros(3, 1)
    data["a", "to", "a"].edge_index = EDGES[:, :2]
    with pytest.raises(DTypeError, match=r"^data: got HeteroData.*to_homogeneous\(\)"):
        sp.Graph.from_pyg(data)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (pyg.Data(x=torch.zeros(3, 1)), {}, r"^data: got Data without edge_index; expected torch_geometric.data.Data"),
        ("cora.pt", {}, r"^data: got str without edge_index"),
        (pyg.Data(edge_index=EDGES, num_nodes=2), {}, r"^data.edge_index: got 2 at position \(0, 0\)"),
        (
            pyg.Data(edge_index=EDGES, x=torch.zeros(2, 1)),
            {},
            r"data.num_nodes is 2\. Where it is not set, .* rows of x",
        ),
        (pyg.Data(edge_index=EDGES.float(), num_nodes=4), {}, r"^data.edge_index: got dtype float32"),
        (
            pyg.Data(edge_index=EDGES, num_nodes=4),
            {"weight_attr": "w"},
            r"^weight_attr: got 'w'; expected an attribute of the data with a weight per edge",
        ),
        (pyg.Data(edge_index=EDGES, w=torch.ones(4), num_nodes=4), {"weight_attr": "w"}, r"^data.w: got length 4"),
        (pyg.Data(edge_index=EDGES, w=-torch.ones(5), num_nodes=4), {"weight_attr": "w"}, r"^data.w: got -1.0 at"),
        (pyg.Data(edge_index=EDGES, w=torch.ones(5, 1), num_nodes=4), {"weight_attr": "w"}, r"^data.w: got shape"),
        (pyg.Data(edge_index=EDGES, num_nodes=4), {"weight_attr": 3}, r"^weight_attr: got 3"),
        (pyg.Data(adj_t=torch.eye(3).to_sparse_csc()), {}, r"^data.adj_t: got Tensor of layout .*csc; .*edge_index"),
        (pyg.Data(adj_t=torch.eye(3)), {}, r"^data.adj_t: got Tensor of layout torch.strided"),
        (pyg.Data(adj_t=[[0], [1]]), {}, r"^data.adj_t: got list; expected a torch_sparse.SparseTensor"),
        (
            pyg.Data(adj_t=torch.eye(3).to_sparse_csr(), edge_attr=torch.zeros(5)),
            {},
            r"^data.adj_t: got 3 entries, where attributes of the data have 5 edges; .*RemoveDuplicatedEdges",
        ),
    ],
)
def test_errors(data, options, message) -> None:
    with pytest.raises(InputError, match=message):
        sp.Graph.from_pyg(data, **options)
