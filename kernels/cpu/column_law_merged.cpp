// Numerators summed by column, written out (docs/law.md, section 2): over all rows of A, column_totals, and Q A by columns, merge_columns.
//
// All sums are of unsigned integers: exact, and equal in any order and on any number of threads. The caller chooses the exponent K
// so that no sum passes 2^62 (the frontier rule's headroom). Columns of Q A are counted first, so that every row is written to its place
// in arrays of the right size: nothing is held twice but the rows of small frontiers on large graphs, which come out of a hash table.
#include <algorithm>
#include <vector>

#include "column_law_sums.h"

namespace spsample {
namespace {

// --- column_totals -------------------------------------------------------------------------------------------------

constexpr int64_t kRowChunk = 1024;

void zero(Buffer<uint64_t>& values) {
    parallel_chunks(values.size(), 1 << 16, [&](int64_t begin, int64_t end) {
        std::fill(values.data() + begin, values.data() + end, uint64_t(0));
    });
}

// Other threads may add to the same sum. (An atomic of C++17 cannot be laid over an array's element.)
void add_relaxed(uint64_t& sum, uint64_t summand) { __atomic_fetch_add(&sum, summand, __ATOMIC_RELAXED); }

// totals: one element per column; every entry of A is added to its column's. O(columns + entries).
template <class Index, class Weights>
void sum_columns(const CsrView<Index>& A, const Weights& weights, const QuantisationRule& rule, Buffer<uint64_t>& totals) {
    zero(totals);
    uint64_t* sums = totals.data();
    parallel_chunks(A.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        const int64_t first = A.begin(begin);
        require(in_range(A.indices + first, A.begin(end) - first, A.num_columns), "indices", "a column is not below the number of columns");
        for (int64_t r = begin; r < end; ++r) {
            for_each_numerator(A, weights, rule, 0, r, [&](int64_t position, uint64_t numerator) {
                add_relaxed(sums[A.indices[position]], numerator);
            });
        }
    });
    parallel_chunks(totals.size(), 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) sums[v] = raise(sums[v], rule.column_power);
    });
}

template <class Index>
nb::object column_totals(const MatrixIn<Index>& matrix, const QuantisationRuleIn& quantisation) {
    const CsrView<Index> A = csr_view_over(matrix.indptr, matrix.indices, matrix.num_columns);
    const QuantisationRule rule = quantisation_rule(quantisation, 1);
    Buffer<uint64_t> totals(A.num_columns);
    with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        sum_columns(A, weights, rule, totals);
    });
    return to_numpy(std::move(totals));
}

// --- merge_columns -------------------------------------------------------------------------------------------------

// Memory of one thread, or of all that share a batch.
template <class Index>
struct SumsScratch {
    MergeScratch<Index> merge;
    DenseScratch dense;
};

// lengths: the number of columns of each batch. Rows of batches that are not dense are left in `hashed`. Time as for summing: marks
// take half as long as sums.
template <class Index, class Weights>
void count_columns(const BatchSums<Index, Weights>& in, int64_t* lengths, std::vector<MergedRow<Index>>& hashed) {
    for_each_batch<SumsScratch<Index>>(in, [&](SumsScratch<Index>& scratch, int64_t batch, const auto& over_ranges) {
        if (is_dense(in, batch)) {
            lengths[batch] = static_cast<int64_t>(make_sums<Mark>(in, batch, scratch.dense, over_ranges).plain_total());
        } else {
            MergedRow<Index>& row = hashed[static_cast<size_t>(batch)];
            row = merge_batch(in.A, in.weights, in.Q, in.rule, batch, scratch.merge);
            lengths[batch] = static_cast<int64_t>(row.columns.size());
        }
    });
}

// Room for rows of the lengths that are in indptr[1], indptr[2], ... O(batches).
template <class Index>
void make_room(MergedRows<Index>& merged) {
    Buffer<int64_t>& indptr = merged.indptr;
    indptr[0] = 0;
    for (int64_t i = 1; i < indptr.size(); ++i) indptr[i] = checked_sum(indptr[i - 1], indptr[i]);
    merged.columns = Buffer<Index>(indptr[indptr.size() - 1]);
    merged.numerators = Buffer<uint64_t>(indptr[indptr.size() - 1]);
}

// The block before which a range of columns ends.
template <class Sum>
int64_t end_block(const DenseRow<Sum>& row, int64_t range) {
    return std::min(range * (DenseSums<Sum>::kRange / kSumBlock), row.num_blocks());
}

