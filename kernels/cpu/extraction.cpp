// Extraction: A's rows restricted to the src columns of their batches (docs/law.md, section 4).
#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "extraction.h"
#include "extraction_sets.h"
#include "extraction_shared.h"
#include "parallel.h"
#include "room.h"
#include "scratch.h"
#include "stacking.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 64;
constexpr int64_t kAhead = 8;

constexpr int64_t kFilterChunk = 4096;  // entries filtered at a time: what passes stays in the first-level cache
constexpr int64_t kSearchRatio = 24;  // rows longer than this times the number of columns are searched, not read
constexpr int64_t kRowWork = 32;  // of finding or placing a row, as entries read
constexpr int64_t kLookedAt = 16;  // one row of so many tells whether they are long enough for it to matter how they are read
constexpr int64_t kShortRow = 64;  // work of a row
constexpr int64_t kSharedColumns = int64_t(1) << 22;  // the most for which such a table is made
constexpr int64_t kSearchPiece = int64_t(1) << 16;  // entries searched at a time: what is found has room for as many

// Those of a set of columns that are at least `first` and at most `last`. O(log columns).
template <class Index>
SortedColumns<Index> columns_between(const SortedColumns<Index>& set, Index first, Index last) {
    const Index* const begin = std::lower_bound(set.columns, set.columns + set.count, first);
    const Index* const end = std::upper_bound(begin, set.columns + set.count, last);
    return {begin, set.places + (begin - set.columns), end - begin};
}

// What the stacked rows visited as number begin .. end - 1 found.
template <class Index>
struct Found {
    int64_t begin, end;
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
    std::vector<uint32_t> offsets;
    std::vector<Index> places;
    std::vector<SharedMatch<Index>> matches;
    std::vector<Index> local;
    std::vector<int64_t> positions;
    int64_t count = 0;

