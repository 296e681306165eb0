// Rows of features by vertex id, from wherever each row lies: device memory, or host memory over the bus.
//
// out (count or more, dim) float32; places (vertices): the address of each vertex's row of `dim` numbers; at (count): the row of out for
// each id, or null: one after the other. One warp a row, neighbouring lanes read neighbouring numbers, so that a row crosses the bus in
// as few transactions as it can. Bytes moved: 8 + size of the id, the row read once, 4 dim written.
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
        const Stored* row = reinterpret_cast<const Stored*>(places[ids[i]]);
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
        const Quad* row = reinterpret_cast<const Quad*>(places[ids[i]]);
        Quad* to = reinterpret_cast<Quad*>(out + (at ? at[i] : i) * dim);
        for (int64_t j = threadIdx.x % kLanes; j < quads; j += kLanes) to[j] = row[j];
    }
}
