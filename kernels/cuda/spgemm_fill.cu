// Columns and sums of C = A B: the second pass of the product by hash tables (spgemm_products.h).
//
// The sum of a column takes its products in the order of their numbers, from the first on; no atomics add. For this the products
// of one column go through one warp: through the row's warp, or through the warp of a row's block that the column's hash names,
// to which the block deals its products in their order. A warp takes 32 products at a time. Lanes with the same column find each
// other (__match_any_sync), and the lowest adds up the products of all of them, lane by lane; a barrier of the warp then lets the
// next 32 see the sums. Slots are claimed by atomicCAS; within a block only for different columns at the same time. A block owns
// the memory of its table and its part of the result, so that blocks do not race.
#include "spgemm_keys.h"
#include "spgemm_products.h"

#ifndef SPSAMPLE_VALUE
#define SPSAMPLE_VALUE float
#endif

using namespace spsample;

namespace {

using Value = SPSAMPLE_VALUE;

constexpr int kMediumSteps = 2;  // products of a thread in a tile
constexpr int kLongSteps = 4;

// Values may be null: ones.
struct ValuedProducts : Products {
    const Value* A_data;
    const Value* B_data;

    __device__ Value value(int64_t entry, int64_t place) const {
        const Value a = A_data ? A_data[entry] : Value(1), b = B_data ? B_data[place] : Value(1);
        return a * b;
    }
};

#define VALUED_PARAMETERS PRODUCTS_PARAMETERS, const Value *A_data, const Value *B_data
#define VALUED \
    ValuedProducts { {A_indptr, A_indices, B_indptr, B_indices, entry_ends}, A_data, B_data }

// Which warp of a block adds the products of a column.
__device__ inline unsigned to_warp(Index column) { return static_cast<unsigned>(hash_of(column) >> 61); }

// Lanes with the same column as this one.
__device__ inline unsigned same_column(int32_t column) { return __match_any_sync(kAllLanes, static_cast<unsigned>(column)); }
__device__ inline unsigned same_column(int64_t column) {
    return __match_any_sync(kAllLanes, static_cast<unsigned long long>(column));
}

// A table with the sum of each column.
template <class Slot>
struct SumTable {
    ColumnTable<Slot> columns;
    Value* sums;

