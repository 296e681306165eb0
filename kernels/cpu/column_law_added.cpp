// Rows of column sums added up: what several parts of A give for the same batches (P of the column law, docs/law.md, section 2).
//
// The columns of every row ascend. So a batch is added up slice by slice of columns, in sums that stay in the second-level cache, and
// nothing is sorted. Where a batch has few entries, its rows are merged. Sums of unsigned integers are exact: equal in any order.
#include <algorithm>
#include <vector>

#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "column_law_sums.h"
#include "parallel.h"
#include "quantisation.h"
#include "room.h"
#include "spgemm_accumulators.h"

namespace spsample {
namespace {

constexpr int64_t kSlice = 1 << 15;   // columns: 256 KB of sums
constexpr int64_t kRange = 1 << 17;   // columns added up by one thread, where there are fewer batches than threads
constexpr int64_t kGroup = 32;        // columns that are passed over together where none of them has a sum

// --- arguments ------------------------------------------------------------------------------------------------------

// k rows of sums; their numerators are unsigned, of any width.
template <class Index>
struct SumsIn : ArgumentTuple {
    In<int64_t> indptr;
    In<Index> columns;
    AnyIn numerators;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, indptr, Exact<In<Index>>{columns}, numerators); }
};

// Calls body(numerators) with a pointer to their type.
template <class Index, class Body>
auto with_numerators(const SumsIn<Index>& piece, Body&& body) {
    switch (piece.numerators.type().bytes) {
        case 1: return body(static_cast<const uint8_t*>(piece.numerators.data()));
        case 2: return body(static_cast<const uint16_t*>(piece.numerators.data()));
        case 4: return body(static_cast<const uint32_t*>(piece.numerators.data()));
        default: return body(static_cast<const uint64_t*>(piece.numerators.data()));
    }
}

// Without a branch per entry.
template <class Index>
bool is_ascending(const Index* columns, int64_t count, int64_t num_columns) {
    Index falls = 0;
    for (int64_t e = 1; e < count; ++e) falls |= static_cast<Index>(columns[e - 1] >= columns[e]);
    return falls == 0 && (count == 0 || (columns[0] >= 0 && static_cast<int64_t>(columns[count - 1]) < num_columns));
}

// --- one batch ------------------------------------------------------------------------------------------------------

// What stands in columns [begin, end) of a batch's row.
template <class Index>
struct Sums {
    RoomPiece<Index> columns;
    RoomPiece<uint64_t> numerators;
    int64_t count = 0;
    uint64_t total = 0;
};

// Adds up rows, by one thread, which keeps its memory.
template <class Index>
class Adder {
public:
    Adder(const std::vector<SumsIn<Index>>& pieces, int32_t power, int64_t num_tasks)
        : pieces_(pieces), power_(power), columns_(num_tasks), numerators_(num_tasks) {}

    // Row `batch` of all pieces in columns [begin, end). O(entries), and O(columns) unless those are far more.
    Sums<Index> add(int64_t batch, int64_t begin, int64_t end) {
        parts_.clear();
        int64_t entries = 0;
        for (const SumsIn<Index>& piece : pieces_) {
            const Index* const all = piece.columns.data();
            const int64_t* const ptr = piece.indptr.data() + batch;
            const int64_t first = std::lower_bound(all + ptr[0], all + ptr[1], begin) - all;
            const int64_t last = std::lower_bound(all + first, all + ptr[1], end) - all;
            if (last > first) parts_.push_back({&piece, first, last});
            entries += last - first;
        }
        const int64_t most = std::min(entries, end - begin) + 1;  // one more is written to
        Index* const columns = columns_.reserve(most);
        uint64_t* const numerators = numerators_.reserve(most);
        Sums<Index> sums;
        if (entries > 0) {
            const bool is_dense = (end - begin) / kColumnsPerEntry <= entries;
            sums.count = is_dense ? add_slices(begin, end, columns, numerators) : merge(columns, numerators);
            for (int64_t e = 0; e < sums.count; ++e) sums.total += numerators[e] = raise(numerators[e], power_);
        }
        sums.columns = columns_.keep(sums.count);
        sums.numerators = numerators_.keep(sums.count);
        return sums;
    }

private:
    // Entries position .. end - 1 of a piece.
    struct Part {
        const SumsIn<Index>* piece;
        int64_t position, end;
    };

    int64_t add_slices(int64_t begin, int64_t end, Index* columns, uint64_t* numerators) {
        if (sums_.size() == 0) {
            sums_ = Buffer<uint64_t>(kSlice);
            std::fill_n(sums_.data(), kSlice, uint64_t(0));
        }
        int64_t count = 0;
        for (int64_t slice = begin; slice < end; slice += kSlice) {
            const int64_t stop = std::min(slice + kSlice, end);
            for (Part& part : parts_) add_part(part, slice, stop);
            count += take(slice, stop - slice, columns + count, numerators + count);
        }
        return count;
    }

    // Adds the entries of the part before column `stop`.
    void add_part(Part& part, int64_t slice, int64_t stop) {
        const Index* const columns = part.piece->columns.data();
        uint64_t* const sums = sums_.data();
        with_numerators(*part.piece, [&](const auto* numerators) {
            int64_t e = part.position;
            for (; e < part.end && static_cast<int64_t>(columns[e]) < stop; ++e) sums[static_cast<int64_t>(columns[e]) - slice] += numerators[e];
            part.position = e;
        });
    }

