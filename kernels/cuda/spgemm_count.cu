// How many elements the rows of C = A B have: the first pass of the product by hash tables (spgemm_products.h; Nagasaka, Nukada
// and Matsuoka, High-performance and memory-saving sparse general matrix-matrix multiplication for NVIDIA Pascal GPU, ICPP 2017).
//
// Every column of a row's products is put into the row's table; those that are new there are counted. The order does not matter,
// so that all threads of the team put in columns at the same time. A team owns its row and its table: no two teams write to the
// same memory.
#include "spgemm_products.h"

using namespace spsample;

namespace {

// Distinct columns of the products of a row that the team's threads find new; the table is in the team's memory. At the end all
// threads are done with the table.
template <class Team, class Slot>
__device__ int64_t count_row(const Team& team, const Products& products, int64_t row, const ColumnTable<Slot>& table) {
    const int64_t begin = products.begin(row), end = products.end(row);
    table.clear(team);
    uint64_t count = 0;
    for (int64_t first = begin + team.warp() * kChunk; first < end; first += Team::kWarps * kChunk) {
        const int64_t last = (first + kChunk < end ? first + kChunk : end) - 1;
        const Entries entries(products, row, first, last);
        for (int64_t product = first + lane_index(); product <= last; product += kWarp) {
            const int64_t entry = products.entry_of(entries.first, entries.count, product);
            bool is_new;
            table.claim(products.B_indices[products.place(entry, product)], &is_new);
            count += is_new ? 1 : 0;
        }
        __syncwarp();
    }
    team.sync();
    return static_cast<int64_t>(team.reduce(count, Sum()));
}

// The listed rows, a block each.
template <class Slot>
__device__ void count_listed(const Products& products, const int64_t* list, int64_t count, int64_t num_columns, Index* columns,
                             uint64_t* exchange, int64_t* lengths) {
    const BlockTeam team = {exchange};
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const int64_t row = list[i], of_row = products.end(row) - products.begin(row);
        const int64_t size = of_row < num_columns ? of_row : num_columns;
        const int64_t length = count_row(team, products, row, ColumnTable<Slot>::of(team, columns, size));
        if (team.thread() == 0) lengths[row] = length;
    }
}

}  // namespace

// lengths[row] of the short rows, a warp each. O(products + slots).
extern "C" __global__ void __launch_bounds__(256, 4) count_short(PRODUCTS_PARAMETERS, const uint8_t* classes, int64_t rows,
                                                              int64_t rows_per_warp, int64_t num_columns, int64_t* lengths) {
    __shared__ Index columns[kWarpsPerBlock][kShortSlots];
    const Products products = PRODUCTS;
    const WarpTeam team = {nullptr};
    for_each_short_row(classes, rows, rows_per_warp, [&](int64_t row) {
        const int64_t of_row = products.end(row) - products.begin(row), size = of_row < num_columns ? of_row : num_columns;
        const ColumnTable<int> table = ColumnTable<int>::of(team, columns[threadIdx.x / kWarp], size);
        const int64_t length = count_row(team, products, row, table);
        if (lane_index() == 0) lengths[row] = length;
    });
}

// The same of medium rows, list (count), a block each.
extern "C" __global__ void __launch_bounds__(256, 4)
    count_medium(PRODUCTS_PARAMETERS, const int64_t* list, int64_t count, int64_t num_columns, int64_t* lengths) {
    __shared__ Index columns[kMediumSlots];
    __shared__ uint64_t exchange[kWarpsPerBlock];
    count_listed<int>(PRODUCTS, list, count, num_columns, columns, exchange, lengths);
}

// The same of long rows. scratch: `capacity` slots for each block of the grid, which clears those that a row needs.
extern "C" __global__ void __launch_bounds__(256, 4) count_long(PRODUCTS_PARAMETERS, const int64_t* list, int64_t count,
                                                             int64_t num_columns, Index* scratch, int64_t capacity,
                                                             int64_t* lengths) {
    __shared__ uint64_t exchange[kWarpsPerBlock];
    Index* columns = scratch + static_cast<int64_t>(blockIdx.x) * capacity;
    count_listed<int64_t>(PRODUCTS, list, count, num_columns, columns, exchange, lengths);
}
