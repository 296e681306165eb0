// Numerators merged by column (docs/law.md, section 2): over all rows of A, or over those of each batch, Q A with one row per batch.
//
// A frontier's entries are walked twice, balanced over entries: once to mark their columns in the batches' sets, and once the
// sets are ranked to add each numerator to the sum at its column's rank. Columns ascend by rank; integer sums are free of
// order.
#include "compaction_sets.h"
#include "entry_tiles.h"
#include "quantisation.h"

using namespace spsample;

// Marks the column of every entry whose numerator is not 0. ends (all rows + 1): where each stacked row's entries begin. Q: the
// batches of the group. A column that is not below `columns` is left out, and sets *refused.
extern "C" __global__ void mark_columns(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                        SPSAMPLE_NUMERATORS_PARAMETERS, SPSAMPLE_SETS_PARAMETERS, const int64_t* ends,
                                        int64_t columns, int64_t* refused) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const EntryNumerators numerators = SPSAMPLE_NUMERATORS;
    const ColumnSets sets = SPSAMPLE_SETS;
    const int64_t first = ends[Q.batch_ptr[0]], last = ends[Q.batch_ptr[Q.num_batches]];
    for (int64_t begin = first + warp_index() * kTileEntries; begin < last; begin += warp_count() * kTileEntries) {
        const StackedTile tile(ends, Q, begin, last);
        for (int64_t entry = tile.begin + lane_index(); entry < tile.end; entry += kWarp) {
            const int64_t r = tile.row_of(entry), row = Q.vertices[r], offset = entry - ends[r];
            const int64_t column = A.columns(row)[offset];
            if (static_cast<uint64_t>(column) >= static_cast<uint64_t>(columns)) {
                store_relaxed(refused, int64_t(1));
            } else if (numerators.counts(A, row, offset)) {
                sets.mark_found(tile.batch_of(r), column);
            }
        }
    }
}

// Adds the numerator of every entry to sums[src_ptr[batch] + rank of its column] (zeros before). Q: consecutive batches of the
// group that the sets were ranked for, and `sets` begins with theirs. src_ptr (batches + 1). All columns are in range.
extern "C" __global__ void add_numerators(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                          SPSAMPLE_NUMERATORS_PARAMETERS, SPSAMPLE_SETS_PARAMETERS, const int64_t* ends,
                                          const int64_t* src_ptr, uint64_t* sums) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const EntryNumerators numerators = SPSAMPLE_NUMERATORS;
    const ColumnSets sets = SPSAMPLE_SETS;
    const int64_t first = ends[Q.batch_ptr[0]], last = ends[Q.batch_ptr[Q.num_batches]];
    for (int64_t begin = first + warp_index() * kTileEntries; begin < last; begin += warp_count() * kTileEntries) {
        const StackedTile tile(ends, Q, begin, last);
        for (int64_t entry = tile.begin + lane_index(); entry < tile.end; entry += kWarp) {
            const int64_t r = tile.row_of(entry), row = Q.vertices[r], offset = entry - ends[r], batch = tile.batch_of(r);
            const uint64_t numerator = numerators(A, row, offset, batch);
            if (numerator == 0) continue;
            const int64_t column = A.columns(row)[offset];
            atomic_add(sums + (src_ptr[batch] + ColumnSets::new_rank(sets.load(batch, column), column)), numerator);
        }
    }
}

// totals[i] = the sum over batch i of what the wrapping inclusive prefix sums add up. indptr (batches + 1).
extern "C" __global__ void batch_totals(int64_t batches, const int64_t* indptr, const uint64_t* prefix, uint64_t* totals) {
    for (int64_t i = thread_index(); i < batches; i += thread_count()) {
        const int64_t begin = indptr[i], end = indptr[i + 1];
        totals[i] = (end > 0 ? prefix[end - 1] : 0) - (begin > 0 ? prefix[begin - 1] : 0);
    }
}

// Adds the numerator of every entry of A to its column's sum (columns elements, zeros before), and sets *refused where a column
// is not below `columns`: it is left out. O(entries); warps walk tiles.
extern "C" __global__ void add_columns(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_NUMERATORS_PARAMETERS,
                                       int64_t rows, int64_t columns, uint64_t* sums, int64_t* refused) {
    const Rows A = SPSAMPLE_ROWS;
    const EntryNumerators numerators = SPSAMPLE_NUMERATORS;
    const int64_t entries = A.indptr[rows];
    for (int64_t begin = warp_index() * kTileEntries; begin < entries; begin += warp_count() * kTileEntries) {
        const EntryTile tile(A.indptr, 0, rows, begin, entries);
        for (int64_t entry = tile.begin + lane_index(); entry < tile.end; entry += kWarp) {
            const int64_t row = tile.row_of(entry), offset = entry - A.begin(row), column = A.columns(row)[offset];
            if (static_cast<uint64_t>(column) >= static_cast<uint64_t>(columns)) {
                store_relaxed(refused, int64_t(1));
                continue;
            }
            const uint64_t numerator = numerators(A, row, offset, 0);
            if (numerator != 0) atomic_add(sums + column, numerator);
        }
    }
}

// Squares each of `count` values.
extern "C" __global__ void square(int64_t count, uint64_t* values) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) values[i] *= values[i];
}
