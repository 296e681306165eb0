// The row law over stacked rows, uniform: sample_rows_uniform (docs/law.md, section 3).
//
// Three passes over the m stacked rows of k batches:
//   1. each batch's rows are cut into pieces: long ascending runs of vertices, and the rest (the seeds, say, in any order);
//   2. the entries of each piece are counted, which places every piece's output; no count of a row is written anywhere;
//   3. the pieces are drawn, 16 rows at a time (simd.h), columns and row pointers straight into the result.
//
// Pass 3 goes piece by piece or, where the pieces of a thread ask for most cache lines of A anyway, in bulk order: A is visited
// range by range, and in each range the rows of all the thread's ascending pieces are drawn before the next range is. A's entries
// are then read once per thread, in order, and not once per batch at random. The order of the vertices matters for speed only;
// no order of drawing changes a bit.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <unistd.h>
#endif

#include "row_fill.h"
#include "simd.h"
#include "spsample/row_law.h"

namespace spsample {
namespace {

// --- sizes ------------------------------------------------------------------------------------------------------------------

constexpr int64_t kLongRun = 128;           // shorter ascending runs are drawn in their order
constexpr int64_t kSmallestPiece = 512;     // rows; pieces are cut down to this to give every thread some
constexpr int64_t kPointersAhead = 32;      // rows: how far ahead row pointers are asked for
constexpr int kDepth = 3;                   // groups of 16 rows between the draw, which asks for their entries, and the load
constexpr int64_t kUsualCache = 1 << 20;    // bytes of a core's second-level cache where the system does not say
constexpr int64_t kFarRange = 4 << 20;      // bytes of A that stay in the third-level cache while a group draws from them
constexpr int64_t kCacheLine = 64;
constexpr int64_t kRowsPerVisit = 16;       // a piece waits until a range (or several) holds about as many of its rows

// Bytes of A that, asked for beforehand, wait in the second-level cache: three quarters of it.
int64_t near_range() {
    int64_t cache = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return std::clamp<int64_t>(cache > 0 ? cache : kUsualCache, 512 << 10, 4 << 20) / 4 * 3;
}

// Rows of one batch, drawn in their order.
struct Piece {
    int64_t batch;
    int64_t begin;  // stacked rows
    int64_t end;
    bool ascending;
    int64_t count = 0;   // entries
    int64_t offset = 0;  // entries of the batch before them
};

// Draws 16 rows at a time from one A and Q into one result.
template <class Index>
class Drawer {
public:
    Drawer(const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, RowsResult<Index>& result)
        : A_(A), Q_(Q), result_(result), how_{draw.key, draw.hop, 0, static_cast<int>(draw.size), draw.replace},
          draw_lanes_(instruction_set().draw_lanes) {}

    // The rows [begin, end) of a piece, whose entries go to `offset` in the batch and whose output ends where the piece's does.
    // Prefetch: whether the entries may be far away. Returns the offset behind the last row.
    template <bool Prefetch>
    int64_t draw(const Piece& piece, int64_t begin, int64_t end, int64_t offset) {
        constexpr int depth = Prefetch ? kDepth : 0;
        how_.batch_id = Q_.batch_ids[piece.batch];
        const int64_t num_groups = (end - begin + kLanes - 1) / kLanes;
        for (int64_t g = 0; g < num_groups + depth; ++g) {
            if (g < num_groups) {
                Group& group = groups_[g % (depth + 1)];
                load(piece, begin + g * kLanes, std::min<int64_t>(kLanes, end - begin - g * kLanes), group);
                draw_lanes_(how_, group.lanes);
                if (Prefetch) prefetch(group);
            }
            if (g >= depth) offset = emit(piece, groups_[(g - depth) % (depth + 1)], offset);
        }
        return offset;
    }

private:
    struct Group {
        Lanes lanes;
        int64_t begin[kLanes];  // of each row in A
        int32_t number[kLanes];  // of entries drawn
        int64_t first;           // stacked row
        int rows;
        bool inside;  // begin + size is not past A's end in any lane
    };

