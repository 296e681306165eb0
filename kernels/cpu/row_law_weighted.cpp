// The row law over stacked rows, weighted: sample_rows_weighted, and sample_rows_scaled with columns of A scaled (docs/law.md,
// section 3).
//
// To draw from a row by weight takes the prefix sums of its numerators, which cost O(entries of the row); the draws themselves
// cost little. So A is visited row by row, and a row is made ready (row_law_ready.h) once for all batches that draw from it:
//   1. the stacked rows are put into ascending runs of one batch each (row_law_runs.h);
//   2. rows are laid out in the result as if long rows had no weight of 0; where that is found to be wrong, positive weights are
//      counted;
//   3. threads take parts of A. A part's requests are sorted by row (row_law_requests.h); then each row asked for is made ready,
//      drawn from by all runs that want it (row_law_tree_drawer.h), and forgotten.
// A row that one batch asks for is read once then, too. Which thread draws what, and in which order, changes no bit.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "row_law_ranks.h"
#include "row_law_requests.h"
#include "row_law_tree_drawer.h"
#include "row_law_uniform.h"

namespace spsample {
namespace {

// --- parts of A -------------------------------------------------------------------------------------------------------------

// A in parts of about as many entries each, for m stacked rows.
template <class Index>
class Parts {
public:
    Parts(const CsrView<Index>& A, int64_t m) : A_(A) {
        const int64_t enough = std::max(kPartsPerThread * thread_limit(), m / kLargestPart);
        count_ = std::max<int64_t>({1, std::min(enough, m / kSmallestPart), A.num_rows >> 31});
    }
    int64_t count() const { return count_; }

    int64_t first_row(int64_t part) const {
        if (part == count_) return A_.num_rows;
        const int64_t cost = cost_before(A_.num_rows) / count_ * part;
        int64_t first = 0;
        for (int64_t end = A_.num_rows; first < end;) {
            const int64_t middle = first + (end - first) / 2;
            if (cost_before(middle) < cost) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        return first;
    }

private:
    static constexpr int64_t kPartsPerThread = 16;
    static constexpr int64_t kSmallestPart = 64;        // stacked rows that a part holds on average, at least
    static constexpr int64_t kLargestPart = 64 << 10;   // and at most
    static constexpr int64_t kRowCost = 32;             // what a row takes beside its entries

    int64_t cost_before(int64_t row) const { return A_.indptr[row] + kRowCost * row; }

    const CsrView<Index>& A_;
    int64_t count_;
};

// One thread's work: all rows of a part of A, in order.
template <class Index, class Real>
class PartWorker {
public:
    PartWorker(
        const WeightedCall<Index, Real>& call, const std::vector<Run<Index>>& runs, const EntryCounts<Index, Real>& counts,
        WeightedResult<Index, Real>& result)
        : call_(call), counts_(counts), result_(result), requests_(runs), ready_(call), drawer_(call, ready_, result),
          outputs_(runs, call.Q, result.rows) {}

    // Rows first .. end - 1 of A, fewer than 2^32.
    void work(int64_t first, int64_t end) {
        requests_.collect(first, end);
        if (requests_.num_rows() == 0) return;
        outputs_.start([&](size_t run) { return requests_.begin(run); });
        for (int64_t number = 0; number < requests_.num_rows() && !result_.misplaced; ++number) work_row(number);
        forget();
    }

private:
    static constexpr int64_t kEntriesPerDraw = 16;

    // The weights of rows come from far as they are made ready, in order. Where runs draw much from a row, its columns are asked
    // for meanwhile.
    void work_row(int64_t number) {
        if (ready_.full()) forget();
        const RequestedRow requested = requests_.row(number);
        const bool near = requested.count * call_.draw.size * kEntriesPerDraw >= call_.A.degree(requested.number);
        const ReadyRow& row = ready_.make(requested.number, near);
        if (!counts_.is_right(row.degree, row.number)) {
            result_.misplaced = true;
            return;
        }
        drawer_.draw(row, requested.runs, requested.count, outputs_);
    }

    void forget() {
        drawer_.flush();
        ready_.clear();
    }

