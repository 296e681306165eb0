// The products of C = A B, and sets of columns as hash tables: what both passes of the product by hash tables share.
//
// A row of C sums the products a_ij b_jv of a row of A, which are numbered over all rows of A: by A's entries, then by the
// entries of the row of B. That is the order in which the law of sums takes them.
//
// Rows go by classes (spgemm_classes.cu): a short one to a warp, a medium one to a block, both with the table in shared memory; a
// long one to a block with its table in global memory. A row of very many products, or whose table does not fit in memory, is
// made by spgemm.cu.
#pragma once

#include "chunks.h"
#include "teams.h"

namespace spsample {

constexpr int kWarpsPerBlock = 8;
using WarpTeam = Team<1>;
using BlockTeam = Team<kWarpsPerBlock>;

constexpr int kShortSize = 128, kShortProducts = 512;  // most columns and products of a short row
constexpr int kMediumSize = 1024;                      // most columns of a medium row
constexpr int kShortSlots = 2 * kShortSize, kMediumSlots = 2 * kMediumSize;

// Classes of rows; kLongest differs from kLong in the size of tables only. spsample/backends/cuda/spgemm_hashed.py numbers them
// alike.
enum RowClass { kNone, kShort, kMedium, kLong, kLongest, kHub, kClasses };

// --- products -----------------------------------------------------------------------------------------------------------

// entry_ends (entries of A + 1): products of the entries before each.
struct Products {
    const int64_t* A_indptr;
    const Index* A_indices;
    const int64_t* B_indptr;
    const Index* B_indices;
    const int64_t* entry_ends;

    __device__ int64_t begin(int64_t row) const { return entry_ends[A_indptr[row]]; }
    __device__ int64_t end(int64_t row) const { return entry_ends[A_indptr[row + 1]]; }
    // Where in B a product of an entry of A is found.
    __device__ int64_t place(int64_t entry, int64_t product) const {
        return B_indptr[A_indices[entry]] + product - entry_ends[entry];
    }
    // The entry of A, from the `count` entries at `first`.
    __device__ int64_t entry_of(int64_t first, int64_t count, int64_t product) const {
        return first + part_of(entry_ends + first, count, product);
    }
};

#define PRODUCTS_PARAMETERS \
    const int64_t *A_indptr, const Index *A_indices, const int64_t *B_indptr, const Index *B_indices, const int64_t *entry_ends
#define PRODUCTS \
    Products { A_indptr, A_indices, B_indptr, B_indices, entry_ends }

// The entries of A that hold the products first .. last of a row. All lanes of a warp call it together.
struct Entries {
    int64_t first, count;

    __device__ Entries(const Products& products, int64_t row, int64_t first_product, int64_t last_product) {
        const int64_t begin = products.A_indptr[row], entries = products.A_indptr[row + 1] - begin;
        const Window window = window_of(products.entry_ends + begin, entries, first_product, last_product);
        first = begin + window.first;
        count = window.count;
    }
};

// --- tables -------------------------------------------------------------------------------------------------------------

constexpr Index kNoColumn = -1;

__device__ inline int32_t compare_and_swap(int32_t* address, int32_t expected, int32_t value) {
    return static_cast<int32_t>(
        atomicCAS(reinterpret_cast<unsigned*>(address), static_cast<unsigned>(expected), static_cast<unsigned>(value)));
}
__device__ inline int64_t compare_and_swap(int64_t* address, int64_t expected, int64_t value) {
    return static_cast<int64_t>(
        atomic_cas(reinterpret_cast<uint64_t*>(address), static_cast<uint64_t>(expected), static_cast<uint64_t>(value)));
}

// Golden ratio hashing (Knuth, The art of computer programming, vol. 3, 6.4): the upper bits are the hash.
__device__ inline uint64_t hash_of(Index column) { return static_cast<uint64_t>(column) * uint64_t(0x9E3779B97F4A7C15); }

// A set of columns with open addressing, at most half full. Slot: an integer that counts the slots.
template <class Slot>
struct ColumnTable {
    Index* columns;  // kNoColumn: free
    int bits;        // of the number of slots

    // For a number of columns (at least 1); as many slots as the team has threads, at least.
    template <class Team>
    __device__ static ColumnTable of(const Team&, Index* columns, int64_t size) {
        constexpr int kLeastBits = Team::kWarps == 1 ? 5 : 8;
        static_assert(1 << kLeastBits == Team::kThreads, "teams are of 32 or 256 threads");
        const int bits = 64 - __clzll(2 * size - 1);
        return {columns, bits > kLeastBits ? bits : kLeastBits};
    }

    __device__ Slot slots() const { return static_cast<Slot>(Slot(1) << bits); }

    template <class Team>
    __device__ void clear(const Team& team) const {
        for (Slot slot = team.thread(); slot < slots(); slot += Team::kThreads) columns[slot] = kNoColumn;
        team.sync();
    }

    // The column's slot, which is made its own if it has none; *is_new tells. Threads may call it at the same time: a slot goes
    // from free to one column, so that a load that is out of date is corrected by the exchange.
    __device__ Slot claim(Index column, bool* is_new) const {
        for (Slot slot = home(column);; slot = next(slot)) {
            Index held = load_relaxed(columns + slot);
            if (held == kNoColumn) held = compare_and_swap(columns + slot, kNoColumn, column);
            *is_new = held == kNoColumn;
            if (*is_new || held == column) return slot;
        }
    }

    // The slot of a column that is in the table; after the team's barrier.
    __device__ Slot find(Index column) const {
        Slot slot = home(column);
        while (columns[slot] != column) slot = next(slot);
        return slot;
    }

private:
    __device__ Slot home(Index column) const { return static_cast<Slot>(hash_of(column) >> (64 - bits)); }
    __device__ Slot next(Slot slot) const { return (slot + 1) & (slots() - 1); }
};

// --- rows of a class ----------------------------------------------------------------------------------------------------

// Calls body(row) for the short rows, a warp each; a warp looks through rows_per_warp (at most 32) rows at a time.
template <class Body>
__device__ inline void for_each_short_row(const uint8_t* classes, int64_t rows, int64_t rows_per_warp, Body body) {
    for (int64_t base = warp_index() * rows_per_warp; base < rows; base += warp_count() * rows_per_warp) {
        const int64_t row = base + lane_index();
        const bool is_short = lane_index() < rows_per_warp && row < rows && classes[row] == kShort;
        for (unsigned rest = __ballot_sync(kAllLanes, is_short); rest != 0; rest &= rest - 1) body(base + __ffs(rest) - 1);
    }
}

}  // namespace spsample
