// The entries of the frontier's rows, batch by batch, and a bit for each.
//
// A batch's entries are cut into units of 1024, of which the last may be short: 32 words of bits, one for each lane of a warp. A warp
// marks a span of 4 units, a block a tile of 32.
#pragma once

#include "chunks.h"

namespace spsample {

constexpr int64_t kUnit = 1024;  // entries
constexpr int kSpanUnits = 4;
constexpr int kSpanWords = kSpanUnits * kWarp;
constexpr int kTileWarps = 8;  // of a block that takes tiles
constexpr int kTileUnits = kTileWarps * kSpanUnits;

// part_of, where the part is likely to be one of the first: steps that double, then bisection. O(log of the result).
__device__ inline int64_t near_part_of(const int64_t* pointers, int64_t count, int64_t x) {
    int64_t first = 0, step = 1;
    while (first + step < count && pointers[first + step] <= x) {
        first += step;
        step *= 2;
    }
    return first + part_of(pointers + first, step < count - first ? step : count - first, x);
}

// ends (rows + 1): where each row's entries begin among all; unit_ptr and tile_ptr (batches + 1): where each batch's units and tiles do.
struct Frontier {
    const int64_t* ends;
    const int64_t* unit_ptr;
    const int64_t* tile_ptr;

    // Entry number 0 of a unit of the batch whose first row is this.
    __device__ int64_t begin(int64_t batch, int64_t first_row, int64_t unit) const {
        return ends[first_row] + (unit - unit_ptr[batch]) * kUnit;
    }
};

#define SPSAMPLE_FRONTIER_PARAMETERS const int64_t *frontier_ends, const int64_t *unit_ptr, const int64_t *tile_ptr
#define SPSAMPLE_FRONTIER \
    Frontier { frontier_ends, unit_ptr, tile_ptr }

// The columns of consecutive entries, as a lane of a warp reads them: every 32nd. All lanes call its functions together.
struct ColumnReader {
    static constexpr int kSteps = 8;  // whose columns are all asked for before the first is looked at
    const Rows& A;
    const Selector& Q;
    const int64_t* ends;
    int64_t row, rows_end;  // this lane's row, and where those of the batch end
    int64_t begin;          // the first of the entries
    int length;             // how many
    int row_end;            // where this lane's row ends, counted from `begin`; 0 before there is one
    const Index* next;      // the next column of this lane, where its row goes on

    __device__ ColumnReader(const Rows& A, const Selector& Q, const Frontier& frontier, int64_t batch, int64_t unit)
        : A(A), Q(Q), ends(frontier.ends), rows_end(Q.batch_ptr[batch + 1]), row_end(0), next(nullptr) {
        const int64_t first_row = Q.batch_ptr[batch];
        begin = frontier.begin(batch, first_row, unit);
        const int64_t rest = ends[rows_end] - begin;
        length = static_cast<int>(rest < kSpanUnits * kUnit ? rest : kSpanUnits * kUnit);
        row = first_row + warp_part_of(ends + first_row, rows_end - first_row, begin);
    }

    // columns[step] of this lane's entry first + 32 step, counted from `begin`; 0 behind the last.
    __device__ void read(int first, Index* columns) {
        if (__all_sync(kAllLanes, first + (kSteps - 1) * kWarp < row_end)) {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) columns[step] = __ldg(next + step * kWarp);
            next += kSteps * kWarp;
            return;
        }
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            const int entry = first + step * kWarp;
            columns[step] = 0;
            if (entry >= length) continue;
            if (entry >= row_end) enter_row_of(entry);
            columns[step] = __ldg(next);
            next += kWarp;
        }
    }

private:
    __device__ void enter_row_of(int entry) {
        const int64_t x = begin + entry;
        row += near_part_of(ends + row, rows_end - row, x);
        const int64_t end = ends[row + 1] - begin;
        row_end = end < length ? static_cast<int>(end) : length;
        next = A.columns(Q.vertices[row]) + (x - ends[row]);
    }
};

}  // namespace spsample
