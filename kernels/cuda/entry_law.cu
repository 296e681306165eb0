// The entry law: draws of frontier rows by their totals, then of an entry of the row, without merging columns (docs/law.md,
// section 3); and row totals and entries that leave out chosen columns.
#include "distinct_draws.h"
#include "entry_tiles.h"

using namespace spsample;

// --- which entries count ----------------------------------------------------------------------------------------------------

// Number of entries of each selected row: 0 where its numerator q is 0, or its batch is not `active`; either may be null.
extern "C" __global__ void count_entries(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, const uint64_t* numerators,
                                         const int64_t* active, int64_t* lengths) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    for (int64_t r = thread_index(); r < Q.num_rows; r += thread_count()) {
        const bool counts = (!numerators || numerators[r] != 0) && (!active || active[Q.batch_of(r)] != 0);
        lengths[r] = counts ? A.degree(Q.vertices[r]) : 0;
    }
}

// Sets of columns, one for each batch, as hash tables: batch i has slots ptr[i] .. ptr[i + 1] - 1, a power of two of them and
// more than columns; -1 where empty.
struct ExcludedColumns {
    const int64_t* ptr;
    int64_t* keys;

    __device__ HashMap<int64_t, int64_t> of(int64_t batch) const {
        return {keys + ptr[batch], nullptr, ptr[batch + 1] - ptr[batch]};
    }
};

// Puts the columns of each batch into its set (-1 everywhere before): indptr[i + 1] - indptr[i] of them from begins[i] on.
extern "C" __global__ void exclude_columns(int64_t batches, const int64_t* indptr, const int64_t* begins, const Index* columns,
                                           const int64_t* set_ptr, int64_t* set_keys) {
    const ExcludedColumns excluded = {set_ptr, set_keys};
    for (int64_t i = thread_index(); i < indptr[batches]; i += thread_count()) {
        const int64_t batch = part_of(indptr, batches, i), column = columns[begins[batch] + i - indptr[batch]];
        const HashMap<int64_t, int64_t> set = excluded.of(batch);
        for (int64_t slot = set.home(column);; slot = (slot + 1) & (set.capacity - 1)) {
            const int64_t found = static_cast<int64_t>(
                atomic_cas(reinterpret_cast<uint64_t*>(set.keys + slot), ~uint64_t(0), static_cast<uint64_t>(column)));
            if (found == -1 || found == column) break;
        }
    }
}

// Which of the stacked rows' entries are left: word w has a bit for each of the entries 32 w .. 32 w + 31, and ranks[w] counts
// those left up to the word's end. ends (rows + 1): where each row's entries begin.
struct LeftEntries {
    const int64_t* ends;
    const uint32_t* masks;
    const uint64_t* ranks;

    // Number of entries left before this one.
    __device__ uint64_t before(int64_t entry) const {
        const int64_t word = entry >> 5;
        const uint32_t below = (1u << (entry & 31)) - 1;
        return (word > 0 ? ranks[word - 1] : 0) + (below != 0 ? __popc(masks[word] & below) : 0);
    }

    // Number of entries left in a row.
    __device__ uint64_t count(int64_t row) const { return before(ends[row + 1]) - before(ends[row]); }

    // Offset in a row of its entry `number` among those left; number < count(row). O(log entries of the row).
    __device__ int64_t offset(int64_t row, uint64_t number) const {
        const int64_t begin = ends[row], first = begin >> 5, last = (ends[row + 1] - 1) >> 5;
        const uint64_t target = before(begin) + number;
        const int64_t word = first + upper_bound(ranks + first, last - first, target);
        uint32_t mask = masks[word];
        for (uint64_t skip = target - (word > 0 ? ranks[word - 1] : 0); skip > 0; --skip) mask &= mask - 1;
        return word * 32 + __ffs(static_cast<int>(mask)) - 1 - begin;
    }
};

#define SPSAMPLE_LEFT_PARAMETERS const int64_t *ends, const uint32_t *left_masks, const uint64_t *left_ranks
#define SPSAMPLE_LEFT \
    LeftEntries { ends, left_masks, left_ranks }

