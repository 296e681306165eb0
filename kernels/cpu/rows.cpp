// The row law over stacked rows: sample_rows_uniform, sample_rows_weighted, take_rows (docs/law.md, section 3).
//
// All three work in two passes over the m stacked rows of k batches, in parallel over chunks of rows: count the entries
// of each row, prefix sums per batch, fill. The result is a StackedRows (spsample/backends/protocol.py).
#include "spsample/row_law.h"

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "scratch.h"
#include "spsample/quantize.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 1024;  // a smaller loop is not worth waking a thread for
constexpr int64_t kGroup = 32;
constexpr int64_t kAhead = 16;

// --- results ------------------------------------------------------------------------------------------------------------

template <class Index>
struct RowsResult {
    Buffer<int64_t> entry_ptr;  // k + 1
    Buffer<int64_t> indptr;     // m + k, from 0 in each batch
    Buffer<Index> columns;
    Buffer<int64_t> positions;  // empty where not asked for
    bool with_positions = false;

    // Where the entries of stacked row r, of batch i, begin.
    int64_t offset(int64_t r, int64_t i) const { return entry_ptr[i] + indptr[r + i]; }
};

template <class Index>
nb::tuple packed(RowsResult<Index>&& result) {
    nb::object positions = nb::none();
    if (result.with_positions) positions = nb::cast(to_numpy(std::move(result.positions)));
    return nb::make_tuple(
        to_numpy(std::move(result.entry_ptr)), to_numpy(std::move(result.indptr)), to_numpy(std::move(result.columns)), positions);
}

// --- walking stacked rows -----------------------------------------------------------------------------------------------

// Calls body(r, i) for the stacked rows [begin, end), i the batch of row r.
template <class Index, class Body>
void for_rows(const SelectorView<Index>& Q, int64_t begin, int64_t end, Body&& body) {
    const int64_t* last = Q.batch_ptr + Q.num_batches + 1;
    int64_t batch = std::upper_bound(Q.batch_ptr, last, begin) - Q.batch_ptr - 1;
    for (int64_t r = begin; r < end; ++r) {
        while (r >= Q.batch_ptr[batch + 1]) ++batch;
        body(r, batch);
    }
}

// Counts per row, count(vertex), as pointers per batch, and the arrays for the entries. O(m).
template <class Index, class Count>
RowsResult<Index> laid_out(const CsrView<Index>& A, const SelectorView<Index>& Q, bool with_positions, Count&& count) {
    RowsResult<Index> result;
    result.with_positions = with_positions;
    result.indptr = Buffer<int64_t>(checked_sum(Q.num_rows, Q.num_batches));
    result.entry_ptr = Buffer<int64_t>(Q.num_batches + 1);
    parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (r + kAhead < end) SPSAMPLE_PREFETCH(A.indptr + Q.vertices[r + kAhead]);
            result.indptr[r + i + 1] = count(Q.vertices[r]);
        });
    });
    result.entry_ptr[0] = 0;
    for (int64_t i = 0; i < Q.num_batches; ++i) {
        int64_t* pointers = result.indptr.data() + Q.batch_ptr[i] + i;
        const int64_t rows = Q.batch_ptr[i + 1] - Q.batch_ptr[i];
        pointers[0] = 0;
        for (int64_t r = 0; r < rows; ++r) pointers[r + 1] = checked_sum(pointers[r + 1], pointers[r]);
        result.entry_ptr[i + 1] = checked_sum(result.entry_ptr[i], pointers[rows]);
    }
    result.columns = Buffer<Index>(result.entry_ptr[Q.num_batches]);
    result.positions = Buffer<int64_t>(with_positions ? result.entry_ptr[Q.num_batches] : 0);
    return result;
}

