// edge_order: a list of edges in memory as CSR, in the order (target, source, position in the list).
#include <atomic>
#include <vector>

#include "bindings.h"
#include "parallel.h"

namespace spsample {
namespace {

constexpr int kMostDigitBits = 12;  // 4096 places to write to stay in the second cache
constexpr int64_t kLeastChunk = 1 << 16;
constexpr int64_t kChunksPerThread = 4;

template <class Index>
struct Edge {
    Index target, source, position;
};

// How a list is ordered already.
struct Found {
    bool in_range, by_source, by_both;
};

template <class Id>
Found look_at(const Id* sources, const Id* targets, int64_t count, int64_t num_nodes) {
    std::atomic<bool> in_range{true}, by_source{true}, by_both{true};
    parallel_chunks(count, kLeastChunk, [&](int64_t begin, int64_t end) {
        if (!spsample::in_range(sources + begin, end - begin, num_nodes) || !spsample::in_range(targets + begin, end - begin, num_nodes)) in_range = false;
        bool falls = false, falls_in_row = false;
        for (int64_t i = std::max<int64_t>(begin, 1); i < end; ++i) {
            falls |= sources[i] < sources[i - 1];
            falls_in_row |= targets[i] < targets[i - 1] || (targets[i] == targets[i - 1] && sources[i] < sources[i - 1]);
        }
        if (falls) by_source = false;
        if (falls_in_row) by_both = false;
    });
    return {in_range, by_source, by_both};
}

// Sorts `count` edges, edge(i) being the i-th, into `to` by digit(edge) in [0, 2^bits); stable. Chunks of the list are counted, and then
// each is written where its edges belong: O(count + chunks 2^bits).
template <class Index, class Read, class Digit>
void sort_by_digit(int64_t count, int bits, Read edge, Digit digit, Edge<Index>* to) {
    const int64_t radix = int64_t(1) << bits;
    const int64_t chunk = std::max(kLeastChunk, count / (kChunksPerThread * thread_limit()) + 1), chunks = (count + chunk - 1) / chunk;
    std::vector<int64_t> places(static_cast<size_t>(chunks * radix), 0);
    parallel_chunks(count, chunk, [&](int64_t begin, int64_t end) {
        int64_t* const counts = places.data() + begin / chunk * radix;
        for (int64_t i = begin; i < end; ++i) ++counts[digit(edge(i))];
    });
    int64_t sum = 0;
    for (int64_t d = 0; d < radix; ++d) {
        for (int64_t c = 0; c < chunks; ++c) sum += std::exchange(places[static_cast<size_t>(c * radix + d)], sum);
    }
    parallel_chunks(count, chunk, [&](int64_t begin, int64_t end) {
        int64_t* const at = places.data() + begin / chunk * radix;
        for (int64_t i = begin; i < end; ++i) {
            const Edge<Index> one = edge(i);
            to[at[digit(one)]++] = one;
        }
    });
}

// The edges in order, in one of two pieces of memory; `edge(i)` is the i-th of the list.
template <class Index>
class Sorted {
public:
    explicit Sorted(int64_t count) : edges_(count), other_(count) {}

    // Least significant digit first: of the source, unless the list ascends by it, and then of the target.
    template <class Read>
    void sort(Read edge, int64_t num_nodes, bool by_source) {
        int bits = 0;
        for (int64_t most = num_nodes - 1; most > 0; most >>= 1) ++bits;
        const int digits = std::max((bits + kMostDigitBits - 1) / kMostDigitBits, 1), width = (bits + digits - 1) / digits;
        const Index mask = static_cast<Index>((int64_t(1) << width) - 1);
        if (!by_source) {
            for (int d = 0; d < digits; ++d) pass(edge, width, [=](const Edge<Index>& one) { return one.source >> (d * width) & mask; });
        }
        for (int d = 0; d < digits; ++d) pass(edge, width, [=](const Edge<Index>& one) { return one.target >> (d * width) & mask; });
    }

    Edge<Index> operator()(int64_t i) const { return edges_[i]; }

private:
    template <class Read, class Digit>
    void pass(Read edge, int width, Digit digit) {
        const Edge<Index>* const from = edges_.data();
        if (is_first_) sort_by_digit(edges_.size(), width, edge, digit, other_.data());
        else sort_by_digit(edges_.size(), width, [from](int64_t i) { return from[i]; }, digit, other_.data());
        std::swap(edges_, other_);
        is_first_ = false;
    }

