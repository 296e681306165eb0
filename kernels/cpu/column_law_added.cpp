// Rows of column sums added up: what several parts of A give for the same batches (P of the column law, docs/law.md, section 2).
//
// The columns of every row ascend. So a batch is added up slice by slice of columns, in sums that stay in the second-level cache, and
// nothing is sorted. Where a batch has few entries, its rows are merged, or put into a hash table. Sums of unsigned integers are exact:
// equal in any order.
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
constexpr int64_t kRange = 1 << 17;   // columns, at least, that are worth a thread where there are fewer batches than threads
constexpr int64_t kGroup = 32;        // columns that are passed over together where none of them has a sum
constexpr size_t kMostMerged = 2;     // rows that are merged: more go into a hash table
constexpr int64_t kRangesPerThread = 4;

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

// --- one batch ------------------------------------------------------------------------------------------------------

// What stands in columns [begin, end) of a batch's row.
template <class Index>
struct Sums {
    RoomPiece<Index> columns;
    RoomPiece<uint64_t> numerators;
    int64_t count = 0;
    uint64_t total = 0;
};

// Whether `entries` of so many columns are added up in a row of sums over all of them.
bool serves_dense(int64_t num_columns, int64_t entries) { return entries > 0 && num_columns / kColumnsPerEntry <= entries; }

// Adds up rows, by one thread, which keeps its memory.
template <class Index>
class Adder {
public:
    Adder(const std::vector<SumsIn<Index>>& pieces, int32_t power, int64_t num_tasks)
        : pieces_(pieces), power_(power), kept_columns_(num_tasks), kept_numerators_(num_tasks) {}

    // Row `batch` of all pieces in columns [begin, end). O(entries + columns) where the row is dense, else O(entries and a sort of them).
    Sums<Index> add(int64_t batch, int64_t begin, int64_t end) {
        const int64_t entries = find_parts(batch, begin, end);
        const int64_t most = std::min(entries, end - begin) + 1;  // one more is written to
        if (columns_.size() < most) columns_ = Buffer<Index>(most);
        if (numerators_.size() < most) numerators_ = Buffer<uint64_t>(most);
        Sums<Index> sums;
        if (entries > 0) sums.count = serves_dense(end - begin, entries) ? add_slices(begin, end) : add_few(entries);
        Index* const columns = kept_columns_.reserve(sums.count);
        uint64_t* const numerators = kept_numerators_.reserve(sums.count);
        std::copy_n(columns_.data(), sums.count, columns);
        for (int64_t e = 0; e < sums.count; ++e) sums.total += numerators[e] = raise(numerators_[e], power_);
        sums.columns = kept_columns_.keep(sums.count);
        sums.numerators = kept_numerators_.keep(sums.count);
        return sums;
    }

private:
    // Entries position .. end - 1 of a piece.
    struct Part {
        const SumsIn<Index>* piece;
        int64_t position, end;
    };

    // What of the pieces' rows lies in columns [begin, end). Returns the number of entries.
    int64_t find_parts(int64_t batch, int64_t begin, int64_t end) {
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
        return entries;
    }