// Fills columns (and positions) with what `pick` draws: pick(scratch, vertex, batch_id, out) writes a row's positions in
// A to `out`. Works in groups of rows, so that the loads of one group's columns are under way at the same time.
template <class Index, class Pick>
void fill_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, RowsResult<Index>& result, Pick&& pick) {
    struct Scratch {
        DrawScratch draw;
        std::vector<int64_t> positions;
    };
    const auto fill_group = [&](Scratch& scratch, int64_t begin, int64_t end) {
        int64_t first = -1, count = 0;
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (first < 0) first = result.offset(r, i);
            count = result.offset(r, i) - first + result.indptr[r + i + 1] - result.indptr[r + i];
        });
        int64_t* out = result.with_positions ? result.positions.data() + first : grown(scratch.positions, count);
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            const int64_t row_begin = result.offset(r, i) - first;
            const int64_t row_end = row_begin + result.indptr[r + i + 1] - result.indptr[r + i];
            if (row_begin == row_end) return;
            pick(scratch.draw, static_cast<int64_t>(Q.vertices[r]), Q.batch_ids[i], out + row_begin);
            for (int64_t e = row_begin; e < row_end; ++e) SPSAMPLE_PREFETCH(A.indices + out[e]);
        });
        for (int64_t e = 0; e < count; ++e) result.columns[first + e] = A.indices[out[e]];
    };
    parallel_chunks(
        Q.num_rows, kRowChunk, [] { return Scratch(); },
        [&](Scratch& scratch, int64_t begin, int64_t end) {
            for (int64_t group = begin; group < end; group += kGroup) {
                fill_group(scratch, group, std::min(end, group + kGroup));
            }
        });
}

// --- the laws -----------------------------------------------------------------------------------------------------------

template <class Index>
RowsResult<Index> uniform_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions) {
    RowsResult<Index> result = laid_out(A, Q, positions, [&](int64_t vertex) {
        return drawn_count(A.degree(vertex), draw.size, draw.replace);
    });
    fill_rows(A, Q, result, [&](DrawScratch& scratch, int64_t vertex, int64_t batch_id, int64_t* out) {
        const int64_t begin = A.begin(vertex), degree = A.degree(vertex);
        const int64_t count = drawn_count(degree, draw.size, draw.replace);
        if (!draw.replace && count == degree) {
            for (int64_t e = 0; e < count; ++e) out[e] = begin + e;
            return;
        }
        DrawStream draws(draw.key, static_cast<uint64_t>(vertex), draw.hop, batch_id, static_cast<uint64_t>(degree));
        if (draw.replace) {
            uniform_repeated(degree, count, draws, out);
        } else {
            Chosen chosen = scratch.chosen(count, out);
            floyd(degree, count, draws, chosen);
        }
        for (int64_t e = 0; e < count; ++e) out[e] += begin;
    });
    return result;
}

// Number of positive weights, or `enough` as soon as there are that many.
template <class Real>
int64_t count_positive(const Real* weights, int64_t degree, int64_t enough) {
    int64_t positive = 0;
    for (int64_t e = 0; e < degree && positive < enough; ++e) positive += is_positive(weights[e]) ? 1 : 0;
    return positive;
}

template <class Real>
PrefixRow quantized_row(const Real* weights, int64_t degree, DrawScratch& scratch) {
    const int64_t shift = row_shift(weights, degree);
    uint64_t* inclusive = scratch.prefix(degree);
    uint64_t sum = 0;
    for (int64_t e = 0; e < degree; ++e) {
        sum += quantize(weights[e], shift, 1);
        inclusive[e] = sum;
    }
    return {inclusive, degree};
}

