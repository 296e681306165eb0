"""Generated data sets, the same on every machine: R-MAT, planted labels, and the digits of scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_int, require_number, require_type
from spsample.data.dataset import Dataset
from spsample.data.labels import random_split
from spsample.errors import require_module
from spsample.store import Graph
from spsample.store.validation import INT32_NODES

_WORDS = 4
"""Words that one step of the counter makes."""


class PhiloxStream:
    """A stream of random arrays from Philox4x64-10.

    Parameters
    ----------
    seed
        Any non-negative integer.
    purpose
        Streams of one seed and different purposes are independent.

    Examples
    --------
    >>> PhiloxStream(0).permutation(5).tolist() == PhiloxStream(0).permutation(5).tolist()
    True
    """

    def __init__(self, seed: int, purpose: int = 0) -> None:
        self._seed, self._purpose = require_int("random_seed", seed, minimum=0), purpose
        spawn_key = (purpose,) if purpose else ()
        self._bits = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=spawn_key))

    def at(self, place: int) -> PhiloxStream:
        """Return this stream from word `place` on, whatever was taken from it.

        Examples
        --------
        >>> bool(PhiloxStream(0).at(5).words(1) == PhiloxStream(0).words(6)[5])
        True
        """
        stream = PhiloxStream(self._seed, self._purpose)
        stream._bits.advance(place // _WORDS)
        stream._bits.random_raw(place % _WORDS)
        return stream

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` random 64-bit words."""
        result: NDArray[np.uint64] = self._bits.random_raw(count)
        return result

    def uniform(self, count: int) -> NDArray[np.float64]:
        """``count`` multiples of 2**-53 in [0, 1)."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """``count`` integers in [0, bound), uniform up to a relative error of ``bound / 2**53``."""
        return (self.uniform(count) * bound).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A random order of ``0 .. count - 1``: positions sorted by their random word."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)


def symmetric_graph(a: NDArray[Any], b: NDArray[Any], num_nodes: int) -> Graph:
    """Return the undirected graph of the pairs: both directions, no self-loops, no duplicates.

    Examples
    --------
    >>> graph = symmetric_graph(np.array([0, 1, 2]), np.array([1, 0, 2]), 3)
    >>> graph.indptr.tolist(), graph.indices.tolist()
    ([0, 1, 2, 2], [1, 0])
    """
    a, b = a[a != b].astype(np.int64), b[a != b].astype(np.int64)
    keys = np.concatenate([a * num_nodes + b, b * num_nodes + a])
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    targets, sources = np.divmod(keys, num_nodes)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=num_nodes))])
    return Graph(indptr.astype(np.int64), sources.astype(np.int32 if num_nodes <= INT32_NODES else np.int64))


def digits(num_neighbours: int = 10) -> Dataset:
    """Return the 1,797 digits of scikit-learn, each joined with its nearest neighbours.

    8 x 8 pixels are the features (scaled to [0, 1]); an edge joins two digits if one is among the
    ``num_neighbours`` nearest of the other by Euclidean distance. The split is 60/20/20, fixed.

    Raises
    ------
    MissingDependencyError
        If scikit-learn is not installed.

    References
    ----------
    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    needed_for = "the data set 'digits'"
    datasets = require_module("sklearn.datasets", needed_for=needed_for, extra="data", package="scikit-learn")
    bunch = datasets.load_digits()
    pixels, y = bunch.data.astype(np.int64), bunch.target.astype(np.int64)
    near = nearest_neighbours(pixels, num_neighbours)
    targets = np.repeat(np.arange(len(pixels)), num_neighbours)
    return Dataset(
        name="digits",
        graph=symmetric_graph(targets, near.ravel(), len(pixels)),
        x=pixels.astype(np.float32) / np.float32(16),
        y=y,
        num_classes=10,
        meta={"source": "sklearn.datasets.load_digits", "num_neighbours": num_neighbours},
        **random_split(PhiloxStream(0).permutation(len(pixels))),
    )