    // Adds 32 products, in the order of the lanes; lanes without one have kNoColumn. No other warp has one of these columns.
    __device__ void add(Index column, Value product) const {
        const unsigned same = same_column(column);
        const bool leads = column != kNoColumn && (same & lanes_below()) == 0;
        Slot slot = 0;
        Value sum = product;
        if (leads) {
            bool is_new;
            slot = columns.claim(column, &is_new);
            if (!is_new) sum = sums[slot] + product;
        }
        unsigned rest = leads ? same & (same - 1) : 0;  // without the lowest lane, which is this one
        while (__any_sync(kAllLanes, rest != 0)) {
            const Value other = __shfl_sync(kAllLanes, product, rest != 0 ? __ffs(rest) - 1 : lane_index());
            if (rest != 0) sum = sum + other;
            rest &= rest - 1;
        }
        if (leads) sums[slot] = sum;
        __syncwarp();
    }
};

// --- dealing products to the warps of a block ---------------------------------------------------------------------------

// Consecutive products of a row, dealt to warps; in shared memory.
template <int Steps>
struct Tile {
    static constexpr int kProducts = Steps * BlockTeam::kThreads;
    Index columns[kProducts];
    Value products[kProducts];
};

constexpr int kCounts = kWarpsPerBlock * kWarpsPerBlock;  // products for each warp from each warp's piece of a tile
static_assert(kWarpsPerBlock == 8 && kCounts == 2 * kWarp, "a warp is named by 3 bits, a lane has two counts");

// Where in a tile the products begin that are counted in counts[i]. All lanes of a warp call it together.
class Offsets {
public:
    __device__ explicit Offsets(const uint32_t* counts) {
        first_ = counts[2 * lane_index()];
        const uint32_t both = first_ + counts[2 * lane_index() + 1];
        before_ = sum_below(both);
        total_ = __shfl_sync(kAllLanes, before_ + both, kWarp - 1);
    }
    __device__ uint32_t at(int i) const {
        const uint32_t before = __shfl_sync(kAllLanes, before_, i / 2 % kWarp);
        const uint32_t first = __shfl_sync(kAllLanes, first_, i / 2 % kWarp);
        return i == kCounts ? total_ : i % 2 ? before + first : before;
    }

private:
    uint32_t first_, before_, total_;
};

// Adds the products of a row. A warp reads a piece of each tile, and counts how many of its products go to each warp; all pieces'
// products for a warp then stand side by side in the tile, in order, and that warp adds them. At the end all threads are done.
template <int Steps, class Slot>
__device__ void add_row(const BlockTeam& team, const ValuedProducts& products, int64_t row, const SumTable<Slot>& table,
                        Tile<Steps>& tile, uint32_t* counts) {
    constexpr int64_t kPiece = Steps * kWarp;
    const int64_t end = products.end(row);
    for (int64_t tile_first = products.begin(row); tile_first < end; tile_first += Tile<Steps>::kProducts) {
        const int64_t first = tile_first + team.warp() * kPiece;
        const int64_t last = (first + kPiece < end ? first + kPiece : end) - 1;
        Index column[Steps];
        Value product[Steps];
        uint32_t rank[Steps];     // among the piece's products for the same warp
        uint32_t of_warp = 0;     // products so far for the warp that the lane's last three bits name
#pragma unroll
        for (int step = 0; step < Steps; ++step) column[step] = kNoColumn;
        if (first < end) {
            const Entries entries(products, row, first, last);
#pragma unroll
            for (int step = 0; step < Steps; ++step) {
                const int64_t number = first + step * kWarp + lane_index();
                if (number <= last) {
                    const int64_t entry = products.entry_of(entries.first, entries.count, number);
                    const int64_t place = products.place(entry, number);
                    column[step] = products.B_indices[place];
                    product[step] = products.value(entry, place);
                }
            }
        }
#pragma unroll
        for (int step = 0; step < Steps; ++step) {
            const unsigned to = to_warp(column[step]), in_range = __ballot_sync(kAllLanes, column[step] != kNoColumn);
            unsigned with_mine = in_range, with_lanes = in_range;
#pragma unroll
            for (int bit = 0; bit < 3; ++bit) {
                const unsigned mask = __ballot_sync(kAllLanes, (to >> bit) & 1);
                with_mine &= (to >> bit) & 1 ? mask : ~mask;
                with_lanes &= (lane_index() >> bit) & 1 ? mask : ~mask;
            }
            rank[step] = __shfl_sync(kAllLanes, of_warp, static_cast<int>(to)) + __popc(with_mine & lanes_below());
            of_warp += __popc(with_lanes);
        }
        if (lane_index() < kWarpsPerBlock) counts[lane_index() * kWarpsPerBlock + team.warp()] = of_warp;
        team.sync();
        const Offsets offsets(counts);
#pragma unroll
        for (int step = 0; step < Steps; ++step) {
            const int to = static_cast<int>(to_warp(column[step]));
            const uint32_t place = offsets.at(to * kWarpsPerBlock + team.warp()) + rank[step];
            if (column[step] != kNoColumn) {
                tile.columns[place] = column[step];
                tile.products[place] = product[step];
            }
        }
        const uint32_t begin = offsets.at(team.warp() * kWarpsPerBlock), stop = offsets.at((team.warp() + 1) * kWarpsPerBlock);
        team.sync();
        // The next tile is written after the next barrier but one, its counts after the last reads of these.
        for (uint32_t base = begin; base < stop; base += kWarp) {
            const uint32_t i = base + lane_index();
            table.add(i < stop ? tile.columns[i] : kNoColumn, i < stop ? tile.products[i] : Value(0));
        }
    }
    team.sync();
}

// --- from a table to the result -----------------------------------------------------------------------------------------

// Calls write(number, column, slot) for each column of a table, which it numbers in any order; counter: in shared memory. All
// threads of a team call it.
template <class Team, class Slot, class Write>
__device__ void for_each_column(const Team& team, const ColumnTable<Slot>& table, uint64_t* counter, const Write& write) {
    if (team.thread() == 0) *counter = 0;
    team.sync();
    for (Slot slot = team.thread(); slot < table.slots(); slot += Team::kThreads) {
        const Index column = table.columns[slot];
        const unsigned mask = __ballot_sync(kAllLanes, column != kNoColumn);
        uint64_t first = 0;
        if (lane_index() == 0 && mask != 0) first = atomic_add(counter, static_cast<uint64_t>(__popc(mask)));
        first = __shfl_sync(kAllLanes, first, 0);
        if (column != kNoColumn) write(static_cast<int64_t>(first) + __popc(mask & lanes_below()), column, slot);
    }
    team.sync();
}

// Sorts ascending, in place: block_sort of block_sums.h, for a team. Values are in memory that the team has passed a barrier for.
template <class Team>
__device__ void team_sort(const Team& team, Index* values, int count) {
    for (int length = 1; 1 << (length - 1) < count; ++length) {
        for (int bits = length - 1; bits >= 0; --bits) {
            const int half = 1 << bits, mask = half - 1;
            for (int pair = team.thread();; pair += Team::kThreads) {
                const int low = (pair >> bits << (bits + 1)) + (pair & mask);
                if (low >= count) break;
                const int high = bits == length - 1 ? (low | mask) + half - (pair & mask) : low + half;
                if (high < count && values[high] < values[low]) {
                    const Index larger = values[low];
                    values[low] = values[high];
                    values[high] = larger;
                }
            }
            team.sync();
        }
    }
}

// C: row pointers ends (rows + 1), columns and sums.
struct Result {
    const int64_t* ends;
    Index* columns;
    Value* sums;
};

// Writes a row of C from its table; list: room for its columns, in the team's memory. At the end all threads are done.
template <class Team>
__device__ void write_sorted(const Team& team, const SumTable<int>& table, Index* list, uint64_t* counter, const Result& C,
                             int64_t row) {
    const int64_t begin = C.ends[row];
    const int count = static_cast<int>(C.ends[row + 1] - begin);
    for_each_column(team, table.columns, counter, [&](int64_t number, Index column, int) { list[number] = column; });
    team_sort(team, list, count);
    for (int i = team.thread(); i < count; i += Team::kThreads) {
        C.columns[begin + i] = list[i];
        C.sums[begin + i] = table.sums[table.columns.find(list[i])];
    }
    team.sync();
}

}  // namespace