    // Row pointers of `rows` rows from stacked row `first` on.
    void load(const Piece& piece, int64_t first, int64_t rows, Group& group) const {
        const Index* vertices = Q_.vertices + first;
        const int64_t ahead = std::min(rows, piece.end - first - kPointersAhead);
        for (int64_t lane = 0; lane < ahead; ++lane) SPSAMPLE_PREFETCH(A_.indptr + vertices[lane + kPointersAhead]);
        int64_t last = 0;
        for (int64_t lane = 0; lane < rows; ++lane) {
            const uint64_t vertex = static_cast<uint64_t>(vertices[lane]);
            const int64_t begin = A_.indptr[vertex];
            const int64_t degree = A_.indptr[vertex + 1] - begin;
            group.lanes.vertex_low[lane] = static_cast<uint32_t>(vertex);
            group.lanes.vertex_high[lane] = static_cast<uint32_t>(vertex >> 32);
            group.lanes.degree[lane] = static_cast<uint32_t>(degree);
            group.begin[lane] = begin;
            group.number[lane] = static_cast<int32_t>(drawn_count(degree, how_.size, how_.replace));
            last = std::max(last, begin);
        }
        for (int64_t lane = rows; lane < kLanes; ++lane) {
            group.lanes.vertex_low[lane] = group.lanes.vertex_high[lane] = group.lanes.degree[lane] = 0;
        }
        group.first = first;
        group.rows = static_cast<int>(rows);
        group.inside = last + how_.size <= A_.num_entries;
    }

    void prefetch(const Group& group) const {
        for (int lane = 0; lane < group.rows; ++lane) {
            const Index* row = A_.indices + group.begin[lane];
            for (int j = 0; j < group.number[lane]; ++j) SPSAMPLE_PREFETCH(row + group.lanes.positions[j][lane]);
        }
    }

    int64_t emit(const Piece& piece, const Group& group, int64_t offset) const {
        return result_.with_positions ? emit_as<true>(piece, group, offset) : emit_as<false>(piece, group, offset);
    }

    template <bool WithPositions>
    int64_t emit_as(const Piece& piece, const Group& group, int64_t offset) const {
        // Where there is room for it, `size` entries are written for each row: what is too much, the next row writes over.
        const bool roomy = group.inside && piece.offset + piece.count - offset >= int64_t(kLanes) * how_.size;
        if (!roomy) return emit_rows<WithPositions, false, 0>(piece, group, offset);
        switch (how_.size) {
            case 5: return emit_rows<WithPositions, true, 5>(piece, group, offset);
            case 10: return emit_rows<WithPositions, true, 10>(piece, group, offset);
            case 15: return emit_rows<WithPositions, true, 15>(piece, group, offset);
            default: return emit_rows<WithPositions, true, 0>(piece, group, offset);
        }
    }

    // Size: the fanout where it is known to the compiler, else 0.
    template <bool WithPositions, bool Roomy, int Size>
    int64_t emit_rows(const Piece& piece, const Group& group, int64_t offset) const {
        const int64_t base = result_.entry_ptr[piece.batch];
        int64_t* pointers = result_.indptr.data() + group.first + piece.batch + 1;
        const int size = Size > 0 ? Size : how_.size;
        for (int lane = 0; lane < group.rows; ++lane) {
            const Index* row = A_.indices + group.begin[lane];
            const uint32_t* positions = &group.lanes.positions[0][lane];
            Index* columns = result_.columns.data() + base + offset;
            const int number = Roomy ? size : group.number[lane];
            for (int j = 0; j < number; ++j) columns[j] = row[positions[j * kLanes]];
            if (WithPositions) {
                int64_t* where = result_.positions.data() + base + offset;
                for (int j = 0; j < number; ++j) where[j] = group.begin[lane] + positions[j * kLanes];
            }
            offset += group.number[lane];
            pointers[lane] = offset;
        }
        return offset;
    }

