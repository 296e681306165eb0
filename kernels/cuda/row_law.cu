// The uniform row law and whole rows (docs/law.md, section 3).
#include "chunks.h"
#include "spsample/row_law.h"

using namespace spsample;

// Number of entries drawn from each selected row; size < 0: the whole row.
extern "C" __global__ void row_lengths(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, int64_t size, int64_t replace,
                                       int64_t* lengths) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    for (int64_t r = thread_index(); r < Q.num_rows; r += thread_count()) {
        const int64_t degree = A.degree(Q.vertices[r]);
        lengths[r] = size < 0 ? degree : drawn_count(degree, size, replace != 0);
    }
}

// Floyd's algorithm for up to 32 draws of a row at once, one lane a draw. A draw's position is its integer t unless t is among the
// positions before it, and then last = degree - size + draw. The positions before draw j are t_0 .. t_(j-1) and the last_i of the draws
// i < j that gave way, so t_j gives way where a draw before it has the same t, or where t_j = last_i of an i < j that gave way.
//   first          number of the first of these draws, which is lane `lane_of_first`'s; this lane's is first + within
//   repeats        whether t is the position of a draw before `first`
//   draws          whether this lane has a draw
//   tag            tells the rows of one warp apart (below 32); degrees are below 2^58
// All lanes of the warp call it together.
__device__ inline bool floyd_gives_way(int64_t t, int64_t degree_less_size, int64_t first, int lane_of_first, int within, bool repeats,
                                       bool draws, uint64_t tag) {
    const uint64_t outcome = draws ? (tag << 58 | static_cast<uint64_t>(t)) : (uint64_t(1) << 63 | static_cast<uint64_t>(lane_index()));
    const unsigned same = __match_any_sync(kAllLanes, outcome);
    bool gives_way = draws && (repeats || (same & lanes_below()) != 0);
    const int64_t draw_of_last = t - degree_less_size - first;  // counted from `first`
    const bool depends = draws && draw_of_last >= 0 && draw_of_last < within;
    unsigned mask = __ballot_sync(kAllLanes, gives_way);
    while (true) {
        if (depends && ((mask >> (lane_of_first + static_cast<int>(draw_of_last))) & 1) != 0) gives_way = true;
        const unsigned next = __ballot_sync(kAllLanes, gives_way);
        if (next == mask) return gives_way;
        mask = next;
    }
}

// What a lane has read of a row that it looks after, for the lanes that draw from it.
struct RowToDraw {
    Index row;
    uint32_t batch_id;
    int64_t degree;
    uint64_t columns;  // address
    int64_t out;       // where its draws begin

    __device__ RowToDraw(const Rows& A, const Selector& Q, const int64_t* ends, int64_t r, bool is_there)
        : row(0), batch_id(0), degree(0), columns(0), out(0) {
        if (!is_there) return;
        row = Q.vertices[r];
        out = ends[r];
        batch_id = static_cast<uint32_t>(Q.batch_ids[Q.batch_of(r)]);
        degree = A.degree(row);
        columns = reinterpret_cast<uint64_t>(A.columns(row));
    }
};

// Draws `size` <= `width` entries of every selected row. `width` lanes a row: 1, 2, 4, 8, 16 or 32. A warp reads where the next `turn`
// rows are, one a lane, and then draws from as many at a time as there are lanes: turn is a multiple of 32 / width, at most 32.
// order: as of row_at; positions may be null.
extern "C" __global__ void __launch_bounds__(256, 5)
    sample_uniform_narrow(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_DRAW_PARAMETERS, int64_t width, int64_t turn,
                          const int64_t* order, const int64_t* ends, Index* columns, int64_t* positions) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const DrawArguments how = SPSAMPLE_DRAW;
    const int within = lane_index() & static_cast<int>(width - 1), lane_of_first = lane_index() - within;
    const int width_bits = __popc(static_cast<unsigned>(width) - 1);
    const int together = kWarp >> width_bits;        // rows that are drawn from at a time
    const int number = lane_of_first >> width_bits;  // of this lane's among these
    for (int64_t base = warp_index() * turn; base < Q.num_rows; base += warp_count() * turn) {
        const int count = static_cast<int>(turn < Q.num_rows - base ? turn : Q.num_rows - base);
        const bool is_there = lane_index() < count;
        const RowToDraw mine(A, Q, ends, is_there ? row_at(order, base + lane_index()) : 0, is_there);
        for (int first = 0; first < count; first += together) {
            const int from = first + number;
            const Index row = __shfl_sync(kAllLanes, mine.row, from);
            const int64_t degree = __shfl_sync(kAllLanes, mine.degree, from);
            const uint32_t batch_id = __shfl_sync(kAllLanes, mine.batch_id, from);
            const bool has_entry = within < drawn_count(degree, how.size, how.replace);
            const bool draws = has_entry && (how.replace || degree > how.size);
            const int64_t last = degree - how.size + within;
            int64_t position = within;
            if (draws) {
                const DrawStream stream(how.key, A.vertex(row), how.hop, batch_id, degree);
                position = static_cast<int64_t>(stream.one_below(within, how.replace ? degree : last + 1));
            }
            if (!how.replace) {
                const uint64_t tag = static_cast<uint64_t>(number);
                if (floyd_gives_way(position, degree - how.size, 0, lane_of_first, within, false, draws, tag)) position = last;
            }
            const uint64_t of_row = __shfl_sync(kAllLanes, mine.columns, from);
            const int64_t out = __shfl_sync(kAllLanes, mine.out, from) + within;
            if (!has_entry) continue;
            columns[out] = __ldg(reinterpret_cast<const Index*>(of_row) + position);
            if (positions) positions[out] = A.begin(row) + position;
        }
    }
}