    // Writes the positive sums of a slice, and leaves zeros. Without a branch per column.
    int64_t take(int64_t slice, int64_t width, Index* columns, uint64_t* numerators) {
        uint64_t* const sums = sums_.data();
        int64_t count = 0;
        for (int64_t group = 0; group < width; group += kGroup) {
            uint64_t any = 0;
            for (int64_t c = group; c < group + kGroup; ++c) any |= sums[c];
            if (any == 0) continue;
            for (int64_t c = group; c < group + kGroup; ++c) {
                columns[count] = static_cast<Index>(slice + c);
                numerators[count] = sums[c];
                count += sums[c] != 0;
                sums[c] = 0;
            }
        }
        return count;
    }

    int64_t merge(Index* columns, uint64_t* numerators) {
        merged_.begin();
        for (const Part& part : parts_) {
            with_numerators(*part.piece, [&](const auto* all) { wide_.assign(all + part.position, all + part.end); });
            merged_.add_row({part.piece->columns.data() + part.position, wide_.data(), part.end - part.position, 1});
        }
        return merged_.take({columns, numerators});
    }

    const std::vector<SumsIn<Index>>& pieces_;
    const int32_t power_;
    Room<Index> columns_;
    Room<uint64_t> numerators_;
    Buffer<uint64_t> sums_;  // zeros
    std::vector<Part> parts_;
    std::vector<uint64_t> wide_;
    MergeAccumulator<Index, uint64_t> merged_;
};

// --- all batches ----------------------------------------------------------------------------------------------------

template <class Index>
struct AddedRows {
    Buffer<int64_t> indptr;
    Buffer<Index> columns;
    Buffer<uint64_t> numerators, totals;
};

// All rows, each in `num_ranges` ranges of columns. O(entries + columns of dense rows); memory beside the result: as much again, and
// 256 KB a thread.
template <class Index>
AddedRows<Index> add_rows(const std::vector<SumsIn<Index>>& pieces, int64_t k, int64_t num_columns, int32_t power) {
    const int64_t num_ranges = k < thread_limit() ? std::max<int64_t>(1, (num_columns + kRange - 1) / kRange) : 1;
    std::vector<Sums<Index>> sums(static_cast<size_t>(k * num_ranges));
    parallel_chunks(
        k * num_ranges, 1, [&] { return Adder<Index>(pieces, power, k * num_ranges); },
        [&](Adder<Index>& adder, int64_t task, int64_t) {
            const int64_t range = task % num_ranges;
            const int64_t begin = num_ranges > 1 ? range * kRange : 0, end = range + 1 < num_ranges ? begin + kRange : num_columns;
            sums[static_cast<size_t>(task)] = adder.add(task / num_ranges, begin, end);
        });
    AddedRows<Index> added{Buffer<int64_t>(k + 1), {}, {}, Buffer<uint64_t>(k)};
    std::vector<int64_t> begins(sums.size() + 1, 0);
    for (size_t t = 0; t < sums.size(); ++t) begins[t + 1] = begins[t] + sums[t].count;
    added.indptr[0] = 0;
    for (int64_t i = 0; i < k; ++i) {
        added.indptr[i + 1] = begins[static_cast<size_t>((i + 1) * num_ranges)];
        added.totals[i] = 0;
        for (int64_t r = 0; r < num_ranges; ++r) added.totals[i] += sums[static_cast<size_t>(i * num_ranges + r)].total;
    }
    added.columns = Buffer<Index>(begins.back());
    added.numerators = Buffer<uint64_t>(begins.back());
    parallel_chunks(k * num_ranges, 1, [&](int64_t task, int64_t) {
        Sums<Index>& row = sums[static_cast<size_t>(task)];
        std::copy_n(row.columns.items, row.count, added.columns.data() + begins[static_cast<size_t>(task)]);
        std::copy_n(row.numerators.items, row.count, added.numerators.data() + begins[static_cast<size_t>(task)]);
    });
    return added;
}

// Throws unless the pieces are k rows of columns that ascend without repeats, below num_columns.
template <class Index>
void require_rows(const std::vector<SumsIn<Index>>& pieces, int64_t k, int64_t num_columns) {
    for (const SumsIn<Index>& piece : pieces) {
        const int64_t* const ptr = piece.indptr.data();
        parallel_chunks(k, 1, [&](int64_t i, int64_t) {
            require(is_ascending(piece.columns.data() + ptr[i], ptr[i + 1] - ptr[i], num_columns), "columns", "must ascend, below the number of columns");
        });
    }
}

template <class Index>
nb::tuple add_columns(const std::vector<SumsIn<Index>>& pieces, int64_t num_columns, int32_t power) {
    require(!pieces.empty() && pieces[0].indptr.size() >= 1, "pieces", "needs at least one");
    require(num_columns >= 0, "num_columns", "must not be negative");
    const int64_t k = static_cast<int64_t>(pieces[0].indptr.size()) - 1;
    for (const SumsIn<Index>& piece : pieces) {
        require(static_cast<int64_t>(piece.indptr.size()) == k + 1, "pieces", "must have equally many rows");
        require_pointers(piece.indptr, static_cast<int64_t>(piece.columns.size()), "indptr");
        require(piece.numerators.type().kind == 'u', "numerators", "must be unsigned");
        require(piece.numerators.size() == piece.columns.size(), "numerators", "needs one per column");
    }
    AddedRows<Index> added;
    {
        nb::gil_scoped_release release;
        require_rows(pieces, k, num_columns);
        added = add_rows(pieces, k, num_columns, power);
    }
    return nb::make_tuple(
        to_numpy(std::move(added.indptr)), to_numpy(std::move(added.columns)), to_numpy(std::move(added.numerators)),
        to_numpy(std::move(added.totals)));
}

}  // namespace

void bind_column_law_added(nb::module_& m) {
    m.def("add_columns", &add_columns<int32_t>, "(indptr, columns, numerators, totals) of the sums of rows.");
    m.def("add_columns", &add_columns<int64_t>, "(indptr, columns, numerators, totals) of the sums of rows.");
}

}  // namespace spsample