// A bit for each entry whose column is not in its batch's set, and how many there are in each word. One warp a word, by tiles.
extern "C" __global__ void mark_left(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, const int64_t* ends,
                                     const int64_t* set_ptr, int64_t* set_keys, uint32_t* masks, uint32_t* counts) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const ExcludedColumns excluded = {set_ptr, set_keys};
    const int64_t last = ends[Q.num_rows];
    for (int64_t begin = warp_index() * kTileEntries; begin < last; begin += warp_count() * kTileEntries) {
        const StackedTile tile(ends, Q, begin, last);
        for (int64_t first = tile.begin; first < tile.end; first += kWarp) {
            const int64_t entry = first + lane_index();
            bool left = false;
            if (entry < tile.end) {
                const int64_t r = tile.row_of(entry);
                left = !excluded.of(tile.batch_of(r)).contains(A.columns(Q.vertices[r])[entry - ends[r]]);
            }
            const unsigned mask = __ballot_sync(kAllLanes, left);
            if (lane_index() == 0) {
                masks[first >> 5] = mask;
                counts[first >> 5] = static_cast<uint32_t>(__popc(mask));
            }
        }
    }
}

// totals[r]: number of entries left in row r.
extern "C" __global__ void count_left(SPSAMPLE_LEFT_PARAMETERS, int64_t rows, int64_t* totals) {
    const LeftEntries left = SPSAMPLE_LEFT;
    for (int64_t r = thread_index(); r < rows; r += thread_count()) totals[r] = static_cast<int64_t>(left.count(r));
}

// columns[j]: that of entry number offsets[j] of the stacked row rows[j], among those left, or all where left_masks is null.
extern "C" __global__ void locate(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_LEFT_PARAMETERS, int64_t count,
                                  const int64_t* rows, const int64_t* offsets, Index* columns) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const LeftEntries left = SPSAMPLE_LEFT;
    for (int64_t j = thread_index(); j < count; j += thread_count()) {
        const int64_t offset = left_masks ? left.offset(rows[j], static_cast<uint64_t>(offsets[j])) : offsets[j];
        columns[j] = A.columns(Q.vertices[rows[j]])[offset];
    }
}

// --- draws ------------------------------------------------------------------------------------------------------------------

// totals[r] = q times the number of entries of row r that count, q = 1 where numerators is null. Without left_masks all of the
// row's entries ends[r] .. ends[r + 1] - 1 count.
extern "C" __global__ void weigh_rows(SPSAMPLE_LEFT_PARAMETERS, int64_t rows, const uint64_t* numerators, uint64_t* totals) {
    const LeftEntries left = SPSAMPLE_LEFT;
    for (int64_t r = thread_index(); r < rows; r += thread_count()) {
        const uint64_t count = left_masks ? left.count(r) : static_cast<uint64_t>(ends[r + 1] - ends[r]);
        totals[r] = numerators ? numerators[r] * count : count;
    }
}

// Before the first round, one block a batch: T, the number of entries, and where the distinct columns of positive numerator are
// at most `size`, all of them, ascending. Reads entries until there are more. prefix (rows): inclusive sums of the rows'
// totals, which wrap.
extern "C" __global__ void begin_entries(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, int64_t size, int64_t replace,
                                         const int64_t* ends, const uint64_t* prefix, SPSAMPLE_TABLE_PARAMETERS,
                                         const int64_t* room_ptr, int64_t* outcomes, int64_t* state_words) {
    __shared__ int64_t shared_keys[kSharedSlots];
    __shared__ uint32_t shared_numbers[kSharedSlots];
    const OutcomeTable table = SPSAMPLE_TABLE;
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const DrawState state = {state_words, Q.num_batches};
    for (int64_t batch = blockIdx.x; batch < Q.num_batches; batch += gridDim.x) {
        const int64_t begin = Q.batch_ptr[batch], end = Q.batch_ptr[batch + 1], first = ends[begin], last = ends[end];
        Drawn found = {table, outcomes + room_ptr[batch], nullptr, size, 0};
        if (replace == 0) {
            table.clear();
            for (int64_t chunk = first; chunk < last && found.count <= size; chunk += blockDim.x) {
                const int64_t entry = chunk + threadIdx.x;
                int64_t column = 0;
                if (entry < last) {
                    const int64_t r = begin + part_of(ends + begin, end - begin, entry);
                    column = A.columns(Q.vertices[r])[entry - ends[r]];
                }
                found.add(entry < last, column);
            }
        }
        const bool whole = replace == 0 && found.count <= size;
        if (whole) block_sort(found.outcomes, found.count);
        if (threadIdx.x == 0) {
            state.found(batch) = whole ? found.count : 0;
            state.total(batch) = sum_between(prefix, begin, end);
            state.whole(batch) = whole;
            state.entries(batch) = last - first;
        }
        __syncthreads();
    }
}

