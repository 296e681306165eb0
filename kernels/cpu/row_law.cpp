// The row law over stacked rows, uniform: sample_rows_uniform (docs/law.md, section 3).
//
// Three passes over the m stacked rows of k batches:
//   1. each batch's rows are cut into pieces: parts of long ascending runs of vertices, and the rest (the seeds, say, in any order);
//   2. the entries of each piece are counted, which places every piece's output; no count of a row is written anywhere;
//   3. the pieces are drawn, 16 rows at a time (row_law_lane_drawer.h), columns and row pointers straight into the result.
//
// Pass 3 goes piece by piece or, where the batches together ask for most cache lines of A anyway, in bulk order: A is cut into
// segments, one thread works on a segment at a time, visits it range by range, and in each range draws the rows of all batches before
// it goes on to the next. A's entries are then read once per call, in order, and not once per batch at random. The order of the
// vertices matters for speed only; no order of drawing changes a bit.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "row_law_lane_drawer.h"
#include "row_law_pieces.h"
#include "row_law_scale.h"
#include "second_level.h"

namespace spsample {
namespace {

// --- sizes ------------------------------------------------------------------------------------------------------------------

constexpr int64_t kFarRange = 4 << 20;      // bytes of A that stay in the third-level cache while a group draws from them
constexpr int64_t kRowsPerVisit = 2;        // a piece waits until a range (or several) holds about as many of its rows
constexpr int64_t kRowsPerPointerRead = 4;  // of A, at most, to a row of Q: else row pointers are asked for, not read through
constexpr size_t kCursorsAhead = 3;         // pieces whose next vertices are asked for
constexpr int64_t kSegmentsPerThread = 4;
constexpr int64_t kRowWork = 32, kDrawWork = 4;  // nanoseconds, about, for a row and for each of its draws
constexpr int64_t kRowsPerSegment = 256;    // of a batch, at least, on average

// Bytes of A that, read through, stay in the second-level cache while rows are drawn from them: three quarters of it.
int64_t near_range() { return second_level_cache() / 4 * 3; }

// --- strategy ---------------------------------------------------------------------------------------------------------------

enum class Order { kPieces, kFarRanges, kNearRanges };

// By density: how often the rows of Q, together, may ask for each cache line of A, on average. Near ranges need a row of each batch, too:
// what a batch draws from several ranges at a time has left the cache.
template <class Index>
Order best_order(const CsrView<Index>& A, const SelectorView<Index>& Q, int64_t size) {
    const int64_t bytes = A.num_entries * static_cast<int64_t>(sizeof(Index));
    if (bytes <= kFarRange) return Order::kPieces;
    const int64_t lines = bytes / kCacheLine;
    const int64_t requests = Q.num_rows * std::min(size, A.num_entries / A.num_rows + 1);
    const bool in_each_range = Q.num_rows >= bytes / near_range() * Q.num_batches;
    if (requests >= lines / 3 * 2 && in_each_range) return Order::kNearRanges;  // here both take as long
    return requests >= lines / 8 ? Order::kFarRanges : Order::kPieces;
}

template <class Index>
Segments segments_for(Order order, const CsrView<Index>& A, const SelectorView<Index>& Q) {
    if (order == Order::kPieces) return {{0, A.num_rows}};
    const int64_t threads = thread_limit();
    const int64_t enough = Q.num_rows / (std::max<int64_t>(Q.num_batches, 1) * kRowsPerSegment);
    return balanced_segments(Q, A.num_rows, std::clamp(enough, threads, kSegmentsPerThread * threads));
}

// --- pass 2: counts ---------------------------------------------------------------------------------------------------------

// How many entries a draw takes of each row of A, one byte each; for sizes up to kMostVectorDraws.
template <class Index>
class DrawnCounts {
public:
    // Looks all rows of A up where that is little against those of Q, and else none. O(A's rows) at most.
    DrawnCounts(const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw) : A_(A), draw_(draw) {
        if (Q.num_rows < A.num_rows) return;
        known_ = Buffer<uint8_t>(A.num_rows);
        parallel_chunks(A.num_rows, kRowChunk * 16, [&](int64_t begin, int64_t end) {
            int64_t degrees = 0;
            for (int64_t row = begin; row < end; ++row) {
                degrees |= A.degree(row);
                known_[row] = static_cast<uint8_t>(drawn_count(A.degree(row), draw.size, draw.replace));
            }
            degrees_ |= degrees;
        });
    }

