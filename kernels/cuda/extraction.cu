// EXTRACT of layer-wise samples: the entries of selected rows whose columns are in their batch's src (docs/law.md, section 4).
//
// One pass over the entries of all selected rows marks those that are kept, one bit each: a filter in shared memory lets few others
// pass, and these are looked up 32 at a time. Sums over the bits say where each kept entry and each row begins in the result; a second
// pass writes the kept ones, reading the bits and their entries only. Scratch: 1 bit for each entry of the frontier, and 16 bytes for
// each 1024.
#include "extraction_frontier.h"
#include "extraction_sources.h"

using namespace spsample;

// Fills the sets: one thread a src column. O(src) expected.
extern "C" __global__ void insert_sources(SPSAMPLE_SOURCES_PARAMETERS, int64_t batches, const Index* src) {
    const Sources sources = SPSAMPLE_SOURCES;
    for (int64_t i = thread_index(); i < src_ptr[batches]; i += thread_count()) {
        const int64_t batch = part_of(src_ptr, batches, i);
        sources.insert(batch, src[i], static_cast<uint32_t>(i - src_ptr[batch]));
    }
}

constexpr int kTested = 4;  // columns that a lane tests before those that passed are looked up

// An entry that the filter let pass; `number` counts from its span's first.
struct alignas(2 * sizeof(Index)) Candidate {
    Index column;
    int32_t number;
};

// What a warp holds in shared memory while it marks a span.
struct SpanMemory {
    Candidate candidates[kWarp - 1 + kTested * kWarp];
    uint32_t marks[kSpanWords];
};

// The entries of a span that the filter let pass. They are looked up by whole warps, which few of 32 consecutive entries would not fill.
struct Candidates {
    SpanMemory& memory;
    int count;

    __device__ void add(bool passes, const Candidate& candidate) {
        const unsigned passing = __ballot_sync(kAllLanes, passes);
        if (passes) memory.candidates[count + __popc(passing & lanes_below())] = candidate;
        count += __popc(passing);
    }

    // Looks up `number` of them (at most 32), marks the members, and lets all go.
    __device__ void look_up(const SourceTable& table, int number) {
        __syncwarp();
        count -= number;
        const bool mine = lane_index() < number;
        const Candidate candidate = mine ? memory.candidates[count + lane_index()] : Candidate{0, 0};
        __syncwarp();
        if (!mine || table.find(candidate.column) < 0) return;
        atomicOr(memory.marks + candidate.number / kWarp, 1u << (candidate.number % kWarp));
    }
};

// Marks the members among a warp's span of entries in memory.marks.
__device__ inline void mark_span(ColumnReader& reader, const KeyFilter& filter, const SourceTable& table, SpanMemory& memory) {
    constexpr int kSteps = ColumnReader::kSteps;
    Candidates candidates = {memory, 0};
    for (int word = 0; word < kSpanWords; word += kWarp) memory.marks[word + lane_index()] = 0;
    for (int first = lane_index(); first < reader.length + lane_index(); first += kSteps * kWarp) {
        Index columns[kSteps];
        reader.read(first, columns);
#pragma unroll
        for (int tested = 0; tested < kSteps; tested += kTested) {
            uint32_t passes[kTested];
#pragma unroll
            for (int i = 0; i < kTested; ++i) passes[i] = filter.test(static_cast<uint64_t>(columns[tested + i]));
#pragma unroll
            for (int i = 0; i < kTested; ++i) {
                const int number = first + (tested + i) * kWarp;
                candidates.add(passes[i] != 0 && number < reader.length, {columns[tested + i], number});
            }
            while (candidates.count >= kWarp) candidates.look_up(table, kWarp);
        }
    }
    candidates.look_up(table, candidates.count);
    __syncwarp();
}

// Marks the kept entries. bits: a word for each lane and unit; counts: kept ones of each unit. One block a tile.
extern "C" __global__ void mark_members(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_SOURCES_PARAMETERS,
                                        SPSAMPLE_FRONTIER_PARAMETERS, uint32_t* bits, int64_t* counts) {
    __shared__ uint32_t filter_copy[kMostFilterWords];
    __shared__ SpanMemory memories[kTileWarps];
    __shared__ SourceTable table;
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const Sources sources = SPSAMPLE_SOURCES;
    const Frontier frontier = SPSAMPLE_FRONTIER;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    for (int64_t tile = blockIdx.x; tile < tile_ptr[Q.num_batches]; tile += gridDim.x) {
        const int64_t batch = part_of(tile_ptr, Q.num_batches, tile);
        const KeyFilter filter = sources.filter(batch);
        __syncthreads();
        for (int word = threadIdx.x; word < sources.filter_size(); word += blockDim.x) filter_copy[word] = filter.words[word];
        if (threadIdx.x == 0) table = sources.table(batch);
        __syncthreads();
        const int64_t unit = unit_ptr[batch] + (tile - tile_ptr[batch]) * kTileUnits + warp * kSpanUnits;
        if (unit >= unit_ptr[batch + 1]) continue;
        ColumnReader reader(A, Q, frontier, batch, unit);
        SpanMemory& memory = memories[warp];
        mark_span(reader, {filter_copy, sources.filter_shift}, table, memory);
        for (int i = 0; i < kSpanUnits && i * kUnit < reader.length; ++i) {
            const uint32_t mine = memory.marks[i * kWarp + lane_index()];
            const uint32_t kept = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(__popc(mine)));
            bits[(unit + i) * kWarp + lane_index()] = mine;
            if (lane_index() == 0) counts[unit + i] = kept;
        }
    }
}

