"""The law in pure Python, straight from docs/law.md: integers, fractions and lists, no NumPy, nothing of spsample.

It is independent of every backend, so that the golden vectors are more than what one of them happened to return.
A graph is a `ModelGraph`; sections are those of the law.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from fractions import Fraction

MASK32 = 2**32 - 1
SAMPLING, SHUFFLING = 1, 2


@dataclass
class ModelGraph:
    """`rows[i]` lists row i's entries as (source, weight or None, edge id), in the law's order."""

    rows: list[list[tuple[int, float | None, int]]]
    weighting: str = "unweighted"
    single: bool = False
    """Values are rounded to float32."""

    @classmethod
    def from_edges(cls, num_nodes, edges, weights=None, weighting="unweighted", single=False):
        order = sorted(range(len(edges)), key=lambda position: (edges[position][1], edges[position][0], position))
        rows = [[] for _ in range(num_nodes)]
        for position in order:
            source, target = edges[position]
            rows[target].append((source, None if weights is None else weights[position], position))
        return cls(rows, weighting, single or weights is None)

    def weight(self, i, place):
        """A_iv as binary64."""
        if self.weighting == "unweighted":
            return 1.0
        return 1.0 / len(self.rows[i]) if self.weighting == "row" else self.rows[i][place][1]


# --- section 1: random bits -----------------------------------------------------------------------------------------


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return [c0, c1, c2, c3]


def derive_key(random_seed, epoch, purpose):
    words = philox((epoch & MASK32, epoch >> 32, purpose, 0), (random_seed & MASK32, random_seed >> 32))
    return words[0], words[1]


@dataclass
class Stream:
    """The draws of one row, or of one batch and layer (vertex 0)."""

    key: tuple[int, int]
    vertex: int
    hop: int
    batch: int
    rejected: list[int] = field(default_factory=list)
    """Draw numbers whose word was rejected, once for each rejection."""

    def word(self, j, wide, attempt):
        c1 = (self.vertex >> 32) | self.hop << 16 | attempt << 24
        w = philox((self.vertex & MASK32, c1, j // (2 if wide else 4), self.batch), self.key)
        return w[2 * (j % 2)] + (w[2 * (j % 2) + 1] << 32) if wide else w[j % 4]

    def integer(self, j, t, wide):
        bits = 64 if wide else 32
        for attempt in range(256):
            m = self.word(j, wide, attempt) * t
            if m % 2**bits >= 2**bits % t or attempt == 255:
                return m >> bits
            self.rejected.append(j)
        raise AssertionError("unreachable")


# --- section 2: integer probabilities -------------------------------------------------------------------------------


def ceil_log2(x):
    return (x - 1).bit_length()


def exponent(w):
    return math.frexp(w)[1]


def power_of_two(e):
    return Fraction(2) ** e


def quantize(w, shift, power=1):
    if w == 0:
        return 0
    m, e = math.frexp(w)
    return max(1, round(Fraction(m if power == 1 else m * m) * power_of_two(power * e + shift)))


def row_numerators(weights):
    """Row rule."""
    positive = [w for w in weights if w > 0]
    if not positive:
        return [0] * len(weights)
    base = max(map(exponent, positive)) + ceil_log2(len(positive))
    scaled = [Fraction(w) * power_of_two(32 - base) for w in positive]
    narrow = all(x >= 2**11 for x in scaled) or all(x.denominator == 1 for x in scaled)
    return [quantize(w, (32 if narrow else 62) - base) for w in weights]


def frontier_numerators(graph, frontier, power, column_power):
    """Frontier rule: N of each entry, row by row."""
    weights = [[graph.weight(i, place) for place in range(len(graph.rows[i]))] for i in frontier]
    if graph.weighting == "unweighted":
        return [[1] * len(row) for row in weights]
    exponents = [exponent(w) for row in weights for w in row if w > 0]
    if not exponents:
        return [[0] * len(row) for row in weights]
    count = sum(map(len, weights))
    shift = {1: 62, 2: 31}[column_power] - power * max(exponents) - ceil_log2(count)
    return [[quantize(w, shift, power) for w in row] for row in weights]


# --- section 3: the draw laws ---------------------------------------------------------------------------------------


def upper_bound(numerators, x):
    """The first outcome whose inclusive prefix sum exceeds x."""
    total = 0
    for outcome, n in enumerate(numerators):
        total += n
        if total > x:
            return outcome
    raise AssertionError("x is below the total")


def floyd(stream, d, s):
    if d <= s:
        return list(range(d))
    chosen = []
    for j in range(s):
        t = stream.integer(j, d - s + j + 1, d > 2**32)
        chosen.append(d - s + j if t in chosen else t)
    return chosen


def first_distinct(stream, labels, numerators, s):
    """The first s distinct labels; entry k has label `labels[k]` and weight `numerators[k]`; redraws every 4s draws."""
    support = sorted({label for label, n in zip(labels, numerators, strict=True) if n > 0})
    if len(support) <= s:
        return support
    wide = sum(numerators) > 2**32
    remaining, chosen, j = list(numerators), [], 0
    while True:
        if j % (4 * s) == 0:
            remaining = [0 if label in chosen else n for label, n in zip(labels, numerators, strict=True)]
        label = labels[upper_bound(remaining, stream.integer(j, sum(remaining), wide))]
        if label not in chosen:
            chosen.append(label)
        if len(chosen) == s:
            return chosen
        j += 1


def with_replacement(stream, labels, numerators, s):
    total = sum(numerators)
    if total == 0:
        return []
    return [labels[upper_bound(numerators, stream.integer(j, total, total > 2**32))] for j in range(s)]


def sample_row(graph, stream, v, s, *, weighted, replace):
    """Row law: places of the drawn entries within row v."""
    places = list(range(len(graph.rows[v])))
    if s < 0:
        return places
    if not weighted:
        if replace:
            return [stream.integer(j, len(places), len(places) > 2**32) for j in range(s)] if places else []
        return floyd(stream, len(places), s)
    numerators = row_numerators([w for _, w, _ in graph.rows[v]])
    return (with_replacement if replace else first_distinct)(stream, places, numerators, s)


# --- sections 3, 4 and 6: whole layers ------------------------------------------------------------------------------


def source_order(dst, columns, include_targets):
    if not include_targets:
        return sorted(set(columns))
    return list(dst) + sorted(set(columns) - set(dst))


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def layer_of(graph, dst, src, rows, values):
    """One layer as plain lists; `rows[r]` are (column id, edge id) and `values[r]` floats or None."""
    place = {v: k for k, v in enumerate(src)}
    indptr = [0]
    for row in rows:
        indptr.append(indptr[-1] + len(row))
    data = None if values is None else [single(x) if graph.single else x for row in values for x in row]
    return {
        "dst": list(dst),
        "src": src,
        "indptr": indptr,
        "indices": [place[v] for row in rows for v, _ in row],
        "edge_ids": [e for row in rows for _, e in row],
        "data": data,
    }


def drawn_rows(graph, vertices, options, key, hop, batch, s):
    """GraphSAGE: (column, edge id) rows and weights rows of the vertices."""
    weighted = graph.weighting == "weighted" and options.get("weighted") is not False
    rows, values = [], []
    for v in vertices:
        places = sample_row(
            graph, Stream(key, v, hop, batch), v, s, weighted=weighted, replace=options.get("replace", False)
        )
        rows.append([(graph.rows[v][p][0], graph.rows[v][p][2]) for p in places])
        values.append([graph.weight(v, p) for p in places])
    return rows, None if graph.weighting == "unweighted" else values


def graphsage(graph, dst, fanouts, options, key, batch):
    """Blocks; layer 1 first."""
    layers = []
    for hop, s in enumerate(fanouts):
        rows, values = drawn_rows(graph, dst, options, key, hop, batch, s)
        columns = [v for row in rows for v, _ in row]
        src = source_order(dst, columns, options.get("include_targets", True))
        layers.append(layer_of(graph, dst, src, rows, values))
        dst = src
    return layers[::-1]


def graphsage_subgraph(graph, dst, fanouts, options, key, batch):
    """Subgraph: only vertices first found at hop h are drawn at hop h; layers are prefixes."""
    known, fresh, layers, rows, values = list(dst), list(dst), [], [], []
    for hop, s in enumerate(fanouts):
        new_rows, new_values = drawn_rows(graph, fresh, options, key, hop, batch, s)
        targets, rows = known, rows + new_rows
        values = None if new_values is None else values + new_values
        known = source_order(known, [v for row in new_rows for v, _ in row], True)
        fresh = known[len(targets) :]
        layers.append(layer_of(graph, targets, known, rows, values))
    return layers[::-1]


def draw_columns(graph, frontier, stream, s, sampler, options):
    """(columns drawn in order, repeats kept; N by column; T) of LADIES and FastGCN."""
    law = options.get("law", "norm")
    power, column_power = (1, 2) if sampler == "LADIES" and law == "squared_count" else (2, 1)
    counted = list(range(len(graph.rows))) if sampler == "FastGCN" else frontier
    N = frontier_numerators(graph, counted, power, column_power)
    entries = [
        (v, n) for i, row in zip(counted, N, strict=True) for (v, _, _), n in zip(graph.rows[i], row, strict=True)
    ]
    sums = {}
    for v, n in entries:
        sums[v] = sums.get(v, 0) + n
    sums = {v: n**column_power for v, n in sums.items()}
    draw = with_replacement if options.get("replace", False) else first_distinct
    if sampler == "LADIES" and law == "norm" and graph.weighting != "weighted":  # entry law
        drawn = draw(stream, [v for v, _ in entries], [n for _, n in entries], s)
    else:
        columns = sorted(sums)
        drawn = draw(stream, columns, [sums[v] for v in columns], s)
    return drawn, sums, sum(sums.values())


def column_weights(drawn, N, T, s, src, dst, options):
    """c_v of the law's section 6."""
    positive = [v for v in N if N[v] > 0]
    distinct = list(dict.fromkeys(drawn))
    count = len(distinct)
    if options.get("values", "unbiased") == "reference":
        return {v: float(T) / (float(count) * float(N[v])) if N.get(v) else 0.0 for v in src}
    c = {}
    before = 0
    for r, v in enumerate(distinct, start=1):
        if options.get("replace", False):
            c[v] = (float(drawn.count(v)) * float(T)) / (float(s) * float(N[v]))
        elif len(positive) <= s:
            c[v] = 1.0
        else:
            c[v] = (float(T - before) / float(N[v]) + float(count - r)) / float(count)
        before += N[v]
    targets = set(dst) if options.get("include_targets", True) else set()
    return {v: 1.0 if v in targets else c[v] for v in src}