    // Entries of the rows of a piece. O(its rows).
    int64_t count(const SelectorView<Index>& Q, const Piece& piece) {
        int64_t count = 0;
        if (known_.size() > 0) {
            const uint8_t* known = known_.data();
            for (int64_t r = piece.begin; r < piece.end; ++r) count += known[static_cast<uint64_t>(Q.vertices[r])];
            return count;
        }
        int64_t degrees = 0;
        for (int64_t r = piece.begin; r < piece.end; ++r) {
            if (r + kPointersAhead < piece.end) SPSAMPLE_PREFETCH(A_.indptr + Q.vertices[r + kPointersAhead]);
            const int64_t degree = A_.degree(Q.vertices[r]);
            count += drawn_count(degree, draw_.size, draw_.replace);
            degrees |= degree;
        }
        degrees_ |= degrees;
        return count;
    }

    // Whether every degree seen fits the lanes of Lanes.
    bool fit_lanes() const { return degrees_.load() >> 31 == 0; }

private:
    const CsrView<Index>& A_;
    const DrawArguments& draw_;
    Buffer<uint8_t> known_;
    std::atomic<int64_t> degrees_{0};  // bitwise or
};

// Pieces that are worth waking a thread for: all, where the rows are few.
template <class Index>
int64_t pieces_at_a_time(const SelectorView<Index>& Q, const std::vector<Piece>& pieces) {
    const int64_t count = static_cast<int64_t>(pieces.size());
    return std::max<int64_t>(1, count * kSmallestPiece / std::max<int64_t>(Q.num_rows, 1) / 2);
}

// Counts all pieces. Whether every degree fits the lanes of Lanes.
template <class Index>
bool count_pieces(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, std::vector<Piece>& pieces) {
    DrawnCounts<Index> drawn(A, Q, draw);
    parallel_chunks(static_cast<int64_t>(pieces.size()), pieces_at_a_time(Q, pieces), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            Piece& piece = pieces[static_cast<size_t>(p)];
            piece.count = drawn.count(Q, piece);
        }
    });
    return drawn.fit_lanes();
}

// Places every piece and makes the arrays of the result; the row pointers are written as rows are drawn. O(k + pieces).
template <class Index>
RowsResult<Index> placed(const SelectorView<Index>& Q, bool with_positions, const MakeRoom<Index>& make_room, std::vector<Piece>& pieces) {
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
    make_room(result);
    return result;
}

// --- pass 3: draws ----------------------------------------------------------------------------------------------------------

// A segment of A in ranges of rows of about `bytes` bytes of entries.
template <class Index>
class Ranges {
public:
    Ranges(const CsrView<Index>& A, int64_t first, int64_t end, int64_t bytes) : A_(A) {
        const int64_t entries = bytes / static_cast<int64_t>(sizeof(Index));
        for (int64_t row = first; row < end;) {
            bounds_.push_back(row);
            const int64_t* next = std::upper_bound(A.indptr + row + 1, A.indptr + end, A.indptr[row] + entries);
            row = next - A.indptr;
        }
        bounds_.push_back(end);
    }

    int64_t count() const { return static_cast<int64_t>(bounds_.size()) - 1; }
    int64_t end_row(int64_t range) const { return bounds_[static_cast<size_t>(range) + 1]; }
    // Bring the entries of a range, and its row pointers, to the second-level cache.
    void bring_entries(int64_t range) const { read_through(A_.indices + *pointers(range), A_.indices + *pointers(range + 1)); }
    void bring_pointers(int64_t range) const { read_through(pointers(range), pointers(range + 1) + 1); }

private:
    const int64_t* pointers(int64_t range) const { return A_.indptr + bounds_[static_cast<size_t>(range)]; }
    const CsrView<Index>& A_;
    std::vector<int64_t> bounds_;
};

// How far a piece of a segment has been drawn.
struct Cursor {
    const Piece* piece;
    int64_t row;
    int64_t offset;
    int64_t every;  // it is drawn from in one of `every` ranges, which together hold about kRowsPerVisit of its rows
};