    const CsrView<Index>& A_;
    const SelectorView<Index>& Q_;
    RowsResult<Index>& result_;
    LaneDraw how_;
    void (*draw_lanes_)(const LaneDraw&, Lanes&);
    Group groups_[kDepth + 1];
};

// --- pass 1: pieces ---------------------------------------------------------------------------------------------------------

// Behind the last row of the ascending run that starts at row `begin`.
template <class Index>
int64_t run_end(const Index* vertices, int64_t begin, int64_t end) {
    int64_t r = begin + 1;
    while (r < end && vertices[r - 1] < vertices[r]) ++r;
    return std::min(r, end);
}

// Appends the rows [begin, end), cut into pieces of `most` rows.
void add_pieces(int64_t batch, int64_t begin, int64_t end, bool ascending, int64_t most, std::vector<Piece>& pieces) {
    for (; begin < end; begin += most) pieces.push_back({batch, begin, std::min(end, begin + most), ascending});
}

// The pieces of one batch. O(rows).
template <class Index>
std::vector<Piece> batch_pieces(const SelectorView<Index>& Q, int64_t batch, int64_t most) {
    std::vector<Piece> pieces;
    const int64_t end = Q.batch_ptr[batch + 1];
    int64_t unordered = Q.batch_ptr[batch];  // rows from here to `begin` are in no piece yet
    for (int64_t begin = unordered; begin < end;) {
        const int64_t stop = run_end(Q.vertices, begin, end);
        if (stop - begin >= kLongRun) {
            add_pieces(batch, unordered, begin, false, most, pieces);
            add_pieces(batch, begin, stop, true, most, pieces);
            unordered = stop;
        }
        begin = stop;
    }
    add_pieces(batch, unordered, end, false, most, pieces);
    return pieces;
}

template <class Index>
std::vector<Piece> all_pieces(const SelectorView<Index>& Q) {
    const int64_t most = std::max(kSmallestPiece, Q.num_rows / (8 * int64_t(thread_limit())));
    std::vector<std::vector<Piece>> of_batch(static_cast<size_t>(Q.num_batches));
    parallel_chunks(Q.num_batches, 1, [&](int64_t i, int64_t) { of_batch[static_cast<size_t>(i)] = batch_pieces(Q, i, most); });
    std::vector<Piece> pieces;
    for (const auto& some : of_batch) pieces.insert(pieces.end(), some.begin(), some.end());
    return pieces;
}

// --- pass 2: counts ---------------------------------------------------------------------------------------------------------

// Counts the entries of a piece. Returns the bitwise or of its degrees. O(rows).
template <class Index>
int64_t count_piece(const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, Piece& piece) {
    int64_t count = 0, degrees = 0;
    for (int64_t r = piece.begin; r < piece.end; ++r) {
        if (r + kPointersAhead < piece.end) SPSAMPLE_PREFETCH(A.indptr + Q.vertices[r + kPointersAhead]);
        const int64_t degree = A.degree(Q.vertices[r]);
        count += drawn_count(degree, draw.size, draw.replace);
        degrees |= degree;
    }
    piece.count = count;
    return degrees;
}

// Counts all pieces. Whether every degree fits the lanes of Lanes.
template <class Index>
bool count_pieces(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, std::vector<Piece>& pieces) {
    std::atomic<int64_t> degrees{0};
    parallel_chunks(static_cast<int64_t>(pieces.size()), 1, [&](int64_t p, int64_t) {
        degrees |= count_piece(A, Q, draw, pieces[static_cast<size_t>(p)]);
    });
    return degrees.load() >> 31 == 0;
}

// Places every piece and makes the arrays of the result; the row pointers are written as rows are drawn. O(k + pieces).
template <class Index>
RowsResult<Index> placed(const SelectorView<Index>& Q, bool with_positions, std::vector<Piece>& pieces) {
    RowsResult<Index> result;
    result.with_positions = with_positions;
    result.indptr = Buffer<int64_t>(checked_sum(Q.num_rows, Q.num_batches));
    result.entry_ptr = Buffer<int64_t>(Q.num_batches + 1);
    result.entry_ptr[0] = 0;
    auto piece = pieces.begin();
    for (int64_t i = 0; i < Q.num_batches; ++i) {
        int64_t count = 0;
        for (; piece != pieces.end() && piece->batch == i; ++piece) {
            piece->offset = count;
            count = checked_sum(count, piece->count);
        }
        result.indptr[Q.batch_ptr[i] + i] = 0;
        result.entry_ptr[i + 1] = checked_sum(result.entry_ptr[i], count);
    }
    result.columns = Buffer<Index>(result.entry_ptr[Q.num_batches]);
    result.positions = Buffer<int64_t>(with_positions ? result.entry_ptr[Q.num_batches] : 0);
    return result;
}

// --- pass 3: draws ----------------------------------------------------------------------------------------------------------

// The pieces [begin, end) of one thread.
struct Share {
    const Piece* begin;
    const Piece* end;

