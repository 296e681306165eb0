// What is asked of a part of A, row by row: for each row that any run asks for, the runs that do.
#pragma once

#include <algorithm>
#include <vector>

#include "row_law_fill.h"
#include "row_law_runs.h"

namespace spsample {

// A row of A that is asked for, by runs runs[0 .. count - 1], ascending; one that holds it twice is there twice.
struct RequestedRow {
    int64_t number;
    const uint32_t* runs;
    int64_t count;
};

// The requests of one part of A, sorted by row; memory is kept from part to part.
template <class Index>
class RowRequests {
public:
    explicit RowRequests(const std::vector<Run<Index>>& runs) : runs_(runs), begin_(runs.size()), end_(runs.size()) {}

    // For rows first .. end - 1 of A, fewer than 2^32; best called for parts that ascend. O(runs log rows + requests + rows), or
    // O(requests log requests) where the requests are few.
    void collect(int64_t first, int64_t end) {
        if (first < past_) std::fill(end_.begin(), end_.end(), 0);
        base_ = first;
        past_ = end;
        int64_t count = 0;
        for (size_t i = 0; i < runs_.size(); ++i) {
            if (i + kRunsAhead < runs_.size()) ask(i + kRunsAhead);
            begin_[i] = position_of(runs_[i], end_[i], first);
            end_[i] = position_of(runs_[i], begin_[i], end);
            count += end_[i] - begin_[i];
        }
        rows_.clear();
        runs_of_.resize(static_cast<size_t>(count));
        if (end - first > kSparse * count || count >> 32 != 0) {
            by_sorting();
        } else {
            by_counting(end - first);
        }
        rows_.push_back({0, count});
    }

    int64_t num_requests() const { return static_cast<int64_t>(runs_of_.size()); }

    // Rows asked for, ascending.
    int64_t num_rows() const { return static_cast<int64_t>(rows_.size()) - 1; }
    RequestedRow row(int64_t number) const {
        const RowStart* row = rows_.data() + number;
        return {base_ + row->row, runs_of_.data() + row->first, row[1].first - row->first};
    }

    // The number of the first vertex of a run that lies in the part.
    int64_t begin(size_t run) const { return begin_[run]; }

private:
    static constexpr int64_t kSparse = 8;  // rows for each request, from which on requests are sorted by comparing

    static constexpr size_t kRunsAhead = 2;

    struct RowStart {
        uint32_t row;   // within the part
        int64_t first;  // of its requests
    };

    // Asks for vertices of a run that are likely in the part: as many as in the part before, and a line.
    void ask(size_t run) const {
        constexpr int64_t line = kCacheLine / static_cast<int64_t>(sizeof(Index));
        const int64_t stop = std::min(runs_[run].count, end_[run] + (end_[run] - begin_[run]) + line);
        for (int64_t i = end_[run]; i < stop; i += line) SPSAMPLE_PREFETCH_NEAR(runs_[run].vertices + i);
    }

    // The number of a run's first vertex from number `from` on that is not below `row`. O(log of the distance).
    static int64_t position_of(const Run<Index>& run, int64_t from, int64_t row) {
        int64_t step = 1;
        for (; from + step < run.count && run.vertices[from + step] < row; step *= 2) from += step;
        const Index* const end = run.vertices + std::min(run.count, from + step);
        const auto is_below = [](Index vertex, int64_t bound) { return static_cast<int64_t>(vertex) < bound; };
        return std::lower_bound(run.vertices + from, end, row, is_below) - run.vertices;
    }

    // Calls body(row within the part, run) for each request, run by run.
    template <class Body>
    void for_requests(Body&& body) const {
        for (size_t i = 0; i < runs_.size(); ++i) {
            const Index* const end = runs_[i].vertices + end_[i];
            for (const Index* v = runs_[i].vertices + begin_[i]; v < end; ++v) {
                body(static_cast<uint32_t>(static_cast<int64_t>(*v) - base_), static_cast<uint32_t>(i));
            }
        }
    }

    void by_counting(int64_t num_rows) {
        next_.assign(static_cast<size_t>(num_rows), 0);
        uint32_t* const next = next_.data();
        for_requests([next](uint32_t row, uint32_t) { ++next[row]; });
        uint32_t sum = 0;
        for (int64_t row = 0; row < num_rows; ++row) {
            if (next[row] == 0) continue;
            rows_.push_back({static_cast<uint32_t>(row), sum});
            sum += std::exchange(next[row], sum);
        }
        uint32_t* const runs_of = runs_of_.data();
        for_requests([next, runs_of](uint32_t row, uint32_t run) { runs_of[next[row]++] = run; });
    }

    void by_sorting() {
        pairs_.clear();
        for_requests([&](uint32_t row, uint32_t run) { pairs_.push_back(uint64_t(row) << 32 | run); });
        std::sort(pairs_.begin(), pairs_.end());
        for (size_t j = 0; j < pairs_.size(); ++j) {
            const uint32_t row = static_cast<uint32_t>(pairs_[j] >> 32);
            if (j == 0 || row != rows_.back().row) rows_.push_back({row, static_cast<int64_t>(j)});
            runs_of_[j] = static_cast<uint32_t>(pairs_[j]);
        }
    }

    const std::vector<Run<Index>>& runs_;
    std::vector<int64_t> begin_, end_;  // of each run's vertices in the part
    int64_t base_ = 0, past_ = 0;        // the part's first row, and the one behind its last
    std::vector<RowStart> rows_;     // asked for, and one more, which ends the last
    std::vector<uint32_t> runs_of_;  // of each request
    std::vector<uint32_t> next_;     // request, for each row
    std::vector<uint64_t> pairs_;
};

}  // namespace spsample
