// The column law: distinct columns for each batch by inverse transform sampling over prefix sums (docs/law.md, section 3).
#include "distinct_draws.h"

using namespace spsample;

// Slices of [0, total) of 2^shift units: the smallest shift that makes at most max(count, 1) of them.
__device__ inline int slice_shift(uint64_t total, int64_t count) {
    const uint64_t limit = count > 1 ? static_cast<uint64_t>(count) : 1;
    int shift = 0;
    while (total > 0 && (total - 1) >> shift >= limit) ++shift;
    return shift;
}

__device__ inline int64_t slice_count(uint64_t total, int shift) {
    return total > 0 ? static_cast<int64_t>((total - 1) >> shift) + 1 : 0;
}

// One batch's row: `count` inclusive prefix sums that begin at `base`. guide: the row's guide table, or null; Index is its type.
struct ColumnRow {
    const uint64_t* inclusive;
    int64_t count;
    uint64_t base;
    const Index* guide;
    int shift;

    __device__ uint64_t total() const { return count > 0 ? inclusive[count - 1] - base : 0; }
    __device__ uint64_t before(int64_t position) const { return position > 0 ? inclusive[position - 1] - base : 0; }
    __device__ uint64_t numerator(int64_t position) const { return inclusive[position] - base - before(position); }

    __device__ int64_t position_of(uint64_t x) const {
        if (!guide) return upper_bound_above(inclusive, count, base, x);
        const Index* slice = guide + (x >> shift);
        const int64_t first = slice[0];
        return first + upper_bound_above(inclusive + first, slice[1] - first, base, x);
    }
};

// Whether the row has at most `size` positions of positive numerator. Reads it until there are more.
__device__ inline bool block_support_within(const ColumnRow& row, int64_t size) {
    int64_t support = 0;
    for (int64_t first = 0; row.count > size && first < row.count && support <= size; first += blockDim.x) {
        const int64_t position = first + threadIdx.x;
        int64_t more = 0;
        block_rank(position < row.count && row.numerator(position) > 0, &more);
        support += more;
    }
    return support <= size;
}

// All positions of positive numerator, ascending, into `outcomes`. Returns how many.
__device__ inline int64_t block_support(const ColumnRow& row, int64_t* outcomes) {
    int64_t support = 0;
    for (int64_t first = 0; first < row.count; first += blockDim.x) {
        const int64_t position = first + threadIdx.x;
        const bool positive = position < row.count && row.numerator(position) > 0;
        int64_t more = 0;
        const int64_t number = support + block_rank(positive, &more);
        if (positive) outcomes[number] = position;
        support += more;
    }
    return support;
}

// TakenOut::rebuild by a block, from the `count` positions in `outcomes`.
__device__ inline void block_rebuild(TakenOut& taken, const ColumnRow& row, const int64_t* outcomes, int64_t count) {
    taken.count = count;
    for (int64_t j = threadIdx.x; j < count; j += blockDim.x) taken.positions[j] = outcomes[j];
    block_sort(taken.positions, count);
    uint64_t sum = 0;
    for (int64_t first = 0; first < count; first += blockDim.x) {
        const int64_t j = first + threadIdx.x;
        const uint64_t numerator = j < count ? row.numerator(taken.positions[j]) : 0;
        uint64_t more = 0;
        const uint64_t before = sum + block_before(numerator, &more);
        if (j < count) {
            taken.start[j] = row.before(taken.positions[j]) - before;
            taken.removed[j] = before + numerator;
        }
        sum += more;
    }
    __syncthreads();
}

struct FindPosition {
    const ColumnRow& row;
    const TakenOut& taken;

    __device__ int64_t operator()(uint64_t x) const { return row.position_of(taken.shift(x)); }
};

// The first `size` distinct positions: rounds of 4 size draws. False where a round would pass the last draw number.
__device__ inline bool block_distinct(const ColumnRow& row, DrawStream& draws, TakenOut& taken, Drawn& drawn) {
    const int64_t round = kRoundDraws * drawn.size;
    for (int64_t first = 0; drawn.count < drawn.size; first += round) {
        if (first > 0) {
            if (first + round > draws.count()) return false;
            block_rebuild(taken, row, drawn.outcomes, drawn.count);
        }
        draw_chunks(FindPosition{row, taken}, draws, row.total() - taken.total(), first, first + round, true, drawn);
    }
    return true;
}