    const WeightedCall<Index, Real>& call_;
    const EntryCounts<Index, Real>& counts_;
    WeightedResult<Index, Real>& result_;
    RowRequests<Index> requests_;
    ReadyRows<Index, Real> ready_;
    TreeDrawer<Index, Real> drawer_;
    RunOutputs<Index> outputs_;
};

// --- the whole --------------------------------------------------------------------------------------------------------------

// Lays out and draws. False where a row turned out to give fewer entries than it has room for; not where the layout is exact.
template <class Index, class Real>
bool draw_rows(
    const WeightedCall<Index, Real>& call, const SortedRuns<Index>& runs, bool exact, bool positions,
    WeightedResult<Index, Real>& result) {
    result.rows = RowsResult<Index>();  // gives the memory of a first attempt back
    result.weights = Buffer<Real>();
    result.misplaced = false;
    const EntryCounts<Index, Real> counts(call, exact);
    const auto count = [&](int64_t vertex) { return counts.of(vertex); };
    result.rows = laid_out(call.Q, positions, count, [&](int64_t vertex) { counts.ask(vertex); });
    if (result.with_weights) result.weights = Buffer<Real>(result.rows.columns.size());
    if (result.rows.columns.size() == 0) return true;
    const Parts<Index> parts(call.A, call.Q.num_rows);
    const auto make_worker = [&] { return std::make_unique<PartWorker<Index, Real>>(call, runs.runs(), counts, result); };
    parallel_chunks(parts.count(), 1, make_worker, [&](auto& worker, int64_t part, int64_t) {
        worker->work(parts.first_row(part), parts.first_row(part + 1));
    });
    return !result.misplaced;
}

template <class Index, class Real>
void weighted_rows(const WeightedCall<Index, Real>& call, bool positions, WeightedResult<Index, Real>& result) {
    const SortedRuns<Index> runs(call.Q);
    if (!draw_rows(call, runs, false, positions, result)) draw_rows(call, runs, true, positions, result);
}

// --- ranks ------------------------------------------------------------------------------------------------------------------

EntryRanks ranks_of(const In<uint32_t>& ranks, int64_t num_entries) {
    const int64_t count = EntryRanks::num_words(num_entries);
    require(static_cast<int64_t>(ranks.size()) == 2 * count, "ranks", "must be those of the matrix");
    return {ranks.data(), ranks.data() + count};
}

// Bits of the entries' columns first, with ranks within each chunk; then the ranks.
template <class Index>
void fill_ranks(const Index* columns, int64_t num_entries, const ColumnScale<Index>& set, uint32_t* bits_of, uint32_t* ranks) {
    constexpr int64_t kChunk = 1 << 12;  // words
    const int64_t count = EntryRanks::num_words(num_entries);
    std::vector<uint32_t> before(static_cast<size_t>((count - 1) / kChunk + 2));
    parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
        uint32_t rank = 0;
        for (int64_t w = begin; w < end; ++w) {
            const int64_t first = w * kWordEntries, number = std::clamp<int64_t>(num_entries - first, 0, kWordEntries);
            uint32_t bits = 0;
            for (int64_t e = 0; e < number; ++e) bits |= uint32_t(set.has(columns[first + e])) << e;
            bits_of[w] = bits;
            ranks[w] = rank;
            rank += count_bits(bits);
        }
        before[static_cast<size_t>(begin / kChunk + 1)] = rank;
    });
    for (size_t chunk = 1; chunk < before.size(); ++chunk) before[chunk] += before[chunk - 1];
    parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
        for (int64_t w = begin; w < end; ++w) ranks[w] += before[static_cast<size_t>(begin / kChunk)];
    });
}

// --- binding ----------------------------------------------------------------------------------------------------------------

// (entry_ptr, indptr, columns, positions or None, weights or None). O(entries of distinct rows + m size log d) expected time.
// Memory: n bytes where m >= n; 16 bytes for each row that is out of order. Per thread: about 2 MB, 5 bytes for each entry of the
// largest row, 8 bytes for each row and 4 for each request of a part, and 64 for each run. rules: of A's rows, found so far
// (row_law_rules.h); those that this call finds are written to it.
template <class Index, class Real>
nb::tuple sample_rows_weighted(
    const WeightedMatrixIn<Index, Real>& matrix, const SelectorIn<Index>& selector, const DrawIn& draw, bool positions, bool weights,
    const std::optional<InOut<int16_t>>& rules) {
    require(matrix.data.size() == matrix.indices.size(), "data", "needs one element per entry");
    require(!rules || rules->size() + 1 == matrix.indptr.size(), "rules", "needs one element per row");
    const CsrView<Index> A = csr_view_of(matrix.indptr, matrix.indices, matrix.ids);
    const WeightedCall<Index, Real> call{A, matrix.data.data(), selector_view(selector, A.num_rows), draw_arguments(draw),
                                         RowRules(rules ? rules->data() : nullptr), {}};
    WeightedResult<Index, Real> result;
    result.with_weights = weights;
    {
        nb::gil_scoped_release release;
        weighted_rows(call, positions, result);
    }
    nb::object drawn_weights = nb::none();
    if (weights) drawn_weights = nb::cast(to_numpy(std::move(result.weights)));
    return nb::steal<nb::tuple>(PySequence_Concat(packed(std::move(result.rows)).ptr(), nb::make_tuple(drawn_weights).ptr()));
}

