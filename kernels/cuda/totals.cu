// Totals of batches, and numerators of rows whose entries weigh the same (docs/law.md, section 2).
#include "chunks.h"
#include "spsample/quantize.h"

using namespace spsample;

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