std::vector<Cursor> cursors(const std::vector<Piece>& pieces, const std::vector<int64_t>& numbers, int64_t num_ranges) {
    std::vector<Cursor> all;
    for (const int64_t number : numbers) {
        const Piece& piece = pieces[static_cast<size_t>(number)];
        const int64_t rows = piece.end - piece.begin;
        all.push_back({&piece, piece.begin, piece.offset, std::max<int64_t>(1, kRowsPerVisit * num_ranges / rows)});
    }
    return all;
}

// The first of the ascending vertices[row], ..., vertices[end - 1] that is not below `bound`.
template <class Index>
int64_t first_at_least(const Index* vertices, int64_t row, int64_t end, Index bound) {
    while (row + kLanes <= end && vertices[row + kLanes - 1] < bound) row += kLanes;
    if (row + kLanes > end) {
        while (row < end && vertices[row] < bound) ++row;
        return row;
    }
    int below = 0;
    for (int lane = 0; lane < kLanes; ++lane) below += vertices[row + lane] < bound ? 1 : 0;
    return row + below;
}

// Asks for the vertices from here on, of about as many rows as a piece has in a range.
template <class Index>
inline void ask_for(const Index* vertices) {
    SPSAMPLE_PREFETCH(vertices);
    SPSAMPLE_PREFETCH(vertices + kCacheLine / static_cast<int64_t>(sizeof(Index)));
}

// Draws the pieces of a segment range by range; near ranges are brought to the second-level cache first. Reads the segment's entries
// once and in order.
template <class Index, Distance distance>
void draw_by_ranges(
    const SelectorView<Index>& Q, const Ranges<Index>& ranges, std::vector<Cursor> all, Drawer<Index, distance>& drawer) {
    SignalWatch signals;
    for (int64_t range = 0; range < ranges.count(); ++range) {
        signals.poll();
        if (distance == Distance::kNear) ranges.bring_entries(range);
        if (!drawer.asks_for_pointers()) ranges.bring_pointers(range);
        const bool is_last = range + 1 == ranges.count();
        const Index bound = static_cast<Index>(ranges.end_row(range));
        for (size_t c = 0; c < all.size(); ++c) {
            Cursor& cursor = all[c];
            if (c + kCursorsAhead < all.size()) ask_for(Q.vertices + all[c + kCursorsAhead].row);
            if (!is_last && (range + 1) % cursor.every != 0) continue;
            const Piece& piece = *cursor.piece;
            const int64_t stop = is_last ? piece.end : first_at_least(Q.vertices, cursor.row, piece.end, bound);
            if (stop == cursor.row) continue;
            cursor.offset = drawer.draw(piece, cursor.row, stop, cursor.offset);
            cursor.row = stop;
        }
    }
}

template <class Index>
void draw_pieces(const RowsCall<Index>& call, const Piece* begin, const Piece* end, RowsResult<Index>& result) {
    Drawer<Index, Distance::kFar> drawer(call, true, result);
    for (const Piece* piece = begin; piece < end; ++piece) drawer.draw(*piece, piece->begin, piece->end, piece->offset);
    drawer.flush();
}

template <class Index>
void draw_in_order(const RowsCall<Index>& call, const std::vector<Piece>& pieces, RowsResult<Index>& result) {
    const int64_t chunk = pieces_at_a_time(call.Q, pieces);
    parallel_chunks(static_cast<int64_t>(pieces.size()), chunk, [&](int64_t begin, int64_t end) {
        draw_pieces(call, pieces.data() + begin, pieces.data() + end, result);
    });
}

// Near or far ranges, segments dealt out to threads one after the other; then what is in no segment.
template <Distance distance, class Index>
void draw_in_bulk_order(
    const RowsCall<Index>& call, const std::vector<Piece>& pieces, const Segments& segments, RowsResult<Index>& result) {
    const PiecesBySegment sorted(pieces, segments.count());
    const int64_t bytes = distance == Distance::kNear ? near_range() : kFarRange;
    const int64_t num_unordered = static_cast<int64_t>(sorted.unordered.size());
    const bool asks = distance == Distance::kFar || call.Q.num_rows < call.A.num_rows / kRowsPerPointerRead;
    parallel_chunks(segments.count() + num_unordered, 1, [&](int64_t task, int64_t) {
        if (task >= segments.count()) {
            const Piece* piece = &pieces[static_cast<size_t>(sorted.unordered[static_cast<size_t>(task - segments.count())])];
            return draw_pieces(call, piece, piece + 1, result);
        }
        const size_t s = static_cast<size_t>(task);
        const Ranges<Index> ranges(call.A, segments.bounds[s], segments.bounds[s + 1], bytes);
        Drawer<Index, distance> drawer(call, asks, result);
        draw_by_ranges(call.Q, ranges, cursors(pieces, sorted.of_segment[s], ranges.count()), drawer);
        drawer.flush();
    });
}