// kept_ends (rows + 1): where each row's kept entries begin, from the inclusive sums of the units' counts. One thread a row.
extern "C" __global__ void count_kept(const int64_t* batch_ptr, int64_t batches, SPSAMPLE_FRONTIER_PARAMETERS, const uint32_t* bits,
                                      const int64_t* unit_ends, int64_t* kept_ends) {
    const int64_t rows = batch_ptr[batches];
    for (int64_t r = thread_index(); r <= rows; r += thread_count()) {
        const int64_t batch = r < rows ? part_of(batch_ptr, batches, r) : batches;
        const int64_t entry = frontier_ends[r] - frontier_ends[batch_ptr[batch]];  // of the batch
        const int64_t unit = unit_ptr[batch] + entry / kUnit;
        const int within = static_cast<int>(entry % kUnit);
        const uint32_t* words = bits + unit * kWarp;
        int64_t kept = unit > 0 ? unit_ends[unit - 1] : 0;
        for (int w = 0; w < within / kWarp; ++w) kept += __popc(words[w]);
        if (within % kWarp != 0) kept += __popc(words[within / kWarp] & ((1u << (within % kWarp)) - 1));
        kept_ends[r] = kept;
    }
}

// The place of the n-th (from 0) of the bits that are set.
__device__ inline int nth_bit(uint32_t bits, int n) {
    int place = 0;
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) {
        const int below = __popc(bits & ((1u << half) - 1));
        if (n < below) continue;
        n -= below;
        bits >>= half;
        place += half;
    }
    return place;
}

// The kept entries of a unit, by the word of its bits that each lane holds. All lanes call `entry` together.
struct KeptEntries {
    uint32_t bits;
    uint32_t before;  // kept ones of the words of the lanes below

    __device__ explicit KeptEntries(uint32_t bits) : bits(bits), before(sum_below(static_cast<uint32_t>(__popc(bits)))) {}

    // The `number`-th (from 0) of them; any entry where there are fewer.
    __device__ int entry(int number) const {
        int word = 0;  // that holds it
#pragma unroll
        for (int half = kWarp / 2; half > 0; half /= 2) {
            if (static_cast<int>(__shfl_sync(kAllLanes, before, word + half)) <= number) word += half;
        }
        const uint32_t of_word = __shfl_sync(kAllLanes, bits, word);
        const int within = number - static_cast<int>(__shfl_sync(kAllLanes, before, word));
        return word * kWarp + nth_bit(of_word, within);
    }
};

// Writes the kept entries: local columns, and positions in A where `positions` is not null. One warp a unit, one lane an entry.
extern "C" __global__ void write_members(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_SOURCES_PARAMETERS,
                                         SPSAMPLE_FRONTIER_PARAMETERS, const uint32_t* bits, const int64_t* unit_ends, Index* local,
                                         int64_t* positions) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const Sources sources = SPSAMPLE_SOURCES;
    const Frontier frontier = SPSAMPLE_FRONTIER;
    const int64_t units = unit_ptr[Q.num_batches];
    for (int64_t unit = warp_index(); unit < units; unit += warp_count()) {
        const int64_t before = unit > 0 ? unit_ends[unit - 1] : 0;
        const int kept = static_cast<int>(unit_ends[unit] - before);
        if (kept == 0) continue;
        const KeptEntries entries(bits[unit * kWarp + lane_index()]);
        const int64_t batch = warp_part_of(unit_ptr, Q.num_batches, unit);
        const int64_t first_row = Q.batch_ptr[batch], rows_end = Q.batch_ptr[batch + 1];
        const int64_t begin = frontier.begin(batch, first_row, unit);
        const SourceTable table = sources.table(batch);
        int64_t r = first_row + warp_part_of(frontier_ends + first_row, rows_end - first_row, begin);
        for (int first = 0; first < kept; first += kWarp) {
            const int number = first + lane_index();
            const int64_t x = begin + entries.entry(number);
            if (number >= kept) continue;
            r += near_part_of(frontier_ends + r, rows_end - r, x);
            const int64_t row = Q.vertices[r], entry = x - frontier_ends[r];
            local[before + number] = static_cast<Index>(table.places[table.find(A.columns(row)[entry])]);
            if (positions) positions[before + number] = A.begin(row) + entry;
        }
    }
}
