// The stacked rows of k batches, cut for threads: pieces of one batch each, and segments of A that no two threads share.
#pragma once

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "parallel.h"

namespace spsample {

constexpr int64_t kLongRun = 128;        // shorter ascending runs are left in their order
constexpr int64_t kSmallestPiece = 512;  // rows; unordered pieces are cut down to this to give every thread some

// Rows of one batch. Those of a segment ascend and lie in it.
struct Piece {
    int64_t batch;
    int64_t begin;  // stacked rows
    int64_t end;
    int64_t segment;     // or kUnordered
    int64_t count = 0;   // entries
    int64_t offset = 0;  // entries of the batch before them

    static constexpr int64_t kUnordered = -1;
};

// Segment s holds A's rows bounds[s] .. bounds[s + 1] - 1.
struct Segments {
    std::vector<int64_t> bounds;

    int64_t count() const { return static_cast<int64_t>(bounds.size()) - 1; }
    // The segment of a row.
    int64_t find(int64_t row) const {
        return std::upper_bound(bounds.begin() + 1, bounds.end() - 1, row) - bounds.begin() - 1;
    }
};

// At most `most` segments that hold about as many of Q's rows each, by a sample of them. O(sample log sample).
template <class Index>
Segments balanced_segments(const SelectorView<Index>& Q, int64_t num_rows, int64_t most) {
    constexpr int64_t kSampled = 64;  // rows per segment
    const int64_t step = std::max<int64_t>(1, Q.num_rows / (most * kSampled));
    std::vector<int64_t> sample;
    for (int64_t r = 0; r < Q.num_rows; r += step) sample.push_back(static_cast<int64_t>(Q.vertices[r]));
    std::sort(sample.begin(), sample.end());
    Segments segments{{0}};
    for (int64_t s = 1; s < most && !sample.empty(); ++s) {
        const int64_t bound = sample[sample.size() * static_cast<size_t>(s) / static_cast<size_t>(most)];
        if (bound > segments.bounds.back()) segments.bounds.push_back(bound);
    }
    segments.bounds.push_back(num_rows);
    return segments;
}

// Behind the last row of the ascending run that starts at row `begin`.
template <class Index>
int64_t run_end(const Index* vertices, int64_t begin, int64_t end) {
    int64_t r = begin + 1;
    while (r < end && vertices[r - 1] < vertices[r]) ++r;
    return std::min(r, end);
}

// Cuts the rows of Q into pieces, batch by batch and in their order.
template <class Index>
class Cutter {
public:
    // `segments`: at least one. A single one stands for no order among pieces: they are cut by size only.
    Cutter(const SelectorView<Index>& Q, const Segments& segments)
        : Q_(Q), segments_(segments), most_(std::max(kSmallestPiece, Q.num_rows / (8 * int64_t(thread_limit())))) {}

    // All pieces; their vertices are rows of A, or else this throws. O(rows), in parallel over batches.
    std::vector<Piece> pieces() const {
        std::vector<std::vector<Piece>> of_batch(static_cast<size_t>(Q_.num_batches));
        parallel_chunks(Q_.num_batches, 1, [&](int64_t i, int64_t) { of_batch[static_cast<size_t>(i)] = of(i); });
        std::vector<Piece> all;
        for (const auto& some : of_batch) all.insert(all.end(), some.begin(), some.end());
        return all;
    }

private:
    std::vector<Piece> of(int64_t batch) const {
        std::vector<Piece> pieces;
        const int64_t end = Q_.batch_ptr[batch + 1];
        int64_t unordered = Q_.batch_ptr[batch];  // rows from here to `begin` are in no piece yet
        for (int64_t begin = unordered; begin < end;) {
            const int64_t stop = run_end(Q_.vertices, begin, end);
            require_vertices(Q_.vertices[begin] >= 0 && static_cast<int64_t>(Q_.vertices[stop - 1]) < segments_.bounds.back());
            if (stop - begin >= kLongRun) {
                add_unordered(batch, unordered, begin, pieces);
                add_ascending(batch, begin, stop, pieces);
                unordered = stop;
            }
            begin = stop;
        }
        add_unordered(batch, unordered, end, pieces);
        return pieces;
    }

    void add_unordered(int64_t batch, int64_t begin, int64_t end, std::vector<Piece>& pieces) const {
        for (; begin < end; begin += most_) pieces.push_back({batch, begin, std::min(end, begin + most_), Piece::kUnordered});
    }

    void add_ascending(int64_t batch, int64_t begin, int64_t end, std::vector<Piece>& pieces) const {
        while (begin < end) {
            const int64_t segment = segments_.find(static_cast<int64_t>(Q_.vertices[begin]));
            const int64_t bound = segments_.bounds[static_cast<size_t>(segment) + 1];
            const Index* stop = std::lower_bound(Q_.vertices + begin, Q_.vertices + end, bound, [](Index vertex, int64_t limit) {
                return static_cast<int64_t>(vertex) < limit;
            });
            const int64_t most = segments_.count() > 1 ? end - begin : most_;
            const int64_t next = std::min<int64_t>(std::max<int64_t>(stop - Q_.vertices, begin + 1), begin + most);
            pieces.push_back({batch, begin, next, segment});
            begin = next;
        }
    }

    const SelectorView<Index>& Q_;
    const Segments& segments_;
    int64_t most_;
};

// The pieces of each segment, as numbers, and those of none, in their order.
struct PiecesBySegment {
    std::vector<std::vector<int64_t>> of_segment;
    std::vector<int64_t> unordered;

    PiecesBySegment(const std::vector<Piece>& pieces, int64_t num_segments) : of_segment(static_cast<size_t>(num_segments)) {
        for (size_t p = 0; p < pieces.size(); ++p) {
            const int64_t segment = pieces[p].segment;
            (segment == Piece::kUnordered ? unordered : of_segment[static_cast<size_t>(segment)]).push_back(static_cast<int64_t>(p));
        }
    }
};

}  // namespace spsample