// The set of positions drawn so far from one row, for lanes that insert distinct ones together. keys: `capacity` elements, a power of
// two, at least twice as many as positions; empty where -1.
struct PositionSet {
    int64_t* keys;
    int64_t capacity;

    __device__ int64_t home(int64_t key) const {
        return static_cast<int64_t>(((static_cast<uint64_t>(key) * uint64_t(0x9E3779B97F4A7C15)) >> 24) & static_cast<uint64_t>(capacity - 1));
    }
    __device__ bool contains(int64_t key) const {
        for (int64_t slot = home(key);; slot = (slot + 1) & (capacity - 1)) {
            const int64_t found = load_relaxed(keys + slot);
            if (found == key) return true;
            if (found == -1) return false;
        }
    }
    __device__ void insert(int64_t key) const {
        for (int64_t slot = home(key);; slot = (slot + 1) & (capacity - 1)) {
            const uint64_t old = atomic_cas(reinterpret_cast<uint64_t*>(keys + slot), ~uint64_t(0), static_cast<uint64_t>(key));
            if (old == ~uint64_t(0)) return;
        }
    }
};

// The same for any size: one warp a row, 32 draws at a time. scratch: `capacity` elements for each warp of the grid.
extern "C" __global__ void sample_uniform_wide(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_DRAW_PARAMETERS,
                                               int64_t* scratch, int64_t capacity, const int64_t* order, const int64_t* ends,
                                               Index* columns, int64_t* positions) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const DrawArguments how = SPSAMPLE_DRAW;
    const PositionSet seen = {scratch + warp_index() * capacity, capacity};
    for (int64_t turn = warp_index(); turn < Q.num_rows; turn += warp_count()) {
        const int64_t r = row_at(order, turn), row = Q.vertices[r], degree = A.degree(row), length = drawn_count(degree, how.size, how.replace);
        const bool floyd = !how.replace && degree > how.size;
        if (floyd) {
            for (int64_t slot = lane_index(); slot < capacity; slot += kWarp) seen.keys[slot] = -1;
            __syncwarp();
        }
        DrawStream draws(how.key, A.vertex(row), how.hop, Q.batch_ids[Q.batch_of(r)], degree);
        for (int64_t first = 0; first < length; first += kWarp) {
            const int64_t draw = first + lane_index();
            const bool has_entry = draw < length;
            int64_t position = draw;
            if (has_entry && (floyd || how.replace)) {
                position = static_cast<int64_t>(draws.below(draw, how.replace ? degree : degree - how.size + draw + 1));
            }
            if (floyd) {
                const bool repeats = has_entry && seen.contains(position);
                if (floyd_gives_way(position, degree - how.size, first, 0, lane_index(), repeats, has_entry, 0)) {
                    position = degree - how.size + draw;
                }
                if (has_entry) seen.insert(position);
                __syncwarp();
            }
            if (has_entry) {
                const int64_t out = ends[r] + draw;
                columns[out] = A.columns(row)[position];
                if (positions) positions[out] = A.begin(row) + position;
            }
        }
        __syncwarp();
    }
}

// Whole rows: one warp a chunk of entries. ends (rows + 1) as of stack_pointers.
extern "C" __global__ void take_rows(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, const int64_t* ends, Index* columns,
                                     int64_t* positions) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    for_each_item(ends, Q.num_rows, [&](int64_t r, int64_t out) {
        const int64_t row = Q.vertices[r], entry = out - ends[r];
        columns[out] = A.columns(row)[entry];
        if (positions) positions[out] = A.begin(row) + entry;
    });
}