def normalized(row):
    total = 0.0
    for value in row:
        total += value
    return [value / total for value in row] if total != 0.0 else row


def layerwise(graph, dst, sizes, options, key, batch, sampler):
    layers = []
    normalize = options.get("normalize_rows", False) or options.get("values") == "reference"
    for hop, s in enumerate(sizes):
        drawn, N, T = draw_columns(graph, dst, Stream(key, 0, hop, batch), s, sampler, options)
        src = source_order(dst, drawn, options.get("include_targets", True))
        c = column_weights(drawn, N, T, s, src, dst, options)
        rows, values = [], []
        for i in dst:
            kept = [p for p, (v, _, _) in enumerate(graph.rows[i]) if v in c]
            rows.append([(graph.rows[i][p][0], graph.rows[i][p][2]) for p in kept])
            row = [graph.weight(i, p) * c[graph.rows[i][p][0]] for p in kept]
            values.append(normalized(row) if normalize else row)
        layers.append(layer_of(graph, dst, src, rows, values))
        dst = src
    return layers[::-1]


def sample_batch(graph, seeds, sampler, sizes, options, *, random_seed, epoch, batch_id):
    """Layers of one minibatch, layer 1 first."""
    key = derive_key(random_seed, epoch, SAMPLING)
    dst = list(dict.fromkeys(seeds))
    if sampler != "GraphSAGE":
        return layerwise(graph, dst, sizes, options, key, batch_id, sampler)
    if options.get("layout") == "subgraph":
        return graphsage_subgraph(graph, dst, sizes, options, key, batch_id)
    return graphsage(graph, dst, sizes, options, key, batch_id)


# --- section 5 ------------------------------------------------------------------------------------------------------


def local_batches(order, parts, num_parts, ranks, batch_size):
    """The positions of each batch of an epoch, by batch id; `order` are all positions, `parts` the part of each."""
    c = ranks // num_parts
    own = [[] for _ in range(ranks)]
    for i in range(num_parts):
        for q, position in enumerate(position for position in order if parts[position] == i):
            own[i * c + q % c].append(position)
    steps = max(-(-len(seeds) // batch_size) for seeds in own)
    return [seeds[t * len(seeds) // steps : (t + 1) * len(seeds) // steps] for t in range(steps) for seeds in own]


def shuffle(count, random_seed, epoch):
    key = derive_key(random_seed, epoch, SHUFFLING)
    words = [philox((i & MASK32, i >> 32, 0, 0), key) for i in range(count)]
    return sorted(range(count), key=lambda i: (words[i][0] + (words[i][1] << 32), i))