// The frontier of one batch: rows begin .. begin + count - 1 of the stacked ones.
struct FindColumn {
    const Rows& A;
    const Selector& Q;
    const LeftEntries& left;
    const uint64_t* numerators;
    const uint64_t* prefix;
    int64_t begin, count;
    uint64_t base;

    __device__ int64_t operator()(uint64_t x) const {
        const int64_t i = upper_bound_above(prefix + begin, count, base, x), r = begin + i;
        const uint64_t y = x - (i > 0 ? prefix[r - 1] - base : 0);
        const uint64_t number = numerators ? y / numerators[r] : y;
        const int64_t offset = left.masks ? left.offset(r, number) : static_cast<int64_t>(number);
        return A.columns(Q.vertices[r])[offset];
    }
};

// One round of draws, one block a batch, for the batches that have neither taken the whole support nor drawn `size` columns:
// draws round * kRoundDraws size and on, or all `size` draws with replacement. prefix (rows): inclusive sums of the rows' totals in this
// round, which wrap; left: which entries count in it. Later rounds go on from what is in `outcomes`, found(batch) columns of each
// batch.
extern "C" __global__ void draw_round(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_DRAW_PARAMETERS,
                                      SPSAMPLE_LEFT_PARAMETERS, const uint64_t* numerators, const uint64_t* prefix, int64_t round,
                                      SPSAMPLE_TABLE_PARAMETERS, const int64_t* room_ptr, int64_t* outcomes, int64_t* counts,
                                      int64_t* state_words) {
    __shared__ int64_t shared_keys[kSharedSlots];
    __shared__ uint32_t shared_numbers[kSharedSlots];
    const OutcomeTable table = SPSAMPLE_TABLE;
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const DrawArguments how = SPSAMPLE_DRAW;
    const LeftEntries left = SPSAMPLE_LEFT;
    const DrawState state = {state_words, Q.num_batches};
    for (int64_t batch = blockIdx.x; batch < Q.num_batches; batch += gridDim.x) {
        const int64_t known = state.found(batch);
        const uint64_t total = state.total(batch);
        if (state.whole(batch) != 0 || total == 0 || known >= how.size) continue;
        DrawStream draws(how.key, 0, how.hop, Q.batch_ids[batch], total);
        const int64_t length = how.replace ? how.size : kRoundDraws * how.size, first = round * length;
        if (round > 0 && first + length > draws.count()) {
            if (threadIdx.x == 0) state.refuse(kNoDrawNumbers);
            continue;
        }
        const int64_t begin = Q.batch_ptr[batch], end = Q.batch_ptr[batch + 1];
        const FindColumn find = {A, Q, left, numerators, prefix, begin, end - begin, begin > 0 ? prefix[begin - 1] : 0};
        Drawn drawn = {table, outcomes + room_ptr[batch], counts ? counts + room_ptr[batch] : nullptr, how.size, known};
        table.clear();
        drawn.restore();
        draw_chunks(find, draws, sum_between(prefix, begin, end), first, first + length, !how.replace, drawn);
        if (threadIdx.x == 0) state.found(batch) = drawn.count < how.size ? drawn.count : how.size;
        __syncthreads();
    }
}
