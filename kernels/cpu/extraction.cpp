// Extraction: A's rows restricted to the src columns of their batches (docs/law.md, section 4).
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "bindings.h"
#include "extraction_sets.h"
#include "parallel.h"
#include "room.h"
#include "scratch.h"
#include "stacking.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 64;
constexpr int64_t kAhead = 8;

template <class Index>
struct Extraction {
    StackedPointers pointers;
    Buffer<Index> columns;
    Buffer<int64_t> positions;  // empty where not asked for
};

constexpr int64_t kFilterChunk = 4096;  // entries filtered at a time: what passes stays in the first-level cache
constexpr int64_t kSearchRatio = 24;  // rows longer than this times the number of columns are searched, not read
constexpr int64_t kRowWork = 32;  // of finding or placing a row, as entries read
constexpr int64_t kSearchPiece = int64_t(1) << 16;  // entries searched at a time: what is found has room for as many

// Those of a set of columns that are at least `first` and at most `last`. O(log columns).
template <class Index>
SortedColumns<Index> columns_between(const SortedColumns<Index>& set, Index first, Index last) {
    const Index* const begin = std::lower_bound(set.columns, set.columns + set.count, first);
    const Index* const end = std::upper_bound(begin, set.columns + set.count, last);
    return {begin, set.places + (begin - set.columns), end - begin};
}

// What a chunk of stacked rows found.
template <class Index>
struct Found {
    RoomPiece<Index> local;
    RoomPiece<int64_t> positions;
};

// Entries found, and memory to find them in; of one thread.
template <class Index>
struct Finder {
    // `num_chunks`: how many chunks of rows the thread may get.
    Finder(int64_t num_chunks, bool with_positions_) : with_positions(with_positions_), local_room(num_chunks), positions_room(num_chunks) {}

    bool with_positions;
    Room<Index> local_room;
    Room<int64_t> positions_room;
    std::unique_ptr<uint32_t[]> likely{new uint32_t[kFilterChunk + kMatchRoom]};
    std::vector<uint32_t> offsets;
    std::vector<Index> places;
    std::vector<Index> local;
    std::vector<int64_t> positions;
    int64_t count = 0;

    // Adds the entries of a row, which lies at `begin` in A, by hash; `filter` spares most of them that. O(degree).
    void add_by_filter(const KeyFilter& filter, const HashMap<Index, Index>& columns, const Index* row, int64_t degree, int64_t begin) {
        for (int64_t first = 0; first < degree; first += kFilterChunk) {
            const int64_t chunk = std::min(kFilterChunk, degree - first);
            const int64_t passed = match_functions<Index>().likely(filter, row + first, chunk, likely.get());
            make_room(passed);
            for (int64_t j = 0; j < passed; ++j) {
                const int64_t offset = first + likely[j];
                const int64_t slot = columns.find(row[offset]);
                if (slot < 0) continue;
                local[static_cast<size_t>(count)] = columns.values[slot];
                if (with_positions) positions[static_cast<size_t>(count)] = begin + offset;
                ++count;
            }
        }
    }

    // The same by looking for every column in the ascending row, piece by piece. O(columns log degree + degree / kSearchPiece).
    void add_by_search(const SortedColumns<Index>& columns, const Index* row, int64_t degree, int64_t begin) {
        for (int64_t first = 0; first < degree; first += kSearchPiece) {
            const int64_t piece = std::min(kSearchPiece, degree - first);
            const SortedColumns<Index> within = columns_between(columns, row[first], row[first + piece - 1]);
            const Matches<Index> matches{grown(offsets, piece + kMatchRoom), grown(places, piece + kMatchRoom)};
            const int64_t found = match_functions<Index>().search(within, row + first, piece, matches);
            make_room(found);
            std::copy_n(matches.places, found, local.data() + count);
            for (int64_t j = 0; with_positions && j < found; ++j) {
                positions[static_cast<size_t>(count + j)] = begin + first + matches.offsets[j];
            }
            count += found;
        }
    }

    // All that was found since `count` was 0, to be kept.
    Found<Index> kept() {
        Found<Index> found{local_room.take(count), {}};
        std::copy_n(local.data(), count, found.local.items);
        if (with_positions) {
            found.positions = positions_room.take(count);
            std::copy_n(positions.data(), count, found.positions.items);
        }
        return found;
    }

private:
    static constexpr int64_t kFirstRoom = 256;

