// Rows of a partitioned A: the part that owns each, and rows that came back, in the order of their selector.
#include "device.h"

using namespace spsample;

// keys (rows) of 1 or 2 bytes: the part that owns each row; counts (parts, batches), zeros: how many of each batch. bounds (parts
// + 1). position (bounds[parts]) may be null. bad[0] is set where a vertex is not below bounds[parts], bad[1] where a position is
// not. Rows of one part and batch that a warp meets together are counted by one atomic operation. One thread a row.
extern "C" __global__ void find_parts(const int64_t* batch_ptr, const Index* vertices, int64_t batches, int64_t rows,
                                      const int64_t* bounds, int64_t parts, const Index* position, void* keys, int64_t key_bytes,
                                      int64_t* counts, int64_t* bad) {
    const int64_t n = bounds[parts];
    for (int64_t base = warp_index() * kWarp; base < rows; base += warp_count() * kWarp) {
        const int64_t r = base + lane_index();
        int64_t counter = -1;
        if (r < rows) {
            int64_t at = vertices[r];
            const bool is_vertex = at >= 0 && at < n;
            if (!is_vertex) store_relaxed(bad, int64_t(1));
            if (is_vertex && position) {
                at = position[at];
                if (at < 0 || at >= n) store_relaxed(bad + 1, int64_t(1));
            }
            const int64_t part = at >= 0 && at < n ? part_of(bounds, parts, at) : 0;
            if (key_bytes == 1) {
                static_cast<uint8_t*>(keys)[r] = static_cast<uint8_t>(part);
            } else {
                static_cast<uint16_t*>(keys)[r] = static_cast<uint16_t>(part);
            }
            counter = part * batches + part_of(batch_ptr, batches, r);
        }
        const unsigned same = __match_any_sync(kAllLanes, counter);
        if (counter >= 0 && (same & lanes_below()) == 0) atomic_add(counts + counter, static_cast<int64_t>(__popc(same)));
    }
}

// The rows in the given order (rows), and the place that each got. One thread a row.
extern "C" __global__ void place_rows(
    const Index* vertices, const int64_t* order, int64_t rows, Index* routed, Index* places) {
    for (int64_t place = thread_index(); place < rows; place += thread_count()) {
        routed[place] = vertices[order[place]];
        places[order[place]] = static_cast<Index>(place);
    }
}

// wide (rows): lengths of 1, 2 (unsigned), 4 or 8 bytes. One that is negative or more than `most` becomes 0, and bad[0] is set.
extern "C" __global__ void widen_lengths(
    const void* lengths, int64_t bytes, int64_t rows, int64_t most, int64_t* wide, int64_t* bad) {
    for (int64_t r = thread_index(); r < rows; r += thread_count()) {
        int64_t length = 0;
        if (bytes == 1) {
            length = static_cast<const uint8_t*>(lengths)[r];
        } else if (bytes == 2) {
            length = static_cast<const uint16_t*>(lengths)[r];
        } else if (bytes == 4) {
            length = static_cast<const int32_t*>(lengths)[r];
        } else {
            length = static_cast<const int64_t*>(lengths)[r];
        }
        if (length < 0 || length > most) {
            store_relaxed(bad, int64_t(1));
            length = 0;
        }
        wide[r] = length;
    }
}

// Length and first entry of the row at places[r], for each r. ends (rows + 1): where the rows that lie there begin. A place that
// is not below `rows` counts as an empty row, and bad[1] is set; bad[2] becomes the number of entries. One thread a row.
extern "C" __global__ void find_rows(
    const Index* places, int64_t rows, const int64_t* ends, int64_t* lengths, int64_t* begins, int64_t* bad) {
    for (int64_t r = thread_index(); r < rows; r += thread_count()) {
        const int64_t place = places[r];
        const bool is_row = place >= 0 && place < rows;
        if (!is_row) store_relaxed(bad + 1, int64_t(1));
        lengths[r] = is_row ? ends[place + 1] - ends[place] : 0;
        begins[r] = is_row ? ends[place] : 0;
        if (r == 0) bad[2] = ends[rows];
    }
}
