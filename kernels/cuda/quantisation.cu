// From weights to integers: the exponents of rows, what batches add up to, and numerators of rows whose entries weigh the same
// (docs/law.md, section 2).
#include "chunks.h"
#include "entry_tiles.h"
#include "spsample/quantisation.h"

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
            if (load_relaxed(exponents + row) < raised) atomicMax(exponents + row, raised);
        }
    }
}

// Sums of counts (rows) over each batch, and the largest of exponents (rows), from that of a row without positive entries
// upwards: sums and largest (batches) hold zeros. One warp for 256 rows, one atomic operation for each batch that it touches,
// mostly.
extern "C" __global__ void total_batches(const int64_t* batch_ptr, int64_t batches, int64_t rows, const int64_t* counts,
                                         const int32_t* exponents, uint64_t* sums, uint64_t* largest) {
    for (int64_t chunk = warp_index(); chunk < chunks_of(rows); chunk += warp_count()) {
        const int64_t begin = chunk * kChunk, end = begin + kChunk < rows ? begin + kChunk : rows;
        const Window window = window_of(batch_ptr, batches, begin, end - 1);
        int64_t batch = window.first;
        uint64_t sum = 0;
        uint32_t most = 0;
        for (int64_t r = begin + lane_index(); r < end; r += kWarp) {
            const int64_t mine = window.part_of(r);
            if (mine != batch) {
                atomic_add(sums + batch, sum);
                atomicMax(reinterpret_cast<unsigned long long*>(largest + batch), static_cast<unsigned long long>(most));
                batch = mine;
                sum = 0;
                most = 0;
            }
            const uint32_t exponent = static_cast<uint32_t>(exponents[r]) - static_cast<uint32_t>(kNoExponent);
            sum += static_cast<uint64_t>(counts[r]);
            most = exponent > most ? exponent : most;
        }
        if (window.count == 1) {
            most = __reduce_max_sync(kAllLanes, most);
            for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        }
        if (window.count > 1 || lane_index() == 0) {
            atomic_add(sums + batch, sum);
            atomicMax(reinterpret_cast<unsigned long long*>(largest + batch), static_cast<unsigned long long>(most));
        }
    }
}

// numerators (rows): that of (1 / d)^power for a row of d = counts entries under its batch's K; 0 for an empty row. One thread a
// row.
extern "C" __global__ void number_rows(const int64_t* batch_ptr, int64_t batches, int64_t rows, const int64_t* counts,
                                       const int64_t* shifts, int64_t power, uint64_t* numerators) {
    for (int64_t r = thread_index(); r < rows; r += thread_count()) {
        const double weight = counts[r] > 0 ? 1.0 / static_cast<double>(counts[r]) : 0.0;
        numerators[r] = quantize(weight, shifts[part_of(batch_ptr, batches, r)], static_cast<int32_t>(power));
    }
}
