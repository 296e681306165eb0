// Which rows of C = A B are made how (spgemm_products.h), and how the columns of long rows are sorted.
#include "spgemm_keys.h"
#include "spgemm_products.h"

using namespace spsample;

namespace {

// A row with more than this part of all products is a hub: one block would take longer than all others take for the rest.
constexpr int64_t kHubShare = 128;

// What the host asks of the rows, in the order of its fields; 0 at first.
struct Sizes {
    uint64_t rows[kClasses];
    uint64_t long_columns;     // of all long rows
    uint64_t longest_columns;  // of all longest rows
    uint64_t largest_long;     // columns of a row
    uint64_t largest_longest;
    uint64_t total;  // elements of C, once they are counted
};

// Adds one to the count of a class for each lane that is in it; returns what each of these got. All lanes call it together.
__device__ inline int64_t ticket(uint64_t* count, bool is_in) {
    const unsigned mask = __ballot_sync(kAllLanes, is_in);
    if (mask == 0) return 0;
    uint64_t first = 0;
    if (lane_index() == 0) first = atomic_add(count, static_cast<uint64_t>(__popc(mask)));
    return static_cast<int64_t>(__shfl_sync(kAllLanes, first, 0)) + __popc(mask & lanes_below());
}

__device__ inline void atomic_max(uint64_t* address, uint64_t value) {
    atomicMax(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
}

}  // namespace

// classes (rows) and sizes. Without ends (null) by the most columns that a row can have, and then by those that it has: ends
// (rows + 1) are C's row pointers; hubs stay what they are. lists (2 rows), in any order: medium rows from the front of the first
// half, hubs from its back; long rows from the front of the second half, the longest from its back. hub_least: products that a
// hub has at least; most_size: columns whose table still fits in memory; long_size: the most columns of a long row, above which
// it is among the longest. O(rows).
extern "C" __global__ void classify_rows(const int64_t* A_indptr, const int64_t* entry_ends, int64_t rows, int64_t num_columns,
                                         const int64_t* ends, int64_t hub_least, int64_t most_size, int64_t long_size,
                                         uint8_t* classes, int64_t* lists, void* size_data) {
    Sizes* sizes = static_cast<Sizes*>(size_data);
    const int64_t share = entry_ends[A_indptr[rows]] / kHubShare, hub = hub_least > share ? hub_least : share;
    if (thread_index() == 0 && ends) sizes->total = static_cast<uint64_t>(ends[rows]);
    for (int64_t base = warp_index() * kWarp; base < rows; base += warp_count() * kWarp) {
        const int64_t row = base + lane_index();
        RowClass its = kNone;
        int64_t size = 0;
        if (row < rows) {
            const int64_t products = entry_ends[A_indptr[row + 1]] - entry_ends[A_indptr[row]];
            size = products < num_columns ? products : num_columns;
            const bool is_hub = ends ? classes[row] == kHub : products > hub || (size > kMediumSize && size > most_size);
            if (ends) size = ends[row + 1] - ends[row];
            if (products > 0) {
                if (is_hub) {
                    its = kHub;
                } else if (size <= kShortSize && products <= kShortProducts) {
                    its = kShort;
                } else {
                    its = size <= kMediumSize ? kMedium : size <= long_size ? kLong : kLongest;
                }
            }
            classes[row] = static_cast<uint8_t>(its);
        }
        const int64_t medium = ticket(&sizes->rows[kMedium], its == kMedium), hubs = ticket(&sizes->rows[kHub], its == kHub);
        const int64_t long_ = ticket(&sizes->rows[kLong], its == kLong);
        const int64_t longest = ticket(&sizes->rows[kLongest], its == kLongest);
        ticket(&sizes->rows[kShort], its == kShort);
        if (its == kMedium) lists[medium] = row;
        if (its == kHub) lists[rows - 1 - hubs] = row;
        if (its == kLong) {
            lists[rows + long_] = row;
            atomic_add(&sizes->long_columns, static_cast<uint64_t>(size));
            atomic_max(&sizes->largest_long, static_cast<uint64_t>(size));
        }
        if (its == kLongest) {
            lists[2 * rows - 1 - longest] = row;
            atomic_add(&sizes->longest_columns, static_cast<uint64_t>(size));
            atomic_max(&sizes->largest_longest, static_cast<uint64_t>(size));
        }
    }
}

// lengths (count): those of the listed rows, from pointers to them.
extern "C" __global__ void listed_lengths(const int64_t* ends, const int64_t* list, int64_t count, int64_t* lengths) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) lengths[i] = ends[list[i] + 1] - ends[list[i]];
}

// Sets the lengths of the listed rows: list[i] has as many columns as row i of `indptr`.
extern "C" __global__ void set_lengths(const int64_t* indptr, const int64_t* list, int64_t count, int64_t* lengths) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) lengths[list[i]] = indptr[i + 1] - indptr[i];
}
