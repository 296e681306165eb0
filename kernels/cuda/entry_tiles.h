// Walking the entries of many rows, balanced over entries: rows may have none or 10^6.
#pragma once

#include "device.h"

namespace spsample {

constexpr int64_t kTileEntries = 256;  // of a warp's tile

// The entries of stacked rows, one after the other: row r has entries ends[r] .. ends[r + 1] - 1. One warp walks a tile of them:
// it finds the tile's first and last row once, so that a lane's search is among a few rows.
struct EntryTile {
    const int64_t* ends;
    int64_t begin, end;
    int64_t first_row, num_rows;

    // Entries begin .. min(begin + kTileEntries, last) - 1 of the rows first .. first + count - 1; last <= ends[first + count].
    __device__ EntryTile(const int64_t* ends, int64_t first, int64_t count, int64_t begin, int64_t last)
        : ends(ends), begin(begin), end(begin + kTileEntries < last ? begin + kTileEntries : last) {
        first_row = first + part_of(ends + first, count, begin);
        num_rows = part_of(ends + first_row, first + count - first_row, end - 1) + 1;
    }

    __device__ int64_t row_of(int64_t entry) const { return first_row + part_of(ends + first_row, num_rows, entry); }
};

// The same with the batches of the rows.
struct StackedTile : EntryTile {
    const int64_t* batch_ptr;
    int64_t first_batch, num_batches;

    __device__ StackedTile(const int64_t* ends, const Selector& Q, int64_t begin, int64_t last)
        : EntryTile(ends, Q.batch_ptr[0], Q.batch_ptr[Q.num_batches] - Q.batch_ptr[0], begin, last), batch_ptr(Q.batch_ptr) {
        first_batch = part_of(batch_ptr, Q.num_batches, first_row);
        num_batches = part_of(batch_ptr + first_batch, Q.num_batches - first_batch, first_row + num_rows - 1) + 1;
    }

    __device__ int64_t batch_of(int64_t row) const { return first_batch + part_of(batch_ptr + first_batch, num_batches, row); }
};

}  // namespace spsample