// Where the positive columns of each range of a dense row go, and the last ones end; those of the first one go to `first`. O(n).
template <class Sum, class Ranges>
std::vector<int64_t> starts_of(const DenseRow<Sum>& row, const Ranges& over_ranges, int64_t first) {
    const int64_t num_ranges = DenseSums<Sum>::num_ranges_of(row.count);
    std::vector<int64_t> starts(static_cast<size_t>(num_ranges + 1), first);
    over_ranges(num_ranges, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) starts[static_cast<size_t>(r + 1)] = row.count_positive(end_block(row, r), end_block(row, r + 1));
    });
    for (size_t r = 1; r < starts.size(); ++r) starts[r] += starts[r - 1];
    return starts;
}

// The positive columns of a dense row to their place, range by range. O(n).
template <class Index, class Sum, class Ranges>
void write_dense(
    const DenseRow<Sum>& row, const std::vector<int64_t>& starts, const Ranges& over_ranges, int64_t batch, MergedRows<Index>& merged) {
    over_ranges(static_cast<int64_t>(starts.size()) - 1, [&](int64_t begin, int64_t end) {
        const int64_t start = starts[static_cast<size_t>(begin)];
        row.write_positive(end_block(row, begin), end_block(row, end), merged.columns.data() + start, merged.numerators.data() + start);
    });
    merged.totals[batch] = row.total();
}

// Memory is given back at once.
template <class Index>
void write_hashed(MergedRow<Index>&& row, int64_t batch, MergedRows<Index>& merged) {
    std::copy(row.columns.begin(), row.columns.end(), merged.columns.data() + merged.indptr[batch]);
    std::copy(row.numerators.begin(), row.numerators.end(), merged.numerators.data() + merged.indptr[batch]);
    merged.totals[batch] = row.total;
    row = {};
}

// One batch whose row is dense and whose entries count 1: its columns are counted in the sums, so that the entries are read once.
template <class Index, class Weights>
MergedRows<Index> merge_only_batch(const BatchSums<Index, Weights>& in, MergedRows<Index>&& merged) {
    for_each_batch<DenseScratch>(in, [&](DenseScratch& scratch, int64_t batch, const auto& over_ranges) {
        with_dense_row(in, batch, scratch, over_ranges, [&](const auto& row) {
            const std::vector<int64_t> starts = starts_of(row, over_ranges, 0);
            merged.indptr[1] = starts.back();
            make_room(merged);
            write_dense(row, starts, over_ranges, batch, merged);
        });
    });
    return std::move(merged);
}

// A's rows ascend. Rows of the result: one per batch, columns ascending without repeats, zeros left out. O(n + entries) per dense
// batch, O(entries + sort of its distinct columns) per other one; memory beside the result: 9 bytes per column and thread at most, 3
// where every entry counts 1, and the rows of batches that are not dense.
template <class Index, class Weights>
MergedRows<Index> merge_batches(const BatchSums<Index, Weights>& in) {
    const int64_t k = in.Q.num_batches;
    MergedRows<Index> merged{Buffer<int64_t>(k + 1), {}, {}, Buffer<uint64_t>(k)};
    if (k == 1 && !in.rule.shifts && is_dense(in, 0)) return merge_only_batch(in, std::move(merged));
    std::vector<MergedRow<Index>> hashed(static_cast<size_t>(k));
    count_columns(in, merged.indptr.data() + 1, hashed);
    make_room(merged);
    for_each_batch<DenseScratch>(in, [&](DenseScratch& scratch, int64_t batch, const auto& over_ranges) {
        if (is_dense(in, batch)) {
            with_dense_row(in, batch, scratch, over_ranges, [&](const auto& row) {
                const std::vector<int64_t> starts = starts_of(row, over_ranges, merged.indptr[batch]);
                const bool as_counted = starts.back() == merged.indptr[batch + 1];
                require(as_counted, "data", "a weight is not a finite number of at least 0, or a sum passes 64 bits");
                write_dense(row, starts, over_ranges, batch, merged);
            });
        } else {
            write_hashed(std::move(hashed[static_cast<size_t>(batch)]), batch, merged);
        }
    });
    return merged;
}

template <class Index>
nb::tuple merge_columns(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const QuantisationRuleIn& quantisation) {
    const CsrView<Index> A = csr_view_over(matrix.indptr, matrix.indices, matrix.num_columns);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    const QuantisationRule rule = quantisation_rule(quantisation, Q.num_batches);
    MergedRows<Index> merged;
    with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        merged = merge_batches(BatchSums<Index, decltype(weights)>{A, weights, Q, rule});
    });
    return packed(std::move(merged));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("column_totals", &column_totals<Index>, "Column sums of all entries' numerators, to column_power.");
    m.def("merge_columns", &merge_columns<Index>, "(indptr, columns, numerators, totals) of Q A.");
}

}  // namespace

void bind_column_law_merged(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
