// A[rows]: whole rows of a CSR matrix, written out.
#include "device.h"

using namespace spsample;

// lengths (count): entries of the rows. O(count).
extern "C" __global__ void selected_lengths(const int64_t* indptr, const int64_t* rows, int64_t count, int64_t* lengths) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) lengths[i] = indptr[rows[i] + 1] - indptr[rows[i]];
}

// The columns of the rows' entries. ends (count + 1): 0 and the inclusive sums of the lengths; total = ends[count]. One thread an
// entry; O(total log count).
extern "C" __global__ void select_columns(
    const int64_t* indptr, const Index* indices, const int64_t* rows, int64_t count, const int64_t* ends, int64_t total,
    Index* columns) {
    for (int64_t out = thread_index(); out < total; out += thread_count()) {
        const int64_t i = part_of(ends, count, out);
        columns[out] = indices[indptr[rows[i]] + out - ends[i]];
    }
}

namespace {

template <class Unit>
__device__ void select_units(const int64_t* indptr, const void* data, const int64_t* rows, int64_t count, const int64_t* ends,
                             int64_t total, int64_t units, void* selected) {
    for (int64_t out = thread_index(); out < total * units; out += thread_count()) {
        const int64_t entry = units == 1 ? out : out / units, i = part_of(ends, count, entry);
        const int64_t from = (indptr[rows[i]] + entry - ends[i]) * units + (out - entry * units);
        static_cast<Unit*>(selected)[out] = static_cast<const Unit*>(data)[from];
    }
}

}  // namespace

// Their data, of which an entry has `units` units of `bytes` (1, 2, 4 or 8) bytes. One thread a unit.
extern "C" __global__ void select_data(const int64_t* indptr, const void* data, const int64_t* rows, int64_t count,
                                       const int64_t* ends, int64_t total, int64_t units, int64_t bytes, void* selected) {
    if (bytes == 1) select_units<uint8_t>(indptr, data, rows, count, ends, total, units, selected);
    if (bytes == 2) select_units<uint16_t>(indptr, data, rows, count, ends, total, units, selected);
    if (bytes == 4) select_units<uint32_t>(indptr, data, rows, count, ends, total, units, selected);
    if (bytes == 8) select_units<uint64_t>(indptr, data, rows, count, ends, total, units, selected);
}