template <class Index, class Real>
RowsResult<Index> weighted_rows(
    const CsrView<Index>& A, const Real* data, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions) {
    RowsResult<Index> result = laid_out(A, Q, positions, [&](int64_t vertex) {
        const int64_t enough = draw.replace ? 1 : draw.size;
        return drawn_count(count_positive(data + A.begin(vertex), A.degree(vertex), enough), draw.size, draw.replace);
    });
    fill_rows(A, Q, result, [&](DrawScratch& scratch, int64_t vertex, int64_t batch_id, int64_t* out) {
        const int64_t begin = A.begin(vertex), degree = A.degree(vertex);
        const Real* weights = data + begin;
        const bool within = degree <= draw.size || count_positive(weights, degree, draw.size + 1) <= draw.size;
        if (!draw.replace && within) {
            for (int64_t e = 0; e < degree; ++e) {
                if (is_positive(weights[e])) *out++ = begin + e;
            }
            return;
        }
        const PrefixRow row = quantized_row(weights, degree, scratch);
        DrawStream draws(draw.key, static_cast<uint64_t>(vertex), draw.hop, batch_id, row.total());
        if (draw.replace) {
            its_repeated(row, draw.size, draws, out);
        } else {
            Chosen chosen = scratch.chosen(draw.size, out);
            TakenOut taken = scratch.taken_out(draw.size);
            require_draws(its_distinct(row, draw.size, draws, chosen, taken));
        }
        for (int64_t e = 0; e < draw.size; ++e) out[e] += begin;
    });
    return result;
}

template <class Index>
RowsResult<Index> whole_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, bool positions) {
    RowsResult<Index> result = laid_out(A, Q, positions, [&](int64_t vertex) { return A.degree(vertex); });
    parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (r + kAhead < end) SPSAMPLE_PREFETCH(A.indices + A.begin(Q.vertices[r + kAhead]));
            const int64_t first = A.begin(Q.vertices[r]), degree = A.degree(Q.vertices[r]);
            const int64_t offset = result.offset(r, i);
            std::copy(A.indices + first, A.indices + first + degree, result.columns.data() + offset);
            if (!positions) return;
            for (int64_t e = 0; e < degree; ++e) result.positions[offset + e] = first + e;
        });
    });
    return result;
}

// --- bindings -----------------------------------------------------------------------------------------------------------

// Runs `sample` without the GIL and packs its result.
template <class Index, class Sample>
nb::tuple run(Sample&& sample) {
    RowsResult<Index> result;
    {
        nb::gil_scoped_release release;
        result = sample();
    }
    return packed(std::move(result));
}

// O(m size) expected time, O(size) memory per thread. (entry_ptr, indptr, columns, positions or None)
template <class Index>
nb::tuple sample_rows_uniform(
    const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& batch_ptr, const In<Index>& vertices,
    const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1, int64_t hop, int64_t size, bool replace, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    return run<Index>([&] { return uniform_rows(A, Q, draw, positions); });
}

// O(entries of the rows + m size log d) expected time, O(largest row) memory per thread.
template <class Index, class Real>
nb::tuple sample_rows_weighted(
    const In<int64_t>& indptr, const In<Index>& indices, const In<Real>& data, const In<int64_t>& batch_ptr,
    const In<Index>& vertices, const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1, int64_t hop, int64_t size,
    bool replace, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    require(data.size() == indices.size(), "data", "needs one element per entry");
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    return run<Index>([&] { return weighted_rows(A, data.data(), Q, draw, positions); });
}

// O(m + entries of the rows).
template <class Index>
nb::tuple take_rows(
    const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& batch_ptr, const In<Index>& vertices,
    const In<int64_t>& batch_ids, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    return run<Index>([&] { return whole_rows(A, Q, positions); });
}

template <class Index, class Real>
void bind_weighted(nb::module_& m) {
    m.def("sample_rows_weighted", &sample_rows_weighted<Index, Real>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(),
          nb::arg("batch_ids").noconvert(), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"),
          nb::arg("replace"), nb::arg("positions"));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("sample_rows_uniform", &sample_rows_uniform<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(), nb::arg("batch_ids").noconvert(), nb::arg("key0"),
          nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"), nb::arg("positions"));
    m.def("take_rows", &take_rows<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(), nb::arg("batch_ids").noconvert(),
          nb::arg("positions"));
    bind_weighted<Index, float>(m);
    bind_weighted<Index, double>(m);
}

}  // namespace

void bind_rows(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