    // The sums go to columns_ and numerators_, like those of `add_few`. Returns how many there are.
    int64_t add_slices(int64_t begin, int64_t end) {
        if (sums_.size() == 0) {
            sums_ = Buffer<uint64_t>(kSlice);
            std::fill_n(sums_.data(), kSlice, uint64_t(0));
        }
        int64_t count = 0;
        for (int64_t slice = begin; slice < end; slice += kSlice) {
            const int64_t stop = std::min(slice + kSlice, end);
            for (Part& part : parts_) add_part(part, slice, stop);
            count += take(slice, stop - slice, columns_.data() + count, numerators_.data() + count);
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

    int64_t add_few(int64_t entries) {
        if (parts_.size() > kMostMerged) {
            hashed_.begin(entries);
            return add_by(hashed_);
        }
        merged_.begin();
        return add_by(merged_);
    }

    template <class Accumulator>
    int64_t add_by(Accumulator& accumulator) {
        for (const Part& part : parts_) {
            with_numerators(*part.piece, [&](const auto* all) { wide_.assign(all + part.position, all + part.end); });
            accumulator.add_row({part.piece->columns.data() + part.position, wide_.data(), part.end - part.position, 1});
        }
        return accumulator.take({columns_.data(), numerators_.data()});
    }

    const std::vector<SumsIn<Index>>& pieces_;
    const int32_t power_;
    Room<Index> kept_columns_;
    Room<uint64_t> kept_numerators_;
    Buffer<Index> columns_;  // of one row, and its numerators: there may be fewer than room is needed for
    Buffer<uint64_t> numerators_;
    Buffer<uint64_t> sums_;  // zeros
    std::vector<Part> parts_;
    std::vector<uint64_t> wide_;
    MergeAccumulator<Index, uint64_t> merged_;
    HashAccumulator<Index, uint64_t> hashed_;
};

// --- all batches ----------------------------------------------------------------------------------------------------

// Columns of a range: all of them, unless there are fewer batches than threads and one is dense.
template <class Index>
int64_t range_width(const std::vector<SumsIn<Index>>& pieces, int64_t k, int64_t num_columns) {
    const int64_t threads = thread_limit();
    const auto is_dense = [&](int64_t batch) {
        int64_t entries = 0;
        for (const SumsIn<Index>& piece : pieces) entries += piece.indptr.data()[batch + 1] - piece.indptr.data()[batch];
        return serves_dense(num_columns, entries);
    };
    bool any_dense = false;
    for (int64_t i = 0; k < threads && i < k; ++i) any_dense |= is_dense(i);
    const int64_t ranges = any_dense ? std::min(num_columns / kRange, kRangesPerThread * threads) : 1;
    if (ranges <= 1) return std::max<int64_t>(num_columns, 1);
    return ((num_columns - 1) / ranges / kSlice + 1) * kSlice;
}

// O(entries + columns of dense rows, and a sort of the entries of others). Memory beside the result: as much again, and on each thread two
// rows and 256 KB.
template <class Index>
MergedRows<Index> add_rows(const std::vector<SumsIn<Index>>& pieces, int64_t k, int64_t num_columns, int32_t power) {
    const int64_t width = range_width(pieces, k, num_columns), num_ranges = std::max<int64_t>(1, (num_columns + width - 1) / width);
    std::vector<Sums<Index>> sums(static_cast<size_t>(k * num_ranges));
    parallel_chunks(
        k * num_ranges, 1, [&] { return Adder<Index>(pieces, power, k * num_ranges); },
        [&](Adder<Index>& adder, int64_t task, int64_t) {
            const int64_t begin = task % num_ranges * width;
            sums[static_cast<size_t>(task)] = adder.add(task / num_ranges, begin, std::min(begin + width, num_columns));
        });
    MergedRows<Index> added{Buffer<int64_t>(k + 1), {}, {}, Buffer<uint64_t>(k)};
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
    parallel_chunks(k * static_cast<int64_t>(pieces.size()), 1, [&](int64_t row, int64_t) {
        const SumsIn<Index>& piece = pieces[static_cast<size_t>(row / k)];
        const int64_t begin = piece.indptr.data()[row % k], count = piece.indptr.data()[row % k + 1] - begin;
        const Index* const columns = piece.columns.data() + begin;
        const bool is_inside = count == 0 || (columns[0] >= 0 && static_cast<int64_t>(columns[count - 1]) < num_columns);
        require(is_inside && ascends(columns, count), "columns", "must ascend, below the number of columns");
    });
}

template <class Index>
nb::tuple add_columns(const std::vector<SumsIn<Index>>& pieces, int64_t num_columns, int32_t power) {
    require(!pieces.empty() && pieces[0].indptr.size() >= 1, "pieces", "needs at least one");
    require(num_columns >= 0, "num_columns", "must not be negative");
    require(power == 1 || power == 2, "column_power", "must be 1 or 2");
    const int64_t k = static_cast<int64_t>(pieces[0].indptr.size()) - 1;
    for (const SumsIn<Index>& piece : pieces) {
        require(static_cast<int64_t>(piece.indptr.size()) == k + 1, "pieces", "must have equally many rows");
        require_pointers(piece.indptr, static_cast<int64_t>(piece.columns.size()), "indptr");
        require(piece.numerators.type().kind == 'u', "numerators", "must be unsigned");
        require(piece.numerators.size() == piece.columns.size(), "numerators", "needs one per column");
    }
    MergedRows<Index> added;
    {
        nb::gil_scoped_release release;
        require_rows(pieces, k, num_columns);
        added = add_rows(pieces, k, num_columns, power);
    }
    return packed(std::move(added));
}

}  // namespace

void bind_column_law_added(nb::module_& m) {
    m.def("add_columns", &add_columns<int32_t>, "(indptr, columns, numerators, totals) of the sums of rows.");
    m.def("add_columns", &add_columns<int64_t>, "(indptr, columns, numerators, totals) of the sums of rows.");
}

}  // namespace spsample