#define RESULT_PARAMETERS const int64_t *C_ends, Index *C_columns, Value *C_sums
#define RESULT \
    Result { C_ends, C_columns, C_sums }

// The short rows of C, a warp each. O(products + slots + columns log^2 columns).
extern "C" __global__ void __launch_bounds__(256, 4)
    fill_short(VALUED_PARAMETERS, const uint8_t* classes, int64_t rows, int64_t rows_per_warp, RESULT_PARAMETERS) {
    __shared__ Index columns[kWarpsPerBlock][kShortSlots];
    __shared__ Value sums[kWarpsPerBlock][kShortSlots];
    __shared__ Index lists[kWarpsPerBlock][kShortSize];
    __shared__ uint64_t counters[kWarpsPerBlock];
    const ValuedProducts products = VALUED;
    const Result C = RESULT;
    const WarpTeam team = {nullptr};
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    for_each_short_row(classes, rows, rows_per_warp, [&](int64_t row) {
        const SumTable<int> table = {ColumnTable<int>::of(team, columns[warp], C.ends[row + 1] - C.ends[row]), sums[warp]};
        table.columns.clear(team);
        const int64_t first_entry = products.A_indptr[row], entries = products.A_indptr[row + 1] - first_entry;
        const int64_t begin = products.begin(row), end = products.end(row);
        for (int64_t first = begin; first < end; first += kWarp) {
            const int64_t number = first + lane_index();
            Index column = kNoColumn;
            Value product = Value(0);
            if (number < end) {
                const int64_t entry = products.entry_of(first_entry, entries, number), place = products.place(entry, number);
                column = products.B_indices[place];
                product = products.value(entry, place);
            }
            table.add(column, product);
        }
        write_sorted(team, table, lists[warp], &counters[warp], C, row);
    });
}

