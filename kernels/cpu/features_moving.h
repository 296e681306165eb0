// Rows of features from where they lie to where they are wanted.
//
// Random rows are read as fast as the memory gives them: those that come next are asked for ahead, and a large result is written past the
// caches, which saves reading the lines that are written. Rows in order that are converted or fill no whole lines are put together in the
// first-level cache, a piece at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings.h"
#include "copy_runs.h"
#include "features_decoders.h"
#include "spsample/config.h"

namespace spsample {

constexpr int64_t kFeatureLine = 64;

// To the second-level cache: the first one has few places for lines under way, and rows of two lines would fill them.
inline void prefetch_bytes(const void* memory, int64_t bytes) {
    const char* const first = static_cast<const char*>(memory);
    for (int64_t b = 0; b < bytes; b += kFeatureLine) SPSAMPLE_PREFETCH_NEAR(first + b);
    if (bytes > 0) SPSAMPLE_PREFETCH_NEAR(first + bytes - 1);
}

// Rows of an array in C order. What a RowMover takes: how many rows to ask for ahead, asking for one, writing one to `out`, and its bytes
// where they are written as they lie.
struct DenseRows {
    static constexpr int64_t kRowsAhead = 1 << 8, kBytesAhead = 1 << 14;

    const char* x;
    int64_t row_bytes;
    int64_t num_rows, dim;
    DecodeRow decode;
    const float* scale;
    bool is_copied;

    int64_t ahead() const { return std::clamp<int64_t>(kBytesAhead / std::max<int64_t>(row_bytes, 1), 2, kRowsAhead); }
    void fetch(int64_t row) const { prefetch_bytes(x + row * row_bytes, std::min(row_bytes, kBytesAhead)); }
    void read(int64_t row, char* out) const { decode(x + row * row_bytes, dim, scale, out); }
    const char* as_written(int64_t row) const { return is_copied ? x + row * row_bytes : nullptr; }
};

// The rows of `x` (flat, of `shape`), and the type that they are written in; features.cpp says which forms there are.
std::pair<DenseRows, ElementType> dense_rows(
    const AnyIn& x, std::pair<int64_t, int64_t> shape, const char* form, const std::optional<In<float>>& scale);

// ValueError unless `count` rows of `dim` numbers of that type can go to `out`, at its rows `at`.
void require_destination(ElementType type, int64_t dim, int64_t count, const AnyInOut& out, const std::optional<In<int64_t>>& at);

// Moves rows of `bytes` bytes, as they are written, in one thread; `all` is how many rows the whole result has.
template <class Rows>
class RowMover {
public:
    RowMover(const Rows& rows, int64_t bytes, int64_t all)
        : rows_(rows), bytes_(bytes), is_streamed_(checked_product(bytes, all) >= kStreamedAll && bytes <= kLongestPiece) {}

    // Rows for a thread at a time.
    int64_t chunk() const { return std::max<int64_t>(kChunkBytes / std::max<int64_t>(bytes_, 1), 1); }

    // Memory that a thread needs.
    Buffer<char> piece() const { return Buffer<char>(is_streamed_ ? in_piece() * bytes_ : 0); }

    // Row ids[i] to row i of `out`.
    template <class Index>
    void in_order(const Index* ids, int64_t count, char* out, Buffer<char>& piece) const {
        if (!is_streamed_) return each(ids, count, [&](int64_t i) { rows_.read(ids[i], out + i * bytes_); });
        const CopyRun stream = run_functions().stream_lines;
        if (is_whole_lines(out) && count > 0 && rows_.as_written(ids[0])) {
            each(ids, count, [&](int64_t i) { stream(out + i * bytes_, rows_.as_written(ids[i]), bytes_); });
            return fence_streams();
        }
        int64_t filled = 0;
        each(ids, count, [&](int64_t i) {
            rows_.read(ids[i], piece.data() + filled);
            filled += bytes_;
            if (filled < piece.size() && i + 1 < count) return;
            stream(out + (i + 1) * bytes_ - filled, piece.data(), filled);
            filled = 0;
        });
        fence_streams();
    }

    // Row ids[i] to row places[i] of `out`; places are distinct.
    template <class Index>
    void at(const Index* ids, const int64_t* places, int64_t count, char* out, Buffer<char>& piece) const {
        if (!is_streamed_) return each(ids, count, [&](int64_t i) { rows_.read(ids[i], out + places[i] * bytes_); });
        const CopyRun stream = run_functions().stream_lines;
        each(ids, count, [&](int64_t i) {
            const char* from = rows_.as_written(ids[i]);
            if (!from) rows_.read(ids[i], piece.data()), from = piece.data();
            stream(out + places[i] * bytes_, from, bytes_);
        });
        fence_streams();
    }

private:
    static constexpr int64_t kChunkBytes = 1 << 17;
    static constexpr int64_t kPieceBytes = 1 << 13;
    static constexpr int64_t kLongestPiece = 1 << 14;  // a longer row is written in place

    // Whether every row of `out` begins and ends with a line: then rows that are not converted need not be put together first.
    bool is_whole_lines(const char* out) const {
        return reinterpret_cast<uintptr_t>(out) % kFeatureLine == 0 && bytes_ % kFeatureLine == 0;
    }

    int64_t in_piece() const { return std::max(kPieceBytes / std::max<int64_t>(bytes_, 1), int64_t{1}); }

    // Calls move(i) for each row, and asks for those that come next.
    template <class Index, class Move>
    void each(const Index* ids, int64_t count, const Move& move) const {
        const int64_t ahead = rows_.ahead();
        for (int64_t i = 0; i < std::min(ahead, count); ++i) rows_.fetch(ids[i]);
        for (int64_t i = 0; i < count; ++i) {
            if (i + ahead < count) rows_.fetch(ids[i + ahead]);
            move(i);
        }
    }

    const Rows& rows_;
    const int64_t bytes_;
    const bool is_streamed_;
};

// Row ids[i] to row i of `out`, or to row places[i], where they are given; by all threads.
template <class Rows, class Index>
void move_rows(const Rows& rows, const Index* ids, int64_t count, int64_t bytes, char* out, const int64_t* places) {
    const RowMover<Rows> mover(rows, bytes, count);
    parallel_chunks(
        count, mover.chunk(), [&] { return mover.piece(); },
        [&](Buffer<char>& piece, int64_t begin, int64_t end) {
            if (places) return mover.at(ids + begin, places + begin, end - begin, out, piece);
            mover.in_order(ids + begin, end - begin, out + begin * bytes, piece);
        });
}

}  // namespace spsample
