// The stacked rows of all batches as ascending runs of vertices: as they come where they ascend, else sorted.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "row_law_pieces.h"

namespace spsample {

// Stacked rows of one batch in ascending order of vertex: row(0), row(1), ...
template <class Index>
struct Run {
    int64_t batch;
    int64_t count;
    const Index* vertices;
    const int64_t* rows;  // null where they are first, first + 1, ...; else count + 1 of them, the last one once more
    int64_t first;

    int64_t row(int64_t number) const { return rows ? rows[number] : first + number; }
};

// The runs of all batches, batch by batch. Memory: 16 bytes for each row that is in no long ascending run.
template <class Index>
class SortedRuns {
public:
    // O(rows), and O(s log s) for s rows of a batch out of order; in parallel over batches.
    explicit SortedRuns(const SelectorView<Index>& Q) : of_batch_(static_cast<size_t>(Q.num_batches)) {
        parallel_chunks(Q.num_batches, 1, [&](int64_t i, int64_t) { of_batch_[static_cast<size_t>(i)].find(Q, i); });
        for (const Batch& batch : of_batch_) runs_.insert(runs_.end(), batch.runs.begin(), batch.runs.end());
    }
    const std::vector<Run<Index>>& runs() const { return runs_; }

private:
    struct Batch {
        std::vector<Run<Index>> runs;
        std::vector<Index> vertices;  // of the rows below
        std::vector<int64_t> rows;    // those in no long ascending run, by vertex

        void find(const SelectorView<Index>& Q, int64_t batch) {
            const int64_t end = Q.batch_ptr[batch + 1];
            for (int64_t begin = Q.batch_ptr[batch], stop; begin < end; begin = stop) {
                stop = run_end(Q.vertices, begin, end);
                if (stop - begin >= kLongRun) {
                    runs.push_back({batch, stop - begin, Q.vertices + begin, nullptr, begin});
                } else {
                    for (int64_t r = begin; r < stop; ++r) rows.push_back(r);
                }
            }
            if (!rows.empty()) sort(Q.vertices, batch);
        }

        void sort(const Index* of_row, int64_t batch) {
            std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
                return of_row[a] != of_row[b] ? of_row[a] < of_row[b] : a < b;
            });
            vertices.reserve(rows.size());
            for (const int64_t row : rows) vertices.push_back(of_row[row]);
            const int64_t count = static_cast<int64_t>(rows.size());
            rows.push_back(rows.back());
            runs.push_back({batch, count, vertices.data(), rows.data(), 0});
        }
    };

    std::vector<Batch> of_batch_;
    std::vector<Run<Index>> runs_;
};

}  // namespace spsample