    // Entries that its ascending pieces ask for.
    int64_t requests() const {
        int64_t sum = 0;
        for (const Piece* piece = begin; piece != end; ++piece) sum += piece->ascending ? piece->count : 0;
        return sum;
    }
};

// Cuts the pieces into `count` shares of about as many entries each.
std::vector<Share> shares(const std::vector<Piece>& pieces, int64_t count) {
    int64_t total = 0;
    for (const Piece& piece : pieces) total += piece.count;
    std::vector<Share> cut;
    const Piece* const end = pieces.data() + pieces.size();
    const Piece* piece = pieces.data();
    for (int64_t s = 0, sum = 0; s < count; ++s) {
        const Piece* const begin = piece;
        const int64_t until = s + 1 == count ? total : total / count * (s + 1);
        while (piece != end && (sum < until || s + 1 == count)) sum += piece++->count;
        cut.push_back({begin, piece});
    }
    return cut;
}

// A in ranges of rows of about `bytes` bytes of entries.
template <class Index>
class Ranges {
public:
    Ranges(const CsrView<Index>& A, int64_t bytes) : A_(A) {
        const int64_t entries = bytes / static_cast<int64_t>(sizeof(Index));
        for (int64_t entry = 0, row = 0; row < A.num_rows; entry += entries) {
            bounds_.push_back(row);
            const int64_t* next = std::upper_bound(A.indptr + row + 1, A.indptr + A.num_rows, entry + entries);
            row = next - A.indptr;
        }
        bounds_.push_back(A.num_rows);
    }