// --- row by row -------------------------------------------------------------------------------------------------------------

// Any size and degree.
template <class Index>
RowsResult<Index> rows_one_by_one(const RowsCall<Index>& call, bool positions, const MakeRoom<Index>& make_room) {
    const auto count_of = [&call](int64_t row) { return drawn_count(call.A.degree(row), call.draw.size, call.draw.replace); };
    RowsResult<Index> result = laid_out(call.A, call.Q, positions, count_of, make_room);
    fill_rows(call.A, call.Q, result, [&call](DrawScratch& scratch, int64_t row, int64_t batch_id, int64_t* out) {
        const auto& [A, Q, draw, ranked] = call;
        const int64_t begin = A.begin(row), degree = A.degree(row);
        const int64_t count = drawn_count(degree, draw.size, draw.replace);
        if (!draw.replace && count == degree) {
            for (int64_t e = 0; e < count; ++e) out[e] = begin + e;
            return;
        }
        const uint64_t total = ranked ? ranked->row(begin, degree).total() : static_cast<uint64_t>(degree);
        DrawStream draws(draw.key, static_cast<uint64_t>(A.vertex(row)), draw.hop, batch_id, total);
        if (ranked) {
            draw_ranked_row(ranked->row(begin, degree), count, draw.replace, draws, scratch, out);
        } else if (draw.replace) {
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
RowsResult<Index> rows_in_lanes(const RowsCall<Index>& call, bool positions, const MakeRoom<Index>& make_room) {
    const auto& [A, Q, draw, ranked] = call;
    if (draw.size == 0 || draw.size > kMostVectorDraws) {
        require_vertices(all_below(Q.vertices, Q.num_rows, A.num_rows));
        return rows_one_by_one(call, positions, make_room);
    }
    const Order order = best_order(A, Q, draw.size);
    const Segments segments = segments_for(order, A, Q);
    std::vector<Piece> pieces = Cutter<Index>(Q, segments).pieces();
    if (!count_pieces(A, Q, draw, pieces)) return rows_one_by_one(call, positions, make_room);
    RowsResult<Index> result = placed(Q, positions, make_room, pieces);
    switch (order) {
        case Order::kPieces: draw_in_order(call, pieces, result); break;
        case Order::kFarRanges: draw_in_bulk_order<Distance::kFar>(call, pieces, segments, result); break;
        case Order::kNearRanges: draw_in_bulk_order<Distance::kNear>(call, pieces, segments, result); break;
    }
    return result;
}

}  // namespace

template <class Index>
RowsResult<Index> sampled_rows(const RowsCall<Index>& call, bool positions, const MakeRoom<Index>& make_room) {
    const int64_t size = std::min<int64_t>(call.draw.size, kMostVectorDraws);
    const ThreadsFor threads(checked_product(call.Q.num_rows, kRowWork + kDrawWork * size));
    return rows_in_lanes(call, positions, make_room);
}

template RowsResult<int32_t> sampled_rows(const RowsCall<int32_t>&, bool, const MakeRoom<int32_t>&);
template RowsResult<int64_t> sampled_rows(const RowsCall<int64_t>&, bool, const MakeRoom<int64_t>&);

// --- binding ----------------------------------------------------------------------------------------------------------------

namespace {

// O(m size) expected time; a few KB per thread and 48 bytes per piece. (entry_ptr, indptr, columns, positions or None)
template <class Index>
nb::tuple sample_rows_uniform(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const DrawIn& how, bool positions) {
    const CsrView<Index> A = csr_view_of(matrix.indptr, matrix.indices, matrix.ids);
    const SelectorView<Index> Q = unchecked_selector_view(selector.batch_ptr, selector.vertices, selector.batch_ids);
    const DrawArguments draw = draw_arguments(how);
    return run<Index>([&] { return sampled_rows<Index>({A, Q, draw}, positions, make_stacked_room<Index>); });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("sample_rows_uniform", &sample_rows_uniform<Index>);
}

}  // namespace

void bind_row_law(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