    Buffer<Edge<Index>> edges_, other_;
    bool is_first_ = true;
};

// Writes what ascending edges are as CSR: indptr (num_nodes + 1), indices, and positions unless they are null.
template <class Read, class Column>
void write_rows(int64_t count, int64_t num_nodes, Read edge, int64_t* indptr, Column* indices, int64_t* positions) {
    const auto begin_rows = [&](int64_t after, int64_t last, int64_t at) { std::fill(indptr + after + 1, indptr + last + 1, at); };
    parallel_chunks(count, kLeastChunk, [&](int64_t begin, int64_t end) {
        int64_t before = begin == 0 ? -1 : static_cast<int64_t>(edge(begin - 1).target);
        for (int64_t i = begin; i < end; ++i) {
            const auto one = edge(i);
            indices[i] = static_cast<Column>(one.source);
            if (positions) positions[i] = static_cast<int64_t>(one.position);
            if (one.target != before) begin_rows(std::exchange(before, static_cast<int64_t>(one.target)), one.target, i);
        }
    });
    begin_rows(count == 0 ? -1 : static_cast<int64_t>(edge(count - 1).target), num_nodes, count);
}

template <class Index, class Column, class Id>
bool write_in_order(const Id* from, const Id* to, int64_t count, int64_t num_nodes, int64_t* indptr, Column* indices, int64_t* positions) {
    const ThreadsFor threads(checked_product(8, count));
    const Found found = look_at(from, to, count, num_nodes);
    require(found.in_range, "edges", "a vertex is not in the graph");
    const auto given = [=](int64_t i) { return Edge<Index>{static_cast<Index>(to[i]), static_cast<Index>(from[i]), static_cast<Index>(i)}; };
    if (found.by_both) {
        write_rows(count, num_nodes, given, indptr, indices, static_cast<int64_t*>(nullptr));
        return true;
    }
    Sorted<Index> sorted(count);
    sorted.sort(given, num_nodes, found.by_source);
    write_rows(count, num_nodes, [&](int64_t i) { return sorted(i); }, indptr, indices, positions);
    return false;
}

// O((edges + num_nodes) log(num_nodes)) time, in steps of 12 bits; at the peak 12 bytes an edge twice, beside the result.
template <class Id, class Column>
bool edge_order(
    const In<Id>& sources, const In<Id>& targets, const InOut<int64_t>& indptr, const InOut<Column>& indices, const InOut<int64_t>& positions) {
    const size_t count = sources.size();
    require(targets.size() == count, "targets", "needs one element per source");
    require(indices.size() == count, "indices", "needs one element per source");
    require(positions.size() == count, "positions", "needs one element per source");
    require(indptr.size() > 0, "indptr", "needs an element for each vertex, and one more");
    const int64_t num_nodes = static_cast<int64_t>(indptr.size()) - 1, edges = static_cast<int64_t>(count);
    constexpr int64_t kInt32 = std::numeric_limits<int32_t>::max();
    require(sizeof(Column) == 8 || num_nodes <= kInt32, "indices", "must be int64 from 2^31 vertices on");
    const Id* const from = sources.data();
    const Id* const to = targets.data();
    int64_t* const rows = indptr.data();
    Column* const columns = indices.data();
    int64_t* const places = positions.data();
    const nb::gil_scoped_release release;
    if (sizeof(Column) == 8 || edges > kInt32) return write_in_order<int64_t>(from, to, edges, num_nodes, rows, columns, places);
    return write_in_order<int32_t>(from, to, edges, num_nodes, rows, columns, places);
}

template <class Id, class Column>
void bind_for(nb::module_& m) {
    m.def("edge_order", &edge_order<Id, Column>, nb::arg("sources").noconvert(), nb::arg("targets").noconvert(), nb::arg("indptr").noconvert(),
          nb::arg("indices").noconvert(), nb::arg("positions").noconvert(),
          "Writes edges in the order (target, source, position) as CSR, and their positions in the list; returns whether they\n"
          "were in that order, and then writes no positions.");
}

}  // namespace

void bind_edge_order(nb::module_& m) {
    bind_for<int32_t, int32_t>(m);
    bind_for<int32_t, int64_t>(m);
    bind_for<int64_t, int32_t>(m);
    bind_for<int64_t, int64_t>(m);
}

}  // namespace spsample