// Draws for each of `batches` batches, one block a batch, positions within its row.
//   indptr    (batches + 1) where each batch's row of `prefix` begins; prefix: inclusive sums over all rows, which wrap. Null:
//             all batches draw from the one row of all `columns` sums
//   support   null, or how many positive numerators that one row has (more than draw_size stand for any such number)
//   guide     null, or the guide table of that one row, of `guide_size` positions
//   taken     3 * limit elements for each block, for later rounds; limit: of draw_size and the longest row the smaller one
//   room_ptr (batches + 1) where each batch's positions begin in `outcomes` (room for min(draw_size, row)); counts: null without
//             replacement
// Expected time O(size log columns / threads), where few draws repeat.
extern "C" __global__ void draw_positions(SPSAMPLE_DRAW_PARAMETERS, const int64_t* batch_ids, int64_t batches,
                                          const int64_t* indptr, const uint64_t* prefix, int64_t columns, const int64_t* support,
                                          const Index* guide, int64_t guide_size, SPSAMPLE_TABLE_PARAMETERS, uint64_t* taken_out,
                                          int64_t limit, const int64_t* room_ptr, int64_t* outcomes, int64_t* counts,
                                          int64_t* state_words) {
    __shared__ int64_t shared_keys[kSharedSlots];
    __shared__ uint32_t shared_numbers[kSharedSlots];
    const OutcomeTable table = SPSAMPLE_TABLE;
    const DrawArguments how = SPSAMPLE_DRAW;
    const DrawState state = {state_words, batches};
    uint64_t* scratch = taken_out + blockIdx.x * 3 * limit;
    for (int64_t batch = blockIdx.x; batch < batches; batch += gridDim.x) {
        const int64_t begin = indptr ? indptr[batch] : 0, end = indptr ? indptr[batch + 1] : columns;
        ColumnRow row = {prefix + begin, end - begin, begin > 0 ? prefix[begin - 1] : 0, guide, 0};
        const uint64_t total = row.total();
        row.shift = guide ? slice_shift(total, row.count) : 0;
        if (guide && slice_count(total, row.shift) + 1 != guide_size) {
            if (threadIdx.x == 0) state.refuse(kWrongGuide);
            continue;
        }
        bool whole = false;
        if (!how.replace) whole = support ? *support <= how.size : block_support_within(row, how.size);
        Drawn drawn = {table, outcomes + room_ptr[batch], counts ? counts + room_ptr[batch] : nullptr, how.size, 0};
        if (whole) {
            drawn.count = total > 0 ? block_support(row, drawn.outcomes) : 0;
        } else if (total > 0) {
            table.clear();
            DrawStream draws(how.key, 0, how.hop, batch_ids[batch], total);
            TakenOut taken = {reinterpret_cast<int64_t*>(scratch), scratch + limit, scratch + 2 * limit, 0};
            if (how.replace) {
                draw_chunks(FindPosition{row, taken}, draws, total, 0, how.size, false, drawn);
            } else if (!block_distinct(row, draws, taken, drawn)) {
                if (threadIdx.x == 0) state.refuse(kNoDrawNumbers);
            }
        }
        if (threadIdx.x == 0) {
            state.found(batch) = drawn.count < how.size ? drawn.count : how.size;
            state.total(batch) = total;
            state.whole(batch) = whole;
        }
        __syncthreads();
    }
}

// *support (0 before): number of positive numerators of one row of `columns` prefix sums, or any number above `size` where
// there are more. O(columns) reads at most, mostly about as many as there are threads.
extern "C" __global__ void count_support(int64_t columns, const uint64_t* prefix, int64_t size, int64_t* support) {
    for (int64_t first = warp_index() * kWarp; first < columns; first += warp_count() * kWarp) {
        int64_t known = 0;
        if (lane_index() == 0) known = load_relaxed(support);
        if (__shfl_sync(kAllLanes, known, 0) > size) return;
        const int64_t position = first + lane_index();
        const bool positive = position < columns && sum_between(prefix, position, position + 1) > 0;
        const unsigned mask = __ballot_sync(kAllLanes, positive);
        if (lane_index() == 0 && mask != 0) atomic_add(support, static_cast<int64_t>(__popc(mask)));
    }
}

// The guide table of one row of `columns` prefix sums: `size` positions, those of the slices' first units and of the last unit.
extern "C" __global__ void fill_guide(int64_t columns, const uint64_t* prefix, int64_t size, Index* guide) {
    const uint64_t total = columns > 0 ? prefix[columns - 1] : 0;
    const int shift = slice_shift(total, columns);
    for (int64_t slice = thread_index(); slice < size; slice += thread_count()) {
        const uint64_t unit = slice < size - 1 ? static_cast<uint64_t>(slice) << shift : total - 1;
        guide[slice] = static_cast<Index>(total > 0 ? upper_bound(prefix, columns, unit) : 0);
    }
}

// Closes the gaps between the batches' outcomes: batch i has indptr[i + 1] - indptr[i] of them from room_ptr[i] on. Writes
// them to `out`, and how often each was drawn to out_counts: 1 where counts is null. names: null, or what outcome o of batch i
// stands for: names[names_ptr[i] + o].
extern "C" __global__ void close_up(int64_t batches, const int64_t* indptr, const int64_t* room_ptr, const int64_t* outcomes,
                                    const int64_t* counts, const int64_t* names_ptr, const Index* names, Index* out,
                                    int64_t* out_counts) {
    for (int64_t i = thread_index(); i < indptr[batches]; i += thread_count()) {
        const int64_t batch = part_of(indptr, batches, i), from = room_ptr[batch] + i - indptr[batch], outcome = outcomes[from];
        out[i] = names ? names[names_ptr[batch] + outcome] : static_cast<Index>(outcome);
        out_counts[i] = counts ? counts[from] : 1;
    }
}
