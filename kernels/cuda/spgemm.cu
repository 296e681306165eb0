// C = A B, all CSR, by expansion, sorting and summing (Bell, Dalton and Olson, Exposing fine-grained parallelism in algebraic
// multigrid methods, SISC 34(4), 2012).
//
// Every product a_ij b_jv is written with its key, row * num_columns + column, in the order in which the law of sums takes them:
// by the row's entries in A, then by the entries of the row of B. A stable sort by key brings the products of an element of C
// side by side, in that order, and one thread adds them up from the first on. Work is cut by products: lengths of rows do not
// matter. So are made rows that are too long for a block, or for memory, by hash tables (spgemm_products.h).
#include "spgemm_keys.h"

#ifndef SPSAMPLE_VALUE
#define SPSAMPLE_VALUE float
#endif

using namespace spsample;

namespace {

using Value = SPSAMPLE_VALUE;

}  // namespace

// lengths (count): products of each entry of A, which are as many as its row of B has entries.
extern "C" __global__ void product_lengths(const Index* A_indices, int64_t count, const int64_t* B_indptr, int64_t* lengths) {
    for (int64_t e = thread_index(); e < count; e += thread_count()) {
        lengths[e] = B_indptr[A_indices[e] + 1] - B_indptr[A_indices[e]];
    }
}

// row_ends (rows + 1): products of the rows before each, from those of the entries, entry_ends (entries + 1).
extern "C" __global__ void product_row_ends(const int64_t* A_indptr, int64_t rows, const int64_t* entry_ends, int64_t* row_ends) {
    for (int64_t r = thread_index(); r <= rows; r += thread_count()) row_ends[r] = entry_ends[A_indptr[r]];
}

// Products begin .. begin + count - 1 and their keys, counted from the rows first .. last - 1 that they belong to, behind the
// first `carried` elements. Values may be null: ones. One thread a product; O(count log entries).
extern "C" __global__ void expand_products(const int64_t* A_indptr, const Index* A_indices, const void* A_data,
                                           const int64_t* B_indptr, const Index* B_indices, const void* B_data, int64_t entries,
                                           const int64_t* entry_ends,
                                           int64_t first, int64_t last, int64_t begin, int64_t count, int64_t num_columns,
                                           int64_t carried, KEYS_PARAMETERS, void* products) {
    const Keys keys = KEYS;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t e = part_of(entry_ends, entries, begin + i), row = part_of(A_indptr + first, last - first, e);
        const int64_t q = B_indptr[A_indices[e]] + begin + i - entry_ends[e];
        const Value a = A_data ? static_cast<const Value*>(A_data)[e] : Value(1);
        const Value b = B_data ? static_cast<const Value*>(B_data)[q] : Value(1);
        static_cast<Value*>(products)[carried + i] = a * b;
        const uint64_t of_row = static_cast<uint64_t>(row) * static_cast<uint64_t>(num_columns);
        keys.set(carried + i, of_row + static_cast<uint64_t>(B_indices[q]));
    }
}

// heads (count): 1 for each product that is the first of its key in sorted order, else 0.
extern "C" __global__ void mark_heads(KEYS_PARAMETERS, const int64_t* order, int64_t count, int64_t* heads) {
    const Keys keys = KEYS;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        heads[i] = i == 0 || keys[order[i]] != keys[order[i - 1]] ? 1 : 0;
    }
}

// starts (segments + 1): where each key's products begin in sorted order. numbers (count): inclusive sums of the heads.
extern "C" __global__ void segment_starts(const int64_t* numbers, int64_t count, int64_t* starts) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        if (i == 0 || numbers[i] != numbers[i - 1]) starts[numbers[i] - 1] = i;
        if (i == count - 1) starts[numbers[i]] = count;
    }
}

// indptr[first + 1 .. last] of C, `before` elements of which stand before these rows. Sorting leaves each row's products where
// they were: row r's end at row_ends[r] - begin + carried.
extern "C" __global__ void product_pointers(const int64_t* row_ends, int64_t first, int64_t last, int64_t begin, int64_t carried,
                                            const int64_t* numbers, int64_t before, int64_t* indptr) {
    for (int64_t r = first + 1 + thread_index(); r <= last; r += thread_count()) {
        const int64_t end = row_ends[r] - begin + carried;
        indptr[r] = before + (end > 0 ? numbers[end - 1] : 0);
    }
}

// Column and sum of each key's products. One thread a sum, one warp where there are many products; the additions run one after
// the other, in order.
extern "C" __global__ void sum_segments(KEYS_PARAMETERS, const int64_t* order, const void* products, const int64_t* starts,
                                        int64_t segments, int64_t num_columns, Index* columns, void* sums) {
    constexpr int64_t kLongSegment = 64;
    const Keys keys = KEYS;
    const Value* values = static_cast<const Value*>(products);
    for (int64_t base = warp_index() * kWarp; base < segments; base += warp_count() * kWarp) {
        const int64_t s = base + lane_index();
        const bool in_range = s < segments;
        const int64_t start = in_range ? starts[s] : 0, end = in_range ? starts[s + 1] : 0;
        const bool is_long = end - start > kLongSegment;
        Value sum = Value(0);
        if (in_range && !is_long) {
            sum = values[order[start]];
#pragma unroll 4
            for (int64_t i = start + 1; i < end; ++i) sum = sum + values[order[i]];
        }
        for (unsigned rest = __ballot_sync(kAllLanes, is_long); rest != 0; rest &= rest - 1) {
            const int from = __ffs(rest) - 1;
            const int64_t its_start = __shfl_sync(kAllLanes, start, from), its_end = __shfl_sync(kAllLanes, end, from);
            Value its_sum = values[order[its_start]];
            for (int64_t first = its_start + 1; first < its_end; first += kWarp) {
                const int64_t i = first + lane_index();
                const Value mine = i < its_end ? values[order[i]] : Value(0);
                const int lanes = its_end - first < kWarp ? static_cast<int>(its_end - first) : kWarp;
                for (int lane = 0; lane < lanes; ++lane) its_sum = its_sum + __shfl_sync(kAllLanes, mine, lane);
            }
            if (lane_index() == from) sum = its_sum;
        }
        if (in_range) {
            columns[s] = static_cast<Index>(keys.column(order[start], num_columns));
            static_cast<Value*>(sums)[s] = sum;
        }
    }
}