    void make_room(int64_t more) {
        if (static_cast<int64_t>(local.size()) >= count + more) return;
        const size_t size = static_cast<size_t>(kFirstRoom + count + more + (count + more) / 2);
        local.resize(size);
        if (with_positions) positions.resize(size);
    }
};

// The end of the group of batches from `begin` on whose column sets lie in the second-level cache together; at least one batch.
inline int64_t group_end(const int64_t* src_ptr, int64_t num_batches, int64_t begin) {
    constexpr int64_t kGroupColumns = int64_t(1) << 16;  // with filters of at most 16 bytes a column
    const int64_t* const after = std::upper_bound(src_ptr + begin + 1, src_ptr + num_batches + 1, src_ptr[begin] + kGroupColumns);
    return std::max(begin + 1, static_cast<int64_t>(after - src_ptr) - 1);
}

// The stacked rows, group of batches by group, those of a group by vertex: a row of A that many batches select is read once and then
// lies in the cache, and so do the group's column sets. Few rows of one batch are visited as they come.
template <class Index>
std::vector<Numbered<Index>> visiting_order(const SelectorView<Index>& Q, const int64_t* src_ptr) {
    constexpr int64_t kFewRows = 1024;
    require(Q.num_rows <= int64_t(std::numeric_limits<Index>::max()), "vertices", "more rows in a bulk than the index type can number");
    std::vector<Numbered<Index>> order, group, spare;
    order.reserve(static_cast<size_t>(Q.num_rows));
    if (Q.num_batches == 1 && Q.num_rows <= kFewRows) {
        for (int64_t r = 0; r < Q.num_rows; ++r) order.push_back({Q.vertices[r], static_cast<Index>(r)});
        return order;
    }
    for (int64_t begin = 0, end = 0; begin < Q.num_batches; begin = end) {
        end = group_end(src_ptr, Q.num_batches, begin);
        group.clear();
        for (int64_t r = Q.batch_ptr[begin]; r < Q.batch_ptr[end]; ++r) group.push_back({Q.vertices[r], static_cast<Index>(r)});
        sort_by_key(group, spare);
        order.insert(order.end(), group.begin(), group.end());
    }
    return order;
}

// Extraction in progress. `found` holds what each chunk of rows, in the order they are visited, has found.
template <class Index>
struct Search {
    const CsrView<Index>& A;
    const SelectorView<Index>& Q;
    std::optional<ColumnSets<Index>> sets;  // until all is found
    std::vector<Numbered<Index>> order;
    std::vector<Found<Index>> found;
    Buffer<int64_t> counts;  // per stacked row

    Search(const CsrView<Index>& A_, const SelectorView<Index>& Q_, const int64_t* src_ptr, const Index* src)
        : A(A_), Q(Q_),
          sets(std::in_place, src_ptr, src, Q.num_batches, [&](int64_t i) { return has_long_row(i, src_ptr[i + 1] - src_ptr[i]); }),
          order(visiting_order(Q, src_ptr)),
          found((order.size() + kRowChunk - 1) / kRowChunk), counts(Q.num_rows) {}

    // Whether a row of the batch, which has so many columns, is searched.
    bool has_long_row(int64_t batch, int64_t num_columns) const {
        const auto is_long = [&](Index vertex) { return A.degree(vertex) > kSearchRatio * num_columns; };
        return std::any_of(Q.vertices + Q.batch_ptr[batch], Q.vertices + Q.batch_ptr[batch + 1], is_long);
    }

    int64_t batch_of(int64_t row) const { return std::upper_bound(Q.batch_ptr, Q.batch_ptr + Q.num_batches + 1, row) - Q.batch_ptr - 1; }

    // The entries of one stacked row: a long row is searched, another one read.
    void find(int64_t row, Finder<Index>& finder) {
        const int64_t batch = batch_of(row), before = finder.count;
        const int64_t first = A.begin(Q.vertices[row]), degree = A.degree(Q.vertices[row]);
        const SortedColumns<Index> sorted = sets->sorted(batch);
        if (degree > kSearchRatio * sorted.count) {
            finder.add_by_search(sorted, A.indices + first, degree, first);
        } else {
            finder.add_by_filter(sets->filter(batch), sets->places(batch), A.indices + first, degree, first);
        }
        counts[row] = finder.count - before;
    }