def nearest_neighbours(points: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the ``count`` nearest other points of each point, nearest first.

    Integer arithmetic and ties to the lower id: the same graph on every machine.

    Examples
    --------
    >>> nearest_neighbours(np.array([[0], [1], [3]]), 1).ravel().tolist()
    [1, 0, 1]
    """
    squares = (points * points).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * (points @ points.T)
    np.fill_diagonal(distances, np.iinfo(np.int64).max)
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


_A, _B, _C = 0.57, 0.19, 0.19
_CHUNK = 1 << 22
_MAX_SCALE = 31
NUM_FEATURES = 32
NUM_CLASSES = 16


def rmat(scale: int, edge_factor: int, *, random_seed: int = 0) -> Dataset:
    """Return an R-MAT graph of ``2**scale`` vertices with 32 random features and labels of 16 classes.

    ``edge_factor * 2**scale`` pairs are drawn with the quadrant probabilities .57, .19, .19, .05, taken in
    both directions; self-loops and duplicates are removed, so that there are fewer than twice as many edges.
    Vertices are not renumbered: low ids have the high degrees. Labels are independent of everything, so no
    model can learn them.

    Raises
    ------
    InputError
        If ``scale`` is not in [1, 31] or ``edge_factor`` is below 1.

    References
    ----------
    D. Chakrabarti, Y. Zhan and C. Faloutsos, "R-MAT: a recursive model for graph mining", SDM 2004.

    Examples
    --------
    >>> rmat(8, 4).graph.num_nodes
    256
    """
    scale, edge_factor = check_rmat(scale, edge_factor)
    stream = PhiloxStream(random_seed)
    n = 1 << scale
    pairs = edge_factor * n
    graph = symmetric_graph(*rmat_piece(scale, pairs, slice(0, pairs), stream), n)
    stream = stream.at(scale * pairs)
    x = (2 * stream.uniform(n * NUM_FEATURES) - 1).astype(np.float32).reshape(n, NUM_FEATURES)
    return Dataset(
        name="rmat",
        graph=graph,
        x=x,
        y=stream.below(NUM_CLASSES, n),
        num_classes=NUM_CLASSES,
        meta={"scale": scale, "edge_factor": edge_factor, "random_seed": random_seed},
        **random_split(stream.permutation(n)),
    )


def check_rmat(scale: int, edge_factor: int) -> tuple[int, int]:
    """Return the parameters of `rmat`, which has the errors."""
    scale = require_int("scale", scale, minimum=1, maximum=_MAX_SCALE)
    return scale, require_int("edge_factor", edge_factor, minimum=1)


def rmat_piece(
    scale: int, count: int, piece: slice, stream: PhiloxStream
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs `piece` of the first `count` directed R-MAT pairs (sources, targets), without making the others.

    One uniform number per pair and level picks a quadrant; its two bits are appended to the two ids. Duplicates and
    self-loops are among them.

    Examples
    --------
    >>> whole = rmat_piece(6, 100, slice(0, 100), PhiloxStream(0))
    >>> piece = rmat_piece(6, 100, slice(30, 50), PhiloxStream(0))
    >>> bool((piece[0] == whole[0][30:50]).all() and (piece[1] == whole[1][30:50]).all())
    True
    """
    size = piece.stop - piece.start
    sources, targets = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for start in range(piece.start - piece.start % _CHUNK, piece.stop, _CHUNK):
        first, last = max(start, piece.start), min(start + _CHUNK, piece.stop)
        length = min(_CHUNK, count - start)
        here = slice(first - piece.start, last - piece.start)
        for level in range(scale):
            u = stream.at(start * scale + level * length + first - start).uniform(last - first)
            lower = u >= _A + _B
            right = ((u >= _A) & ~lower) | (u >= _A + _B + _C)
            sources[here] = 2 * sources[here] + lower
            targets[here] = 2 * targets[here] + right
    return sources, targets


_REWIRING = 1


def planted(
    num_nodes: int, degree: int = 15, num_classes: int = 4, noise: float = 0.1, *, random_seed: int = 0
) -> Dataset:
    """Return a random graph whose labels are the noisy majority of the neighbours' colours.

    Construction:

    1. every vertex gets ``degree`` distinct in-neighbours other than itself, uniformly at random;
    2. every vertex gets a colour, uniform on the ``num_classes`` classes, independent of all else; its feature is the
       colour, one-hot;
    3. the majority ``m_v`` is the most frequent colour among the in-neighbours of v; a tie is broken uniformly among
       the tied colours;
    4. the label is ``m_v`` with probability ``1 - noise``, else one of the other classes, uniformly.

    A vertex's own feature is independent of its label: what is known of it without its edges leaves all
    classes equally likely. Labels of different vertices are independent given the colours and the graph, so
    that neither other labels nor farther vertices help.

    **Bayes rate.** Given the features and the graph, with ``t`` colours tied at v, a tied class is the label
    of v with probability ``(1 - noise) / t + (t - 1) / t * noise / (num_classes - 1)`` and any other class
    with ``noise / (num_classes - 1)``. The best classifier is right at v with the larger of the two;
    ``meta["bayes_rate"]`` is the mean of that over the test vertices, exact for this very graph; the accuracy
    that a perfect classifier shows on the test labels differs from it only by the coin flips of steps 3 and 4.

    Parameters
    ----------
    num_nodes
        Number of vertices, more than ``degree``.
    degree
        In-degree of every vertex, at least 1.
    num_classes
        Number of classes and colours, at least 2.
    noise
        Probability that a label is not the majority, in [0, 1].
    random_seed
        Seed of the generator.

    Raises
    ------
    InputError
        If a parameter is outside its range.

    Examples
    --------
    >>> dataset = planted(200, degree=5, num_classes=2, noise=0.1)
    >>> round(dataset.meta["bayes_rate"], 12)  # an odd degree and two classes: no ties
    0.9
    """
    require_int("degree", degree, minimum=1)
    require_int("num_nodes", num_nodes, minimum=degree + 1, maximum=INT32_NODES)
    require_int("num_classes", num_classes, minimum=2)
    require_number("noise", noise, lambda x: 0.0 <= x <= 1.0, "a probability in [0, 1]")
    stream = PhiloxStream(random_seed)
    indices, colours = _neighbours(stream, num_nodes, degree), stream.below(num_classes, num_nodes)
    near = colours[indices]
    counts = np.stack([(near == c).sum(axis=1) for c in range(num_classes)], axis=1)
    tied = counts == counts.max(axis=1, keepdims=True)
    majority = _pick_one(tied, stream)
    is_other = stream.uniform(num_nodes) < noise
    other = (majority + 1 + stream.below(num_classes - 1, num_nodes)) % num_classes
    rates = _bayes_rates(tied.sum(axis=1), num_classes, noise)
    split = random_split(stream.permutation(num_nodes))
    rate = float(rates[split["test_idx"]].mean()) if len(split["test_idx"]) else float("nan")
    return Dataset(
        name="planted",
        graph=Graph(np.arange(num_nodes + 1, dtype=np.int64) * degree, indices.astype(np.int32).ravel()),
        x=np.eye(num_classes, dtype=np.float32)[colours],
        y=np.where(is_other, other, majority),
        num_classes=num_classes,
        meta={"bayes_rate": rate, "degree": degree, "noise": noise, "random_seed": random_seed},
        **split,
    )


def rewire(dataset: Dataset, random_seed: int = 0) -> Dataset:
    """Return the data set with the sources of all edges permuted at random: the control experiment.

    Every vertex keeps its in-degree and its out-degree; everything else stays. On a `planted` graph no
    classifier does better than chance then, ``1 / num_classes``. Self-loops and multi-edges may arise.

    Parameters
    ----------
    dataset
        Any data set.
    random_seed
        Decides the permutation; independent of what the same seed decides in a generator.

    Examples
    --------
    >>> dataset = planted(100, degree=5)
    >>> control = rewire(dataset)
    >>> bool((np.sort(control.graph.indices) == np.sort(dataset.graph.indices)).all())
    True
    """
    require_type("dataset", dataset, Dataset, "a data set")
    graph = dataset.graph
    order = PhiloxStream(random_seed, purpose=_REWIRING).permutation(graph.num_edges)
    shuffled = Graph(graph.indptr, graph.indices[order], graph.data)
    meta = {key: value for key, value in dataset.meta.items() if key != "bayes_rate"}
    return replace(dataset, name=f"{dataset.name}-rewired", graph=shuffled, meta=meta)


def _neighbours(stream: PhiloxStream, num_nodes: int, degree: int) -> NDArray[np.int64]:
    """Return distinct in-neighbours of each vertex, ascending: Floyd's algorithm."""
    chosen = np.empty((num_nodes, degree), dtype=np.int64)
    for step in range(degree):
        largest = num_nodes - 1 - degree + step
        drawn = stream.below(largest + 1, num_nodes)
        repeated = (chosen[:, :step] == drawn[:, None]).any(axis=1)
        chosen[:, step] = np.where(repeated, largest, drawn)
    chosen += chosen >= np.arange(num_nodes)[:, None]  # from numbers among the other vertices to vertices
    chosen.sort(axis=1)
    return chosen


def _pick_one(marked: NDArray[np.bool_], stream: PhiloxStream) -> NDArray[np.int64]:
    """Return one marked column per row, each with the same probability."""
    rank = np.floor(stream.uniform(len(marked)) * marked.sum(axis=1)).astype(np.int64)
    hit = marked & (np.cumsum(marked, axis=1) == rank[:, None] + 1)
    result: NDArray[np.int64] = np.argmax(hit, axis=1)
    return result


def _bayes_rates(num_tied: NDArray[np.int64], num_classes: int, noise: float) -> NDArray[np.float64]:
    """Return each vertex's probability of being classified rightly by the best classifier."""
    other = noise / (num_classes - 1)
    tied = (1 - noise) / num_tied + (num_tied - 1) / num_tied * other
    # with every colour tied there is no other class, and tied = 1 / num_classes is not below `other` there
    return np.where(num_tied < num_classes, np.maximum(tied, other), tied)
