// Integer probabilities of whole matrices: row exponents, and column sums under the graph rule (docs/law.md, section 2).
#include "entry_tiles.h"
#include "numerators.h"

using namespace spsample;

// The weight of every entry is that of the row's first: exponents[r] (rows) as of frexp, kNoExponent without entries. O(rows).
extern "C" __global__ void even_row_exponents(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, int64_t rows,
                                              int32_t* exponents) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    for (int64_t row = thread_index(); row < rows; row += thread_count()) {
        exponents[row] = A.degree(row) > 0 ? decompose(weights(A, row, 0)).exponent : kNoExponent;
    }
}

// exponents[r] (rows, zeros before): the largest exponent of the row's positive entries plus 2^31. O(entries); warps walk tiles.
extern "C" __global__ void row_exponents(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, int64_t rows,
                                         uint32_t* exponents) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const int64_t entries = A.indptr[rows];
    for (int64_t begin = warp_index() * kTileEntries; begin < entries; begin += warp_count() * kTileEntries) {
        const EntryTile tile(A.indptr, 0, rows, begin, entries);
        for (int64_t entry = tile.begin + lane_index(); entry < tile.end; entry += kWarp) {
            const int64_t row = tile.row_of(entry);
            const auto weight = weights(A, row, entry - A.begin(row));
            if (!is_positive(weight)) continue;
            const uint32_t raised = static_cast<uint32_t>(decompose(weight).exponent) ^ 0x80000000u;
            if (*reinterpret_cast<volatile uint32_t*>(exponents + row) < raised) atomicMax(exponents + row, raised);
        }
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
