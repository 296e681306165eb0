// Rows of features by vertex id, from wherever each row lies: device memory, or host memory over the bus.
//
// out (count or more, dim) float32; places (vertices): the address of each vertex's row of `dim` numbers, 0: none, and nothing is written;
// ids (count), or null: places has an address for each row of the result. at (count): the row of out for each id, or null: one after the
// other. One warp a row, neighbouring lanes read neighbouring numbers, so that a row crosses the bus in as few transactions as it can.
// Bytes moved: 8 + size of the id, the row read once, 4 dim written.
#include "device.h"
#include "spsample/features.h"

using namespace spsample;

// 16 bytes at a time.
struct alignas(16) Quad {
    uint32_t words[4];
};

template <class Stored, class Decode>
__device__ inline void gather(
    const uint64_t* places, const Index* ids, int64_t count, int64_t dim, float* out, const int64_t* at, Decode decode) {
    for (int64_t i = warp_index(); i < count; i += warp_count()) {
        const Stored* row = reinterpret_cast<const Stored*>(places[ids ? static_cast<int64_t>(ids[i]) : i]);
        if (!row) continue;
        float* to = out + (at ? at[i] : i) * dim;
        for (int64_t j = lane_index(); j < dim; j += kWarp) to[j] = decode(row[j], j);
    }
}

extern "C" __global__ void gather_float32(
    const uint64_t* places, const Index* ids, int64_t count, int64_t dim, float* out, const int64_t* at, const float*) {
    gather<float>(places, ids, count, dim, out, at, FromNumber());
}

extern "C" __global__ void gather_float16(
    const uint64_t* places, const Index* ids, int64_t count, int64_t dim, float* out, const int64_t* at, const float*) {
    gather<uint16_t>(places, ids, count, dim, out, at, FromHalf());
}

extern "C" __global__ void gather_bfloat16(
    const uint64_t* places, const Index* ids, int64_t count, int64_t dim, float* out, const int64_t* at, const float*) {
    gather<uint16_t>(places, ids, count, dim, out, at, FromBFloat());
}

// scale (dim): of each column.
extern "C" __global__ void gather_int8(
    const uint64_t* places, const Index* ids, int64_t count, int64_t dim, float* out, const int64_t* at, const float* scale) {
    gather<int8_t>(places, ids, count, dim, out, at, FromInt8{scale});
}

// float32 where dim is a multiple of 4 and rows begin at multiples of 16 bytes. 8 lanes a row: rows of 100 numbers have 25 quads.
extern "C" __global__ void gather_quads(
    const uint64_t* places, const Index* ids, int64_t count, int64_t dim, float* out, const int64_t* at, const float*) {
    constexpr int kLanes = 8;
    const int64_t quads = dim / 4;
    const int64_t group = thread_index() / kLanes, groups = thread_count() / kLanes;
    for (int64_t i = group; i < count; i += groups) {
        const Quad* row = reinterpret_cast<const Quad*>(places[ids ? static_cast<int64_t>(ids[i]) : i]);
        if (!row) continue;
        Quad* to = reinterpret_cast<Quad*>(out + (at ? at[i] : i) * dim);
        for (int64_t j = threadIdx.x % kLanes; j < quads; j += kLanes) to[j] = row[j];
    }
}

// Which ids have a row among those that are kept, and where it lies. words: one for 32 vertices, a bit for each that has a row in the
// lower half, the number of vertices before them that have one in the upper (spsample/features/places.py). rows: in the order of their
// vertices, of row_bytes each. addresses (count): 0 where there is no row; is_missing (count): 1 there, else 0.
extern "C" __global__ void find_kept(const uint64_t* words,
                                     const Index* ids,
                                     int64_t count,
                                     const uint8_t* rows,
                                     int64_t row_bytes,
                                     uint64_t* addresses,
                                     uint8_t* is_missing) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const uint64_t vertex = static_cast<uint64_t>(ids[i]), word = words[vertex / 32];
        const uint32_t bit = 1u << (vertex % 32), kept = static_cast<uint32_t>(word);
        const bool is_kept = kept & bit;
        const uint64_t place = (word >> 32) + static_cast<uint64_t>(__popc(kept & (bit - 1)));
        addresses[i] = is_kept ? reinterpret_cast<uint64_t>(rows) + place * static_cast<uint64_t>(row_bytes) : 0;
        is_missing[i] = !is_kept;
    }
}

// The ids that have no row, in order, and their positions. ends (count): how many of the ids up to each have none.
extern "C" __global__ void take_missing(
    const Index* ids, int64_t count, const int64_t* ends, Index* missing, int64_t* positions) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t place = i ? ends[i - 1] : 0;
        if (ends[i] == place) continue;
        missing[place] = ids[i];
        positions[place] = i;
    }
}