    // Adds the entries of a row, which lies at `begin` in A, by hash; `filter` spares most of them that. O(degree).
    void add_by_filter(const KeyFilter& filter, const HashMap<Index, Index>& columns, const Index* row, int64_t degree, int64_t begin) {
        uint32_t likely[kFilterChunk + kMatchRoom];
        for (int64_t first = 0; first < degree; first += kFilterChunk) {
            const int64_t chunk = std::min(kFilterChunk, degree - first);
            const int64_t passed = match_functions<Index>().likely(filter, row + first, chunk, likely);
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

    // Adds the entries of a row for all batches of a run, one batch after the other; `counts` says how many of each.
    // O(degree + entries found).
    void add_shared(const SharedView<Index>& columns, const SharedRun& run, const Index* row, int64_t degree, int64_t begin, int64_t* counts) {
        const int64_t number = find_matches(columns, run, row, degree);
        int64_t cursors[kSharedBatches] = {};
        for (int64_t m = 0; m < number; ++m) ++cursors[matches[static_cast<size_t>(m)].bit];
        make_room(number);
        for (int j = 0; j < run.size; ++j) {
            counts[j] = std::exchange(cursors[run.bits[j]], count);
            count += counts[j];
        }
        for (int64_t m = 0; m < number; ++m) {
            const SharedMatch<Index> match = matches[static_cast<size_t>(m)];
            const size_t at = static_cast<size_t>(cursors[match.bit]++);
            local[at] = match.place;
            if (with_positions) positions[at] = begin + match.offset;
        }
    }

    // All that was found since `count` was 0, to be kept: that of the rows visited as number first .. last - 1.
    Found<Index> kept(int64_t first, int64_t last) {
        Found<Index> found{first, last, local_room.take(count), {}};
        std::copy_n(local.data(), count, found.local.items);
        if (with_positions) {
            found.positions = positions_room.take(count);
            std::copy_n(positions.data(), count, found.positions.items);
        }
        return found;
    }

private:
    static constexpr int64_t kFirstRoom = 256;

    // Those of a row for all batches of a run; returns how many.
    int64_t find_matches(const SharedView<Index>& columns, const SharedRun& run, const Index* row, int64_t degree) {
        uint32_t likely[kFilterChunk + kMatchRoom];
        int64_t number = 0;
        for (int64_t first = 0; first < degree; first += kFilterChunk) {
            const int64_t chunk = std::min(kFilterChunk, degree - first);
            const int64_t passed = match_functions<Index>().shared(columns, run.wanted, row + first, chunk, likely);
            SharedMatch<Index>* const found = grown(matches, number + passed * run.size + 2) + number;
            const int64_t more = match_functions<Index>().shared_places(columns, run.wanted, row + first, likely, passed, found);
            for (int64_t m = 0; first > 0 && m < more; ++m) found[m].offset += static_cast<uint32_t>(first);
            number += more;
        }
        return number;
    }

    void make_room(int64_t more) {
        if (static_cast<int64_t>(local.size()) >= count + more) return;
        const size_t size = static_cast<size_t>(kFirstRoom + count + more + (count + more) / 2);
        local.resize(size);
        if (with_positions) positions.resize(size);
    }
};

// Where groups of batches begin, and where the last one ends.
using Groups = std::vector<int64_t>;

// Groups whose column sets lie in the second-level cache together; at least one batch each.
inline Groups groups_by_columns(const int64_t* src_ptr, int64_t num_batches) {
    constexpr int64_t kGroupColumns = int64_t(1) << 16;  // with filters of at most 16 bytes a column
    Groups groups{0};
    while (groups.back() < num_batches) {
        const int64_t begin = groups.back();
        const int64_t* const after = std::upper_bound(src_ptr + begin + 1, src_ptr + num_batches + 1, src_ptr[begin] + kGroupColumns);
        groups.push_back(std::max(begin + 1, static_cast<int64_t>(after - src_ptr) - 1));
    }
    return groups;
}

// Groups whose batches have a bit each.
inline Groups groups_by_number(int64_t num_batches) {
    Groups groups{0};
    while (groups.back() < num_batches) groups.push_back(std::min(groups.back() + kSharedBatches, num_batches));
    return groups;
}

// The stacked rows, group of batches by group, those of a group by vertex: a row of A that many batches select is read once and then
// lies in the cache, and so do the group's column sets. Few rows of one batch are visited as they come.
template <class Index>
std::vector<Numbered<Index>> visiting_order(const SelectorView<Index>& Q, const Groups& groups) {
    constexpr int64_t kFewRows = 1024;
    std::vector<Numbered<Index>> order(static_cast<size_t>(Q.num_rows));
    for (int64_t r = 0; r < Q.num_rows; ++r) order[static_cast<size_t>(r)] = {Q.vertices[r], static_cast<Index>(r)};
    if (Q.num_batches == 1 && Q.num_rows <= kFewRows) return order;
    struct Scratch {
        std::vector<Numbered<Index>> rows, spare;
    };
    const auto sort_group = [&](Scratch& scratch, int64_t g, int64_t) {
        const auto begin = order.begin() + Q.batch_ptr[groups[static_cast<size_t>(g)]], end = order.begin() + Q.batch_ptr[groups[static_cast<size_t>(g) + 1]];
        scratch.rows.assign(begin, end);
        sort_by_key(scratch.rows, scratch.spare);
        std::copy(scratch.rows.begin(), scratch.rows.end(), begin);
    };
    parallel_chunks(static_cast<int64_t>(groups.size()) - 1, 1, [] { return Scratch{}; }, sort_group);
    return order;
}

// The batch of each stacked row.
template <class Index>
Buffer<Index> batches_of_rows(const SelectorView<Index>& Q) {
    Buffer<Index> batches(Q.num_rows);
    for (int64_t i = 0; i < Q.num_batches; ++i) std::fill(batches.data() + Q.batch_ptr[i], batches.data() + Q.batch_ptr[i + 1], static_cast<Index>(i));
    return batches;
}

// What is to be found, and what has been.
template <class Index>
class Search {
public:
    Search(const CsrView<Index>& A_, const SelectorView<Index>& Q_, const int64_t* src_ptr_, const Index* src_, bool positions_)
        : A(A_), Q(Q_), src_ptr(src_ptr_), src(src_), positions(positions_) {}

    const CsrView<Index>& A;
    const SelectorView<Index>& Q;
    const int64_t* const src_ptr;
    const Index* const src;
    const bool positions;
    std::vector<Found<Index>> found;
    Buffer<int64_t> counts{Q.num_rows};  // per stacked row
    Buffer<Index> batch_of = batches_of_rows(Q);

    // Calls find(finder, begin, end) for chunks of rows visited as number first .. last - 1, and keeps what each has found.
    template <class Find>
    void find_chunks(int64_t first, int64_t last, Find&& find) {
        const int64_t before = static_cast<int64_t>(found.size()), chunks = (last - first + kRowChunk - 1) / kRowChunk;
        found.resize(static_cast<size_t>(before + chunks));
        const auto lend = [&] { return Lent{*this, take_finder()}; };
        parallel_chunks(last - first, kRowChunk, lend, [&](Lent& lent, int64_t begin, int64_t end) {
            Finder<Index>& finder = *lent.finder;
            finder.count = 0;
            find(finder, first + begin, first + end);
            found[static_cast<size_t>(before + begin / kRowChunk)] = finder.kept(first + begin, first + end);
        });
    }

    // Moves what a chunk has found to the rows' places in the result.
    void place(const std::vector<Numbered<Index>>& order, Found<Index> chunk, Extraction<Index>& result) const {
        int64_t from = 0;
        for (int64_t i = chunk.begin; i < chunk.end; ++i) {
            const int64_t row = order[static_cast<size_t>(i)].number, batch = batch_of[row];
            const int64_t to = result.pointers.entry_ptr[batch] + result.pointers.indptr[row + batch];
            std::copy_n(chunk.local.items + from, counts[row], result.columns.data() + to);
            if (chunk.positions.items) std::copy_n(chunk.positions.items + from, counts[row], result.positions.data() + to);
            from += counts[row];
        }
    }

    void place_all(const std::vector<Numbered<Index>>& order, Extraction<Index>& result) {
        idle_.clear();
        const ThreadsFor threads(kRowWork * Q.num_rows + result.columns.size());
        parallel_chunks(static_cast<int64_t>(found.size()), 1, [&](int64_t i, int64_t) {
            place(order, std::move(found[static_cast<size_t>(i)]), result);
        });
    }

private:
    // A thread's finder, which goes back when the thread has no more chunks.
    struct Lent {
        Search& search;
        std::unique_ptr<Finder<Index>> finder;

        Lent(Search& search_, std::unique_ptr<Finder<Index>> finder_) : search(search_), finder(std::move(finder_)) {}
        Lent(const Lent&) = delete;
        Lent& operator=(const Lent&) = delete;
        ~Lent() {
            const std::lock_guard<std::mutex> lock(search.mutex_);
            search.idle_.push_back(std::move(finder));
        }
    };

    std::unique_ptr<Finder<Index>> take_finder() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (idle_.empty()) {
            idle_.reserve(static_cast<size_t>(++num_finders_));  // so that giving one back cannot fail
            return std::make_unique<Finder<Index>>(Q.num_rows / kRowChunk / thread_limit() + 1, positions);
        }
        std::unique_ptr<Finder<Index>> finder = std::move(idle_.back());
        idle_.pop_back();
        return finder;
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<Finder<Index>>> idle_;  // between two calls of find_chunks: their blocks of memory are not full
    int64_t num_finders_ = 0;
};

// Fetches the rows of A that are visited next. Inlined: a compiler may leave a call out that does nothing but prefetch.
template <class Index>
SPSAMPLE_INLINE void fetch_ahead(const CsrView<Index>& A, const std::vector<Numbered<Index>>& order, int64_t i, int64_t end) {
    if (i + 2 * kAhead < end) SPSAMPLE_PREFETCH(A.indptr + order[static_cast<size_t>(i + 2 * kAhead)].key);
    if (i + kAhead < end) SPSAMPLE_PREFETCH(A.indices + A.begin(order[static_cast<size_t>(i + kAhead)].key));
}

// Each row by itself: a long one is searched, another one read.
template <class Index>
void find_by_row(Search<Index>& search, const std::vector<Numbered<Index>>& order) {
    const CsrView<Index>& A = search.A;
    const SelectorView<Index>& Q = search.Q;
    const auto has_long_row = [&](int64_t i) {
        const int64_t most = kSearchRatio * (search.src_ptr[i + 1] - search.src_ptr[i]);
        return std::any_of(Q.vertices + Q.batch_ptr[i], Q.vertices + Q.batch_ptr[i + 1], [&](Index vertex) { return A.degree(vertex) > most; });
    };
    ColumnSets<Index> sets(search.src_ptr, search.src, Q.num_batches, has_long_row);
    const auto find = [&](int64_t row, Finder<Index>& finder) {
        const int64_t batch = search.batch_of[row], before = finder.count;
        const int64_t first = A.begin(Q.vertices[row]), degree = A.degree(Q.vertices[row]);
        const SortedColumns<Index> sorted = sets.sorted(batch);
        if (degree > kSearchRatio * sorted.count) {
            finder.add_by_search(sorted, A.indices + first, degree, first);
        } else {
            finder.add_by_filter(sets.filter(batch), sets.places(batch), A.indices + first, degree, first);
        }
        search.counts[row] = finder.count - before;
    };
    search.find_chunks(0, Q.num_rows, [&](Finder<Index>& finder, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            fetch_ahead(A, order, i, end);
            find(order[static_cast<size_t>(i)].number, finder);
        }
    });
}

// One more than the largest column; 0 where there is none, or a table of all would be too large.
template <class Index>
int64_t column_limit(const Search<Index>& search) {
    const int64_t count = search.src_ptr[search.Q.num_batches];
    const int64_t largest = count == 0 ? -1 : int64_t(*std::max_element(search.src, search.src + count));
    return largest < kSharedColumns ? largest + 1 : 0;
}

// Each row once for all batches of its group that select it; all columns are below `limit`.
template <class Index>
void find_shared(Search<Index>& search, const std::vector<Numbered<Index>>& order, const Groups& groups, int64_t limit) {
    const CsrView<Index>& A = search.A;
    const SelectorView<Index>& Q = search.Q;
    SharedColumns<Index> columns(search.src_ptr, search.src, limit);
    for (size_t g = 0; g + 1 < groups.size(); ++g) {
        const BatchGroup group{groups[g], groups[g + 1]};
        columns.build(group);
        const SharedView<Index> view = columns.view();
        search.find_chunks(Q.batch_ptr[group.begin], Q.batch_ptr[group.end], [&](Finder<Index>& finder, int64_t begin, int64_t end) {
            int64_t counts[kSharedBatches];
            for (int64_t i = begin, next; i < end; i = next) {
                const Index vertex = order[static_cast<size_t>(i)].key;
                SharedRun run;
                for (next = i; next < end && order[static_cast<size_t>(next)].key == vertex; ++next) {
                    const int bit = static_cast<int>(search.batch_of[order[static_cast<size_t>(next)].number] - group.begin);
                    if (run.has(bit)) break;
                    run.add(bit);
                    fetch_ahead(A, order, next, end);
                }
                finder.add_shared(view, run, A.indices + A.begin(vertex), A.degree(vertex), A.begin(vertex), counts);
                for (int64_t j = i; j < next; ++j) search.counts[order[static_cast<size_t>(j)].number] = counts[j - i];
            }
        });
        if (g + 2 < groups.size()) columns.clear(group);
    }
}

// Of reading or searching a row by itself, in entries read.
template <class Index>
int64_t work_of_row(const Search<Index>& search, int64_t batch, int64_t degree) {
    return kRowWork + std::min(degree, kSearchRatio * (search.src_ptr[batch + 1] - search.src_ptr[batch]));
}

// Whether finding the entries is worth waking threads. Counted as far as it takes to know.
template <class Index>
bool is_worth_waking(const Search<Index>& search) {
    const SelectorView<Index>& Q = search.Q;
    int64_t work = 0;
    for (int64_t i = 0; i < Q.num_batches && work < ThreadsFor::kWorthWaking; ++i) {
        for (int64_t r = Q.batch_ptr[i]; r < Q.batch_ptr[i + 1]; ++r) work += work_of_row(search, i, search.A.degree(Q.vertices[r]));
    }
    return work >= ThreadsFor::kWorthWaking;
}

// Of looking an entry up in a table of batches by vertex, in entries read: more where the table is beyond a core's own caches.
inline int64_t work_of_lookup(int64_t num_columns) {
    if (num_columns <= int64_t(1) << 18) return 4;
    return num_columns <= int64_t(1) << 20 ? 6 : 9;
}

// Of making that table, on one thread, as the work of all.
inline int64_t work_of_table(int64_t num_columns) { return num_columns * thread_limit(); }

// Whether rows are long enough that reading them once for many batches may pay, as far as some of them tell. O(rows / kLookedAt).
template <class Index>
bool may_pay(const Search<Index>& search, int64_t num_columns) {
    const SelectorView<Index>& Q = search.Q;
    int64_t work = 0, rows = 0;
    for (int64_t r = 0; r < Q.num_rows; r += kLookedAt, ++rows) work += work_of_row(search, search.batch_of[r], search.A.degree(Q.vertices[r]));
    return work > kShortRow * rows + work_of_table(num_columns) / kLookedAt;
}

// Whether it is less work to read each row once for all batches of its group, and what that counts by 32 bits is small enough. An entry
// then costs several. O(rows).
template <class Index>
bool is_worth_sharing(const Search<Index>& search, const std::vector<Numbered<Index>>& order, const Groups& groups, int64_t num_columns) {
    constexpr int64_t kMost = int64_t(1) << 31;
    const int64_t lookup = work_of_lookup(num_columns);
    int64_t by_row = 0, shared = work_of_table(num_columns);
    for (size_t g = 0; g + 1 < groups.size(); ++g) {
        if (search.src_ptr[groups[g + 1]] - search.src_ptr[groups[g]] > kMost) return false;
        Index last = -1;
        for (int64_t i = search.Q.batch_ptr[groups[g]]; i < search.Q.batch_ptr[groups[g + 1]]; ++i) {
            const auto [vertex, row] = order[static_cast<size_t>(i)];
            const int64_t degree = search.A.degree(vertex);
            if (degree > kMost) return false;
            by_row += work_of_row(search, search.batch_of[row], degree);
            shared += vertex == last ? 0 : kRowWork + lookup * degree;
            last = vertex;
        }
    }
    return shared <= by_row;
}

// Finds all entries; returns the order in which rows were visited.
template <class Index>
std::vector<Numbered<Index>> find_all(Search<Index>& search) {
    const SelectorView<Index>& Q = search.Q;
    const ThreadsFor threads(is_worth_waking(search) ? ThreadsFor::kWorthWaking : 0);
    const Groups cached = groups_by_columns(search.src_ptr, Q.num_batches);
    const int64_t num_columns = Q.num_batches > 1 ? column_limit(search) : 0;
    if (num_columns > 0 && may_pay(search, num_columns)) {
        const Groups shared = groups_by_number(Q.num_batches);
        auto order = visiting_order(Q, shared);
        const bool is_shared = is_worth_sharing(search, order, shared, num_columns);
        if (is_shared) find_shared(search, order, shared, num_columns);
        if (!is_shared && shared == cached) find_by_row(search, order);
        if (is_shared || shared == cached) return order;
    }
    auto order = visiting_order(Q, cached);
    find_by_row(search, order);
    return order;
}

}  // namespace

template <class Index>
Extraction<Index> extract_rows(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const int64_t* src_ptr, const Index* src, bool positions) {
    constexpr int64_t kMostNumbered = std::numeric_limits<Index>::max();
    require(std::max(Q.num_rows, Q.num_batches) <= kMostNumbered, "vertices", "more rows or batches in a bulk than the index type can number");
    Search<Index> search(A, Q, src_ptr, src, positions);
    const auto order = find_all(search);
    Extraction<Index> result{stacked_pointers(Q.batch_ptr, Q.num_batches, search.counts.data()), {}, {}};
    result.columns = Buffer<Index>(result.pointers.entry_ptr[Q.num_batches]);
    if (positions) result.positions = Buffer<int64_t>(result.pointers.entry_ptr[Q.num_batches]);
    search.place_all(order, result);
    return result;
}

template Extraction<int32_t> extract_rows(const CsrView<int32_t>&, const SelectorView<int32_t>&, const int64_t*, const int32_t*, bool);
template Extraction<int64_t> extract_rows(const CsrView<int64_t>&, const SelectorView<int64_t>&, const int64_t*, const int64_t*, bool);

namespace {

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