// The medium rows, list (count), a block each.
extern "C" __global__ void __launch_bounds__(256, 4)
    fill_medium(VALUED_PARAMETERS, const int64_t* list, int64_t count, RESULT_PARAMETERS) {
    union Room {
        Tile<kMediumSteps> tile;
        Index list[kMediumSize];
    };
    __shared__ Index columns[kMediumSlots];
    __shared__ Value sums[kMediumSlots];
    __shared__ Room room;  // the list follows the last tile
    __shared__ uint32_t counts[kCounts];
    __shared__ uint64_t counter;
    const ValuedProducts products = VALUED;
    const Result C = RESULT;
    const BlockTeam team = {nullptr};
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const int64_t row = list[i];
        const SumTable<int> table = {ColumnTable<int>::of(team, columns, C.ends[row + 1] - C.ends[row]), sums};
        table.columns.clear(team);
        add_row(team, products, row, table, room.tile, counts);
        write_sorted(team, table, room.list, &counter, C, row);
    }
}

// Keys and sums of long rows, list (count), a block each: those of list[i] at starts[i] - starts[0], in any order, their keys
// counted from the first row of the list. scratch: `capacity` slots for each block of the grid, which clears those that a row
// needs.
extern "C" __global__ void __launch_bounds__(256, 3)
    fill_long(VALUED_PARAMETERS, const int64_t* list, int64_t count, const int64_t* starts, int64_t num_columns,
              Index* scratch_columns, Value* scratch_sums, int64_t capacity, KEYS_PARAMETERS, Value* sums) {
    __shared__ Tile<kLongSteps> tile;
    __shared__ uint32_t counts[kCounts];
    __shared__ uint64_t counter;
    const ValuedProducts products = VALUED;
    const Keys keys = KEYS;
    const BlockTeam team = {nullptr};
    Index* columns = scratch_columns + static_cast<int64_t>(blockIdx.x) * capacity;
    Value* table_sums = scratch_sums + static_cast<int64_t>(blockIdx.x) * capacity;
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const SumTable<int64_t> table = {ColumnTable<int64_t>::of(team, columns, starts[i + 1] - starts[i]), table_sums};
        table.columns.clear(team);
        add_row(team, products, list[i], table, tile, counts);
        const int64_t begin = starts[i] - starts[0];
        const uint64_t of_row = static_cast<uint64_t>(i) * static_cast<uint64_t>(num_columns);
        for_each_column(team, table.columns, &counter, [&](int64_t number, Index column, int64_t slot) {
            keys.set(begin + number, of_row + static_cast<uint64_t>(column));
            sums[begin + number] = table_sums[slot];
        });
    }
}

// What fill_long wrote, in the order of the keys, to the rows of C. Work is cut by elements.
extern "C" __global__ void place_sorted(KEYS_PARAMETERS, const int64_t* order, const Value* sums, const int64_t* list,
                                        const int64_t* starts, int64_t count, int64_t num_columns, RESULT_PARAMETERS) {
    const Keys keys = KEYS;
    const Result C = RESULT;
    for_each_item(starts, count, [&](int64_t i, int64_t item) {
        const int64_t from = order[item - starts[0]], place = C.ends[list[i]] + item - starts[i];
        C.columns[place] = static_cast<Index>(keys[from] - static_cast<uint64_t>(i) * static_cast<uint64_t>(num_columns));
        C.sums[place] = sums[from];
    });
}

// Rows of another matrix to the listed rows of C, which are as long. Work is cut by elements.
extern "C" __global__ void copy_rows(const int64_t* indptr, const Index* columns, const Value* sums, const int64_t* list,
                                     int64_t count, RESULT_PARAMETERS) {
    const Result C = RESULT;
    for_each_item(indptr, count, [&](int64_t i, int64_t item) {
        const int64_t place = C.ends[list[i]] + item - indptr[i];
        C.columns[place] = columns[item];
        C.sums[place] = sums[item];
    });
}