    // Those of the rows visited as number begin .. end - 1.
    void find_chunk(int64_t begin, int64_t end, Finder<Index>& finder) {
        finder.count = 0;
        for (int64_t i = begin; i < end; ++i) {
            if (i + 2 * kAhead < end) SPSAMPLE_PREFETCH(A.indptr + order[static_cast<size_t>(i + 2 * kAhead)].key);
            if (i + kAhead < end) SPSAMPLE_PREFETCH(A.indices + A.begin(order[static_cast<size_t>(i + kAhead)].key));
            find(order[static_cast<size_t>(i)].number, finder);
        }
        found[static_cast<size_t>(begin / kRowChunk)] = finder.kept();
    }

    void find_all(int64_t work, bool positions) {
        const ThreadsFor threads(work);
        const int64_t chunks_of_thread = Q.num_rows / (kRowChunk * thread_limit()) + 1;
        const auto make_finder = [&] { return Finder<Index>(chunks_of_thread, positions); };
        parallel_chunks(Q.num_rows, kRowChunk, make_finder, [&](Finder<Index>& finder, int64_t begin, int64_t end) {
            find_chunk(begin, end, finder);
        });
        sets.reset();
    }

    // Moves them to their rows' places in the result.
    void place_chunk(int64_t begin, int64_t end, Extraction<Index>& result) {
        const Found<Index> chunk = std::move(found[static_cast<size_t>(begin / kRowChunk)]);
        int64_t from = 0;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = order[static_cast<size_t>(i)].number, batch = batch_of(row);
            const int64_t to = result.pointers.entry_ptr[batch] + result.pointers.indptr[row + batch];
            std::copy_n(chunk.local.items + from, counts[row], result.columns.data() + to);
            if (chunk.positions.items) std::copy_n(chunk.positions.items + from, counts[row], result.positions.data() + to);
            from += counts[row];
        }
    }

    void place_all(Extraction<Index>& result) {
        const ThreadsFor threads(kRowWork * Q.num_rows + result.columns.size());
        parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) { place_chunk(begin, end, result); });
    }
};

// Of finding the entries: a long row costs what its search does. Counted as far as it takes to know that threads are worth waking.
template <class Index>
int64_t work_of_finding(const CsrView<Index>& A, const SelectorView<Index>& Q, const int64_t* src_ptr) {
    int64_t work = 0;
    for (int64_t batch = 0; batch < Q.num_batches && work < ThreadsFor::kWorthWaking; ++batch) {
        const int64_t most = kSearchRatio * (src_ptr[batch + 1] - src_ptr[batch]);
        for (int64_t r = Q.batch_ptr[batch]; r < Q.batch_ptr[batch + 1]; ++r) work += kRowWork + std::min(A.degree(Q.vertices[r]), most);
    }
    return work;
}

// The entries of the selected rows whose columns are in their batch's src. Each step decides by its own work whether to wake threads.
// O(src + sum over rows of min(degree, columns log degree)). Memory beside the result: its entries once more, and the
// column sets.
template <class Index>
Extraction<Index> extract_rows(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const int64_t* src_ptr, const Index* src, bool positions) {
    Search<Index> search(A, Q, src_ptr, src);
    search.find_all(work_of_finding(A, Q, src_ptr), positions);
    Extraction<Index> result{stacked_pointers(Q.batch_ptr, Q.num_batches, search.counts.data()), {}, {}};
    result.columns = Buffer<Index>(result.pointers.entry_ptr[Q.num_batches]);
    if (positions) result.positions = Buffer<int64_t>(result.pointers.entry_ptr[Q.num_batches]);
    search.place_all(result);
    return result;
}

template <class Index>
nb::tuple extract(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const In<int64_t>& src_ptr,
    const In<Index>& src, bool positions) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    require(src_ptr.size() == selector.batch_ptr.size(), "src_ptr", "needs one element per batch and one more");
    require_pointers(src_ptr, static_cast<int64_t>(src.size()), "src_ptr");
    require_ids(src, "src");
    Extraction<Index> result;
    {
        nb::gil_scoped_release release;
        result = extract_rows(A, Q, src_ptr.data(), src.data(), positions);
    }
    nb::object found_positions = nb::none();
    if (positions) found_positions = nb::cast(to_numpy(std::move(result.positions)));
    return nb::make_tuple(
        to_numpy(std::move(result.pointers.entry_ptr)), to_numpy(std::move(result.pointers.indptr)),
        to_numpy(std::move(result.columns)), found_positions);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("extract", &extract<Index>, "(entry_ptr, indptr, columns, positions or None) of the rows Q of A restricted to src.");
}

}  // namespace

void bind_extraction(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