template <class Index>
ColumnScale<Index> column_scale(const In<uint64_t>& members, double factor) {
    require(std::isfinite(factor) && factor > 0, "factor", "must be a finite number above 0");
    return {members.data(), members.size() * 64, factor};
}

// data: null where every entry is 1.
template <class Index, class Real>
nb::tuple scaled_rows(
    const CsrView<Index>& A, const Real* data, const SelectorIn<Index>& selector, const DrawIn& draw, bool positions,
    const ColumnScale<Index>& scale) {
    const WeightedCall<Index, Real> call{A, data, selector_view(selector, A.num_rows), draw_arguments(draw), RowRules(nullptr), scale};
    WeightedResult<Index, Real> result;
    {
        nb::gil_scoped_release release;
        weighted_rows(call, positions, result);
    }
    return packed(std::move(result.rows));
}

// (entry_ptr, indptr, columns, positions or None). members: uint64, a bit for each column. Beside what sample_rows_weighted takes,
// per thread 4 or 8 bytes for each entry of the largest row.
template <class Index, class Real>
nb::tuple sample_rows_scaled(
    const WeightedMatrixIn<Index, Real>& matrix, const SelectorIn<Index>& selector, const DrawIn& draw, bool positions,
    const In<uint64_t>& members, double factor) {
    require(matrix.data.size() == matrix.indices.size(), "data", "needs one element per entry");
    const CsrView<Index> A = csr_view_of(matrix.indptr, matrix.indices, matrix.ids);
    return scaled_rows(A, matrix.data.data(), selector, draw, positions, column_scale<Index>(members, factor));
}

// Where every entry is 1. ranks: what entry_ranks made of A and the members, or None. With them O(m size log d) expected time and a few KB
// per thread, but where a scaled weight of 1 is rounded to 0.
template <class Index>
nb::tuple sample_rows_scaled_pattern(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const DrawIn& how, bool positions,
    const In<uint64_t>& members, double factor, const std::optional<In<uint32_t>>& ranks) {
    const CsrView<Index> A = csr_view_of(matrix.indptr, matrix.indices, matrix.ids);
    const ColumnScale<Index> scale = column_scale<Index>(members, factor);
    const float scaled = scale.product(1.0f);
    if (!ranks || !is_positive(scaled)) return scaled_rows<Index, float>(A, nullptr, selector, how, positions, scale);
    const SelectorView<Index> Q = unchecked_selector_view(selector.batch_ptr, selector.vertices, selector.batch_ids);
    const DrawArguments draw = draw_arguments(how);
    const RankedRows rows(ranks_of(*ranks, A.num_entries), scaled);
    return run<Index>([&] { return sampled_rows<Index>({A, Q, draw, &rows}, positions, make_stacked_room<Index>); });
}

// num_entries / 32 + 16 words of bits of A's entries, and as many ranks. O(entries).
template <class Index>
nb::object entry_ranks(const In<Index>& indices, const In<uint64_t>& members) {
    const int64_t num_entries = static_cast<int64_t>(indices.size());
    const int64_t count = EntryRanks::num_words(num_entries);
    Buffer<uint32_t> ranks(2 * count);
    {
        nb::gil_scoped_release release;
        fill_ranks(indices.data(), num_entries, column_scale<Index>(members, 1), ranks.data(), ranks.data() + count);
    }
    return to_numpy(std::move(ranks));
}

template <class Index>
void bind_pattern(nb::module_& m) {
    m.def("sample_rows_scaled_pattern", &sample_rows_scaled_pattern<Index>, nb::arg("A"), nb::arg("Q"), nb::arg("draw"),
          nb::arg("positions"), nb::arg("members"), nb::arg("factor"), nb::arg("ranks").none());
    m.def("entry_ranks", &entry_ranks<Index>, nb::arg("indices"), nb::arg("members"));
}

template <class Index, class Real>
void bind_for(nb::module_& m) {
    m.def("sample_rows_weighted", &sample_rows_weighted<Index, Real>, nb::arg("A"), nb::arg("Q"), nb::arg("draw"),
          nb::arg("positions"), nb::arg("weights"), nb::arg("rules").none());
    m.def("sample_rows_scaled", &sample_rows_scaled<Index, Real>, nb::arg("A"), nb::arg("Q"), nb::arg("draw"), nb::arg("positions"),
          nb::arg("members"), nb::arg("factor"));
}

}  // namespace

void bind_row_law_weighted(nb::module_& m) {
    bind_for<int32_t, float>(m);
    bind_for<int32_t, double>(m);
    bind_for<int64_t, float>(m);
    bind_for<int64_t, double>(m);
    bind_pattern<int32_t>(m);
    bind_pattern<int64_t>(m);
}

}  // namespace spsample