    int64_t count() const { return static_cast<int64_t>(bounds_.size()) - 1; }
    int64_t end_row(int64_t range) const { return bounds_[static_cast<size_t>(range) + 1]; }
    const char* begin_bytes(int64_t range) const { return reinterpret_cast<const char*>(A_.indices + first_entry(range)); }
    const char* end_bytes(int64_t range) const { return begin_bytes(range + 1); }

private:
    int64_t first_entry(int64_t range) const { return A_.indptr[bounds_[static_cast<size_t>(range)]]; }
    const CsrView<Index>& A_;
    std::vector<int64_t> bounds_;
};

// How far an ascending piece has been drawn.
struct Cursor {
    const Piece* piece;
    int64_t row;
    int64_t offset;
    int64_t every;  // it is drawn from in every so many ranges, which together hold about kRowsPerVisit of its rows
};

std::vector<Cursor> cursors(const Share& share, int64_t num_ranges) {
    std::vector<Cursor> all;
    for (const Piece* piece = share.begin; piece != share.end; ++piece) {
        if (!piece->ascending) continue;
        const int64_t rows = piece->end - piece->begin;
        all.push_back({piece, piece->begin, piece->offset, std::max<int64_t>(1, kRowsPerVisit * num_ranges / rows)});
    }
    return all;
}

// The first of the ascending vertices[row], ..., vertices[end - 1] that is not below `bound`.
template <class Index>
int64_t first_at_least(const Index* vertices, int64_t row, int64_t end, int64_t bound) {
    for (; row + kLanes <= end; row += kLanes) {
        int below = 0;
        for (int lane = 0; lane < kLanes; ++lane) below += vertices[row + lane] < bound ? 1 : 0;
        if (below < kLanes) return row + below;
    }
    while (row < end && vertices[row] < bound) ++row;
    return row;
}

// Asks for the bytes from `begin` up to `end` to come to the second-level cache.
void prefetch_bytes(const char* begin, const char* end) {
#if defined(__GNUC__) || defined(__clang__)
    for (; begin < end; begin += kCacheLine) __builtin_prefetch(begin, 0, 2);
#else
    (void)begin, (void)end;
#endif
}

// What lets all threads stop where one must: they work through one long chunk each, between two polls of parallel_chunks.
class Interrupts {
public:
    // True where another thread has failed; throws what a signal handler raised.
    bool stop(SignalWatch& signals) {
        try {
            signals.poll();
        } catch (...) {
            stopped_ = true;
            throw;
        }
        return stopped_;
    }

private:
    std::atomic<bool> stopped_{false};
};

// Draws a share's pieces range by range; Near: with each range brought to the second-level cache while the one before is drawn
// from. Reads A's entries once and in order.
template <bool Near, class Index>
void draw_by_ranges(
    const SelectorView<Index>& Q, const Ranges<Index>& ranges, const Share& share, Interrupts& interrupts, Drawer<Index>& drawer) {
    SignalWatch signals;
    std::vector<Cursor> all = cursors(share, ranges.count());
    for (int64_t range = 0; range < ranges.count(); ++range) {
        if (interrupts.stop(signals)) return;
        const bool is_last = range + 1 == ranges.count();
        const char* next = is_last || !Near ? nullptr : ranges.begin_bytes(range + 1);
        const char* const next_end = is_last || !Near ? nullptr : ranges.end_bytes(range + 1);
        const int64_t slice = Near ? ((next_end - next) / static_cast<int64_t>(all.size() + 1) / kCacheLine + 1) * kCacheLine : 0;
        const int64_t bound = ranges.end_row(range);
        for (Cursor& cursor : all) {
            if (Near && next < next_end) {
                prefetch_bytes(next, std::min(next + slice, next_end));
                next += slice;
            }
            if (!is_last && (range + 1) % cursor.every != 0) continue;
            const Piece& piece = *cursor.piece;
            const int64_t stop = is_last ? piece.end : first_at_least(Q.vertices, cursor.row, piece.end, bound);
            if (stop == cursor.row) continue;
            cursor.offset = Near && cursor.every == 1 ? drawer.template draw<false>(piece, cursor.row, stop, cursor.offset)
                                                      : drawer.template draw<true>(piece, cursor.row, stop, cursor.offset);
            cursor.row = stop;
        }
    }
}

template <class Index>
void draw_piece(const Piece& piece, Drawer<Index>& drawer) {
    drawer.template draw<true>(piece, piece.begin, piece.end, piece.offset);
}

enum class Order { kPieces, kFarRanges, kNearRanges };

// By density: how often the share asks for each cache line of A, on average.
template <class Index>
Order best_order(const CsrView<Index>& A, const Share& share) {
    const int64_t bytes = A.num_entries * static_cast<int64_t>(sizeof(Index));
    if (bytes <= kFarRange) return Order::kPieces;
    const int64_t lines = bytes / kCacheLine;
    const int64_t requests = share.requests();
    if (requests >= lines) return Order::kNearRanges;
    return 4 * requests >= lines ? Order::kFarRanges : Order::kPieces;
}

template <class Index>
void draw_share(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const Share& share, Order order, Interrupts& interrupts,
    Drawer<Index>& drawer) {
    for (const Piece* piece = share.begin; piece != share.end; ++piece) {
        if (order == Order::kPieces || !piece->ascending) draw_piece(*piece, drawer);
    }
    if (order == Order::kNearRanges) draw_by_ranges<true>(Q, Ranges<Index>(A, near_range()), share, interrupts, drawer);
    if (order == Order::kFarRanges) draw_by_ranges<false>(Q, Ranges<Index>(A, kFarRange), share, interrupts, drawer);
}

template <class Index>
void draw_pieces(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, const std::vector<Piece>& pieces,
    RowsResult<Index>& result) {
    const auto make_drawer = [&] { return Drawer<Index>(A, Q, draw, result); };
    const std::vector<Share> of_thread = shares(pieces, thread_limit());
    const Order order = best_order(A, of_thread.front());
    if (order == Order::kPieces) {
        parallel_chunks(static_cast<int64_t>(pieces.size()), 1, make_drawer, [&](auto& drawer, int64_t p, int64_t) {
            draw_piece(pieces[static_cast<size_t>(p)], drawer);
        });
        return;
    }
    Interrupts interrupts;
    parallel_chunks(static_cast<int64_t>(of_thread.size()), 1, make_drawer, [&](auto& drawer, int64_t s, int64_t) {
        draw_share(A, Q, of_thread[static_cast<size_t>(s)], order, interrupts, drawer);
    });
}

template <class Index>
RowsResult<Index> uniform_in_lanes(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions,
    std::vector<Piece>& pieces) {
    RowsResult<Index> result = placed(Q, positions, pieces);
    draw_pieces(A, Q, draw, pieces, result);
    return result;
}

// --- row by row -------------------------------------------------------------------------------------------------------------

// Any size and degree.
template <class Index>
RowsResult<Index> uniform_by_rows(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions) {
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

template <class Index>
RowsResult<Index> uniform_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions) {
    if (draw.size == 0 || draw.size > kMostVectorDraws) return uniform_by_rows(A, Q, draw, positions);
    std::vector<Piece> pieces = all_pieces(Q);
    if (!count_pieces(A, Q, draw, pieces)) return uniform_by_rows(A, Q, draw, positions);
    return uniform_in_lanes(A, Q, draw, positions, pieces);
}

// --- binding ----------------------------------------------------------------------------------------------------------------

// O(m size) expected time; a few KB per thread and 48 bytes per piece. (entry_ptr, indptr, columns, positions or None)
template <class Index>
nb::tuple sample_rows_uniform(
    const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& batch_ptr, const In<Index>& vertices,
    const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1, int64_t hop, int64_t size, bool replace, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    return run<Index>([&] { return uniform_rows(A, Q, draw, positions); });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("sample_rows_uniform", &sample_rows_uniform<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(), nb::arg("batch_ids").noconvert(), nb::arg("key0"),
          nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"), nb::arg("positions"));
}

}  // namespace

void bind_uniform_rows(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
