// Minibatches in other libraries' terms.
#include "chunks.h"

using namespace spsample;

// edges (2, entries): column and row of each entry of a CSR matrix. indptr (rows + 1) from 0. One warp for 256 entries.
extern "C" __global__ void edge_index(
    const int64_t* indptr, int64_t rows, const Index* indices, int64_t entries, int64_t* edges) {
    for (int64_t chunk = warp_index(); chunk < chunks_of(entries); chunk += warp_count()) {
        const int64_t begin = chunk * kChunk, end = begin + kChunk < entries ? begin + kChunk : entries;
        const Window window = window_of(indptr, rows, begin, end - 1);
        for (int64_t x = begin + lane_index(); x < end; x += kWarp) {
            edges[x] = indices[x];
            edges[entries + x] = window.part_of(x);
        }
    }
}
