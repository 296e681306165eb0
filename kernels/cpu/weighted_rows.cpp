// The row law over stacked rows, weighted: sample_rows_weighted (docs/law.md, section 3).
//
// To draw from a row by weight takes the prefix sums of its numerators, which cost O(entries of the row); the draws themselves cost
// little. So A is visited range by range, and a range's rows are made ready (weight_tree.h) once for all batches that draw from them:
//   1. the stacked rows are put into runs, one batch each, in ascending order of vertex: as they come where they ascend, else sorted;
//   2. rows are laid out in the result as if long rows had no weight of 0; where that is found to be wrong, positive weights are counted;
//   3. threads take parts of A. A part is visited in ranges whose trees fit the second-level cache. In each range the rows that a run
//      asks for are marked, made ready in order, and drawn run by run, 16 at a time.
// A row that one batch asks for is read once then, too. Which thread draws what, and in which order, changes no bit.
#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "row_fill.h"
#include "spsample/quantize.h"
#include "spsample/row_law.h"
#include "weight_tree.h"

#if defined(__GNUC__) || defined(__clang__)
#define SPSAMPLE_PREFETCH_WRITE(address) __builtin_prefetch(address, 1)
#define SPSAMPLE_PREFETCH_NEAR(address) __builtin_prefetch(address, 0, 2)  // to the second-level cache
#else
#define SPSAMPLE_PREFETCH_NEAR(address) ((void)0)
#define SPSAMPLE_PREFETCH_WRITE(address) ((void)0)
#endif

namespace spsample {
namespace {

// --- sizes ------------------------------------------------------------------------------------------------------------------

constexpr int64_t kLongRun = 128;         // shorter ascending runs are sorted with the rest
constexpr int64_t kRowCost = 32;          // what a row takes of a range beside its entries
constexpr int64_t kRangeCost = 48 << 10;  // entries, and kRowCost for each row: the trees of a range take about 4 bytes for each
constexpr int64_t kPartsPerThread = 16;
constexpr int64_t kSmallestPart = 64;     // stacked rows that a part holds on average, at least
constexpr int64_t kWidestRange = 64;      // ranges are up to so many times as wide where few of their rows are asked for
constexpr int64_t kSparse = 8;            // rows of a range for each request, from which on requests are sorted
constexpr int64_t kDense = 4;             // rows of a range for each request, up to which the next range is fetched whole

// --- counts -----------------------------------------------------------------------------------------------------------------

// Number of positive weights, or `enough` as soon as there are that many.
template <class Real>
int64_t count_positive(const Real* weights, int64_t degree, int64_t enough) {
    const int64_t first = std::min(degree, enough);
    int64_t positive = 0;
    for (int64_t e = 0; e < first; ++e) positive += is_positive(weights[e]) ? 1 : 0;
    for (int64_t e = first; e < degree && positive < enough; ++e) positive += is_positive(weights[e]) ? 1 : 0;
    return positive;
}

// How many entries a row gives where no weight is 0.
inline int64_t expected_number(int64_t degree, const DrawArguments& draw) { return drawn_count(degree, draw.size, draw.replace); }

// --- runs -------------------------------------------------------------------------------------------------------------------

// Stacked rows of one batch in ascending order of vertex: row(0), row(1), ...
template <class Index>
struct Run {
    int64_t batch;
    int64_t count;
    const Index* vertices;
    const int64_t* rows;  // null where they are first, first + 1, ...
    int64_t first;

    int64_t row(int64_t number) const { return rows ? rows[number] : first + number; }
};

// The rows of a batch that are in no long ascending run, sorted.
template <class Index>
struct SortedRows {
    std::vector<Index> vertices;
    std::vector<int64_t> rows;

    void sort(const Index* of_row, std::vector<int64_t>&& unsorted) {
        rows = std::move(unsorted);
        std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
            return of_row[a] != of_row[b] ? of_row[a] < of_row[b] : a < b;
        });
        for (const int64_t row : rows) vertices.push_back(of_row[row]);
    }
};

template <class Index>
struct BatchRuns {
    std::vector<Run<Index>> runs;
    SortedRows<Index> sorted;
};

// The runs of one batch. O(rows), and O(s log s) for s rows out of order.
template <class Index>
void find_runs(const SelectorView<Index>& Q, int64_t batch, BatchRuns<Index>& found) {
    const int64_t end = Q.batch_ptr[batch + 1];
    std::vector<int64_t> others;
    for (int64_t begin = Q.batch_ptr[batch], stop; begin < end; begin = stop) {
        for (stop = begin + 1; stop < end && Q.vertices[stop - 1] < Q.vertices[stop];) ++stop;
        if (stop - begin >= kLongRun) {
            found.runs.push_back({batch, stop - begin, Q.vertices + begin, nullptr, begin});
        } else {
            for (int64_t r = begin; r < stop; ++r) others.push_back(r);
        }
    }
    if (others.empty()) return;
    found.sorted.sort(Q.vertices, std::move(others));
    const int64_t count = static_cast<int64_t>(found.sorted.rows.size());
    found.runs.push_back({batch, count, found.sorted.vertices.data(), found.sorted.rows.data(), 0});
}

template <class Index>
class AllRuns {
public:
    explicit AllRuns(const SelectorView<Index>& Q) : of_batch_(static_cast<size_t>(Q.num_batches)) {
        parallel_chunks(Q.num_batches, 1, [&](int64_t i, int64_t) { find_runs(Q, i, of_batch_[static_cast<size_t>(i)]); });
        for (const auto& batch : of_batch_) runs_.insert(runs_.end(), batch.runs.begin(), batch.runs.end());
    }
    const std::vector<Run<Index>>& runs() const { return runs_; }

private:
    std::vector<BatchRuns<Index>> of_batch_;
    std::vector<Run<Index>> runs_;
};

// --- results ----------------------------------------------------------------------------------------------------------------

template <class Index, class Real>
struct WeightedResult {
    RowsResult<Index> rows;
    Buffer<Real> weights;  // empty where not asked for
    bool with_weights = false;
    std::atomic<bool> misplaced{false};  // a row gave fewer entries than the layout says: it has weights of 0
};

// What a kernel call is about.
template <class Index, class Real>
struct WeightedCall {
    CsrView<Index> A;
    const Real* data;
    SelectorView<Index> Q;
    DrawArguments draw;
};

// Entries of A on their way to the result.
struct Pending {
    int64_t begin;  // of the row in A
    int64_t out;    // where they go
    int64_t number;
};

// Copies the entries at `positions` within a row.
template <class Index, class Real, class Position>
void emit(const WeightedCall<Index, Real>& call, const Pending& one, const Position* positions, WeightedResult<Index, Real>& result) {
    const Index* indices = call.A.indices + one.begin;
    Index* columns = result.rows.columns.data() + one.out;
    for (int64_t j = 0; j < one.number; ++j) columns[j] = indices[positions[j]];
    if (result.with_weights) {
        const Real* data = call.data + one.begin;
        Real* weights = result.weights.data() + one.out;
        for (int64_t j = 0; j < one.number; ++j) weights[j] = data[positions[j]];
    }
    if (result.rows.with_positions) {
        int64_t* where = result.rows.positions.data() + one.out;
        for (int64_t j = 0; j < one.number; ++j) where[j] = one.begin + positions[j];
    }
}

// --- ready rows -------------------------------------------------------------------------------------------------------------

// Memory for trees, aligned to cache lines.
class TreeStore {
public:
    // Room for `count` elements, a multiple of 16, behind those taken so far. Returns where they begin.
    int64_t extend(int64_t count) {
        const int64_t begin = used_;
        used_ += count;
        if (used_ > static_cast<int64_t>(lines_.size()) * kTreeLanes) {
            lines_.resize(std::max(lines_.size() * 3 / 2, static_cast<size_t>(used_ / kTreeLanes)));
        }
        return begin;
    }
    uint32_t* data() { return lines_.empty() ? nullptr : lines_.data()->elements; }
    void clear() { used_ = 0; }

private:
    struct alignas(64) Line {
        uint32_t elements[kTreeLanes];
    };
    std::vector<Line> lines_;
    int64_t used_ = 0;
};

// Makes rows ready. Memory: 4.3 bytes for each entry of the rows made ready since clear().
template <class Index, class Real>
class RowMaker {
public:
    explicit RowMaker(const WeightedCall<Index, Real>& call) : call_(call), functions_(tree_set().functions<Real>()) {}

    ReadyRow make(int64_t vertex) {
        ReadyRow row{};
        row.vertex = vertex;
        row.begin = call_.A.begin(vertex);
        row.degree = call_.A.degree(vertex);
        const Real* weights = call_.data + row.begin;
        if (!call_.draw.replace && row.degree <= call_.draw.size) return taken(row, weights);
        const ExponentRange range = functions_.range(weights, row.degree);
        if (range.positive == 0) return row;  // empty
        if (!call_.draw.replace && range.positive <= call_.draw.size) return taken(row, weights);
        row.number = static_cast<int32_t>(call_.draw.size);
        const int64_t shift = row_shift(weights, row.degree, range);
        row.shift = static_cast<int16_t>(shift);
        row.kind = RowKind::kPlain;
        if (shift > -1000 && shift < 1000 && row.degree < (int64_t(1) << 31)) grow_tree(row, weights, is_wide(range, shift));
        return row;
    }

    void clear() {
        trees_.clear();
        sums_.clear();
    }
    const uint32_t* trees() { return trees_.data(); }
    const uint64_t* sums() const { return sums_.data(); }

private:
    // Takes all positive entries of the row.
    ReadyRow taken(ReadyRow& row, const Real* weights) {
        const int64_t room = tree_blocks(std::min(row.degree, call_.draw.size)) * kTreeLanes;
        row.tree = trees_.extend(room);
        uint32_t* positions = trees_.data() + row.tree;
        for (int64_t e = 0; e < row.degree; ++e) {
            if (is_positive(weights[e])) positions[row.number++] = static_cast<uint32_t>(e);
        }
        row.kind = row.number > 0 ? RowKind::kTaken : RowKind::kEmpty;
        return row;
    }

    void grow_tree(ReadyRow& row, const Real* weights, bool wide) {
        row.tree = trees_.extend(tree_size(row.degree));
        row.levels = static_cast<uint8_t>(tree_levels(row.degree));
        row.sums = static_cast<int64_t>(sums_.size());
        if (wide) sums_.resize(sums_.size() + static_cast<size_t>((row.degree - 1) / kSumsEvery + 1));
        uint32_t* level = trees_.data() + row.tree;
        row.total = functions_.prefix_sums(weights, row.degree, row.shift, level, wide ? sums_.data() + row.sums : nullptr);
        for (int64_t blocks = tree_blocks(row.degree); blocks > 1; blocks = tree_blocks(blocks)) level = next_level(level, blocks);
        if (wide && row.total > kNarrowLimit && row.total >> kWideCut < kNarrowLimit) {
            row.kind = RowKind::kWide;
            row.rejected_below = (uint64_t(0) - row.total) % row.total;
        } else if (!wide && row.total < kNarrowLimit) {
            row.kind = RowKind::kNarrow;
            row.rejected_below = static_cast<uint32_t>(kNarrowLimit - row.total) % static_cast<uint32_t>(row.total);
        }
    }

    // Writes the level above one of `blocks` blocks. Returns it.
    static uint32_t* next_level(const uint32_t* level, int64_t blocks) {
        uint32_t* above = const_cast<uint32_t*>(level) + blocks * kTreeLanes;
        for (int64_t b = 0; b < blocks; ++b) above[b] = level[b * kTreeLanes + kTreeLanes - 1];
        std::fill(above + blocks, above + tree_blocks(blocks) * kTreeLanes, above[blocks - 1]);
        return above;
    }

    const WeightedCall<Index, Real>& call_;
    const TreeFunctions<Real>& functions_;
    TreeStore trees_;
    std::vector<uint64_t> sums_;
};

// --- draws ------------------------------------------------------------------------------------------------------------------

// How many draws are made in lanes: some more than `size`, for some repeat.
inline TreeDraw tree_draw(const DrawArguments& draw) {
    const int64_t size = std::min<int64_t>(draw.size, kMostTreeDraws);
    const int64_t narrow = std::min(4 * size, (size + 2 + 3) / 4 * 4);
    const int64_t wide = std::min(4 * size, (size + 2) / 2 * 2);
    return {draw.key, draw.hop, static_cast<int>(size), draw.replace, static_cast<int>(narrow), static_cast<int>(wide)};
}

// Draws from ready rows and puts the entries in their place. Draws are made for 16 rows of a kind at a time; their entries are then
// asked for, and copied when the next 16 have been drawn.
template <class Index, class Real>
class TreeDrawer {
public:
    TreeDrawer(const WeightedCall<Index, Real>& call, RowMaker<Index, Real>& maker, WeightedResult<Index, Real>& result)
        : call_(call), maker_(maker), result_(result), how_(tree_draw(call.draw)), in_lanes_(call.draw.size <= kMostTreeDraws) {
        if (!in_lanes_) return;
        for (auto& of_kind : groups_) {
            for (Group& group : of_kind) group.positions.resize(static_cast<size_t>(how_.size * kTreeLanes));
        }
    }

    // For batch i, to `out` in the result. `row` must stay until flush().
    void draw(const ReadyRow& row, int64_t i, int64_t out) {
        if (row.kind == RowKind::kEmpty) return;
        const Pending pending{row.begin, out, row.number};
        const int64_t batch_id = call_.Q.batch_ids[i];
        if (!in_lanes_ || row.kind == RowKind::kPlain) return draw_alone(row, batch_id, pending);
        prefetch_output(pending);
        const int kind = static_cast<int>(row.kind) - static_cast<int>(RowKind::kTaken);
        Group& group = groups_[kind][turn_[kind]];
        const int lane = group.lanes.count++;
        group.pending[lane] = pending;
        uint32_t* positions = group.positions.data() + lane * how_.size;
        if (row.kind == RowKind::kTaken) {
            std::copy_n(maker_.trees() + row.tree, row.number, positions);
        } else {
            group.lanes.vertex_low[lane] = static_cast<uint32_t>(row.vertex);
            group.lanes.vertex_high[lane] = static_cast<uint32_t>(row.vertex >> 32);
            group.lanes.batch_id[lane] = static_cast<uint32_t>(batch_id);
            group.lanes.row[lane] = &row;
            group.lanes.positions[lane] = positions;
        }
        if (group.lanes.count == kTreeLanes) finish(kind);
    }

    // Whether drawn entries may be far from the processor, so that it pays to ask for each.
    void set_far(bool far) { far_ = far; }

    // Makes all draws that wait.
    void flush() {
        for (int kind = 0; kind < kKinds; ++kind) {
            if (groups_[kind][turn_[kind]].lanes.count > 0) finish(kind);
        }
    }

    // Copies all entries that wait. To be called in the end, after flush().
    void emit_rest() {
        for (auto& of_kind : groups_) {
            for (Group& group : of_kind) emit_group(group);
        }
    }

private:
    static constexpr int kKinds = 3;  // kTaken, kNarrow, kWide

    struct Group {
        TreeLanes lanes;
        Pending pending[kTreeLanes];
        std::vector<uint32_t> positions;  // `size` for each lane
    };

    void finish(int kind) {
        Group& group = groups_[kind][turn_[kind]];
        const RowKind row_kind = static_cast<RowKind>(kind + static_cast<int>(RowKind::kTaken));
        if (row_kind == RowKind::kNarrow) tree_set_.draw_narrow(how_, maker_.trees(), group.lanes);
        if (row_kind == RowKind::kWide) tree_set_.draw_wide(how_, maker_.trees(), group.lanes);
        if (row_kind != RowKind::kTaken) {
            for (int lane = 0; lane < group.lanes.count; ++lane) {
                if (group.lanes.found[lane] < how_.size) go_on(group, lane);
            }
        }
        for (int lane = 0; lane < group.lanes.count && far_; ++lane) prefetch(group.pending[lane], group.positions.data() + lane * how_.size);
        turn_[kind] ^= 1;
        emit_group(groups_[kind][turn_[kind]]);
    }

    // Asks for the memory that a row's entries are written to.
    void prefetch_output(const Pending& one) {
        SPSAMPLE_PREFETCH_WRITE(result_.rows.columns.data() + one.out);
        SPSAMPLE_PREFETCH_WRITE(result_.rows.columns.data() + one.out + one.number - 1);
        if (!result_.with_weights) return;
        SPSAMPLE_PREFETCH_WRITE(result_.weights.data() + one.out);
        SPSAMPLE_PREFETCH_WRITE(result_.weights.data() + one.out + one.number - 1);
    }

    void prefetch(const Pending& one, const uint32_t* positions) const {
        const Index* indices = call_.A.indices + one.begin;
        for (int64_t j = 0; j < one.number; ++j) SPSAMPLE_PREFETCH(indices + positions[j]);
    }

    void emit_group(Group& group) {
        for (int lane = 0; lane < group.lanes.count; ++lane) {
            emit(call_, group.pending[lane], group.positions.data() + lane * how_.size, result_);
        }
        group.lanes.count = 0;
    }

    // Draws the rest of a lane, one by one.
    void go_on(Group& group, int lane) {
        TreeLanes& lanes = group.lanes;
        const ReadyRow& row = *lanes.row[lane];
        uint32_t* positions = lanes.positions[lane];
        int64_t* out = grown(out_, how_.size);
        std::copy_n(positions, lanes.found[lane], out);
        DrawStream draws(how_.key, static_cast<uint64_t>(row.vertex), how_.hop, lanes.batch_id[lane], row.total);
        const TreeRow<Real> tree(row, call_.data, maker_.trees(), maker_.sums());
        draw_from(tree, draws, out, lanes.found[lane], lanes.next[lane]);
        for (int j = 0; j < how_.size; ++j) positions[j] = static_cast<uint32_t>(out[j]);
    }

    void draw_alone(const ReadyRow& row, int64_t batch_id, const Pending& pending) {
        int64_t* out = grown(out_, call_.draw.size);
        if (row.kind == RowKind::kTaken) {
            std::copy_n(maker_.trees() + row.tree, row.number, out);
        } else if (row.kind == RowKind::kPlain) {
            const PrefixRow sums = prefix_row(row);
            DrawStream draws(how_.key, static_cast<uint64_t>(row.vertex), how_.hop, batch_id, sums.total());
            draw_from(sums, draws, out, 0, 0);
        } else {
            DrawStream draws(how_.key, static_cast<uint64_t>(row.vertex), how_.hop, batch_id, row.total);
            draw_from(TreeRow<Real>(row, call_.data, maker_.trees(), maker_.sums()), draws, out, 0, 0);
        }
        emit(call_, pending, out, result_);
    }

    // The row law from draw `next` on, `found` positions being in `out` already.
    template <class Row>
    void draw_from(const Row& row, DrawStream& draws, int64_t* out, int64_t found, int64_t next) {
        const int64_t size = call_.draw.size;
        if (call_.draw.replace) return its_repeated(row, size, draws, out, next);
        Chosen chosen = scratch_.chosen(size, out);
        for (int64_t j = 0; j < found; ++j) chosen.add(out[j]);
        TakenOut taken = scratch_.taken_out(size);
        require_draws(its_distinct(row, size, draws, chosen, taken, next));
    }

    PrefixRow prefix_row(const ReadyRow& row) {
        uint64_t* inclusive = scratch_.prefix(row.degree);
        uint64_t sum = 0;
        for (int64_t e = 0; e < row.degree; ++e) inclusive[e] = sum += quantize(call_.data[row.begin + e], row.shift, 1);
        return {inclusive, row.degree};
    }

    const WeightedCall<Index, Real>& call_;
    RowMaker<Index, Real>& maker_;
    WeightedResult<Index, Real>& result_;
    const TreeDraw how_;
    const bool in_lanes_;
    bool far_ = true;
    const TreeSet& tree_set_ = spsample::tree_set();
    Group groups_[kKinds][2];
    int turn_[kKinds] = {0, 0, 0};
    DrawScratch scratch_;
    std::vector<int64_t> out_;
};

// --- ranges -----------------------------------------------------------------------------------------------------------------

// Where row `row` lies on the scale that A is cut by.
template <class Index>
int64_t cost_before(const CsrView<Index>& A, int64_t row) {
    return A.indptr[row] + kRowCost * row;
}

// The first row in [first, end] with at least `cost` before it, or `end`.
template <class Index>
int64_t row_at(const CsrView<Index>& A, int64_t first, int64_t end, int64_t cost) {
    while (first < end) {
        const int64_t middle = first + (end - first) / 2;
        if (cost_before(A, middle) < cost) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

// How A is cut for m stacked rows.
template <class Index>
class Parts {
public:
    Parts(const CsrView<Index>& A, int64_t m) : A_(A) {
        count_ = std::max<int64_t>(1, std::min(kPartsPerThread * thread_limit(), m / kSmallestPart));
        count_ = std::max(count_, A.num_rows >> 31);
        range_cost_ = kRangeCost * std::clamp<int64_t>(A.num_rows / (m + 1), 1, kWidestRange);
    }
    int64_t count() const { return count_; }
    int64_t range_cost() const { return range_cost_; }
    int64_t first_row(int64_t part) const {
        if (part == count_) return A_.num_rows;
        return row_at(A_, 0, A_.num_rows, cost_before(A_, A_.num_rows) / count_ * part);
    }

private:
    const CsrView<Index>& A_;
    int64_t count_;
    int64_t range_cost_;
};

// A row that a batch asks for.
struct Request {
    int64_t out;     // where its entries go in the result
    uint32_t batch;
    uint32_t row;    // within the part of A; later its number among the ready rows
};

// Entries first .. end - 1 of two arrays, asked for little by little.
class Ahead {
public:
    Ahead() = default;

    template <class Index, class Real>
    Ahead(int64_t first, int64_t end, int64_t steps, const Index* indices, const Real* data)
        : indices_(reinterpret_cast<const char*>(indices + first)),
          indices_end_(reinterpret_cast<const char*>(indices + end)),
          data_(reinterpret_cast<const char*>(data + first)),
          data_end_(reinterpret_cast<const char*>(data + end)),
          slice_(((indices_end_ - indices_ + data_end_ - data_) / 2 / steps / kCacheLine + 1) * kCacheLine) {}

    void step() {
        ask(indices_, indices_end_);
        ask(data_, data_end_);
    }

private:
    static constexpr int64_t kCacheLine = 64;

    void ask(const char*& from, const char* end) const {
        for (const char* until = std::min(from + slice_, end); from < until; from += kCacheLine) SPSAMPLE_PREFETCH_NEAR(from);
    }

    const char *indices_ = nullptr, *indices_end_ = nullptr, *data_ = nullptr, *data_end_ = nullptr;
    int64_t slice_ = 0;
};

// One thread's work: all rows of a part of A, range by range.
template <class Index, class Real>
class PartWorker {
public:
    PartWorker(
        const WeightedCall<Index, Real>& call, const std::vector<Run<Index>>& runs, int64_t range_cost, bool exact,
        WeightedResult<Index, Real>& result)
        : call_(call), runs_(runs), range_cost_(range_cost), exact_(exact), result_(result), maker_(call),
          drawer_(call, maker_, result) {}

    // Rows first .. end - 1 of A, fewer than 2^32.
    void work(int64_t first, int64_t end) {
        cut(first, end);
        collect();
        for (size_t g = 0; g + 1 < bounds_.size() && !result_.misplaced; ++g) work_range(g);
        drawer_.emit_rest();
    }

private:
    // Cuts the part into ranges.
    void cut(int64_t first, int64_t end) {
        bounds_.assign(1, first);
        for (int64_t row = first; row < end; bounds_.push_back(row)) {
            const int64_t past = row_at(call_.A, row + 1, end + 1, cost_before(call_.A, row) + range_cost_ + 1);
            row = std::max(row + 1, past - 1);
        }
    }

    // The part's requests, range by range, as they come in each.
    void collect() {
        const size_t num_ranges = bounds_.size() - 1;
        ends_.assign(num_ranges + 1, 0);
        for_requests([&](const Run<Index>&, int64_t, size_t range) { ++ends_[range + 1]; });
        for (size_t g = 1; g <= num_ranges; ++g) ends_[g] += ends_[g - 1];
        if (requests_.size() < static_cast<size_t>(ends_[num_ranges])) requests_.resize(static_cast<size_t>(ends_[num_ranges]));
        for_requests([&](const Run<Index>& run, int64_t number, size_t range) {
            const int64_t out = result_.rows.offset(run.row(number), run.batch);
            const uint32_t row = static_cast<uint32_t>(run.vertices[number] - bounds_[0]);
            requests_[static_cast<size_t>(ends_[range]++)] = {out, static_cast<uint32_t>(run.batch), row};
        });
    }

    // Calls body(run, number within it, range) for each.
    template <class Body>
    void for_requests(Body&& body) {
        for (const Run<Index>& run : runs_) {
            const Index* const end = run.vertices + run.count;
            size_t range = 0;
            for (const Index* v = std::lower_bound(run.vertices, end, bounds_.front()); v < end && *v < bounds_.back(); ++v) {
                while (*v >= bounds_[range + 1]) ++range;
                body(run, v - run.vertices, range);
            }
        }
    }

    void work_range(size_t range) {
        const int64_t first = range == 0 ? 0 : ends_[range - 1];
        Request* const begin = requests_.data() + first;
        Request* const end = requests_.data() + ends_[range];
        if (begin == end) return;
        maker_.clear();
        ready_.clear();
        const int64_t num_rows = bounds_[range + 1] - bounds_[range];
        if (num_rows > kSparse * (end - begin)) {
            make_ready_by_sorting(begin, end);
        } else {
            make_ready_by_marking(begin, end, static_cast<uint32_t>(bounds_[range] - bounds_[0]), num_rows);
        }
        const bool dense = num_rows <= kDense * (end - begin);
        drawer_.set_far(!dense);
        Ahead ahead = dense ? next_range(range, end - begin) : Ahead{};
        for (const Request* one = begin; one < end; ++one) {
            ahead.step();
            drawer_.draw(ready_[one->row], one->batch, one->out);
        }
        drawer_.flush();
    }

    // The entries of the range after `range`, to come to the second-level cache in so many steps.
    Ahead next_range(size_t range, int64_t steps) const {
        if (range + 2 >= bounds_.size()) return {};
        const int64_t first = call_.A.begin(bounds_[range + 1]), end = call_.A.begin(bounds_[range + 2]);
        if (end - first > range_cost_) return {};  // one long row
        return Ahead(first, end, steps, call_.A.indices, call_.data);
    }

    uint32_t make_ready(uint32_t row) {
        ready_.push_back(maker_.make(bounds_[0] + row));
        const ReadyRow& made = ready_.back();
        const bool guessed = !exact_ && made.degree > call_.draw.size;
        if (guessed && made.number != expected_number(made.degree, call_.draw)) result_.misplaced = true;
        return static_cast<uint32_t>(ready_.size() - 1);
    }

    void make_ready_by_sorting(Request* begin, Request* end) {
        std::sort(begin, end, [](const Request& a, const Request& b) { return a.row < b.row; });
        for (Request* one = begin; one < end;) {
            const uint32_t row = one->row, number = make_ready(row);
            for (; one < end && one->row == row; ++one) one->row = number;
        }
    }

    // base: the range's first row within the part.
    void make_ready_by_marking(Request* begin, Request* end, uint32_t base, int64_t num_rows) {
        numbers_.assign(static_cast<size_t>(num_rows), 0);
        for (const Request* one = begin; one < end; ++one) numbers_[one->row - base] = 1;
        for (int64_t row = 0; row < num_rows; ++row) {
            uint32_t& number = numbers_[static_cast<size_t>(row)];
            if (number) number = make_ready(base + static_cast<uint32_t>(row));
        }
        for (Request* one = begin; one < end; ++one) one->row = numbers_[one->row - base];
    }

    const WeightedCall<Index, Real>& call_;
    const std::vector<Run<Index>>& runs_;
    const int64_t range_cost_;
    const bool exact_;  // whether the layout is by the numbers of positive weights
    WeightedResult<Index, Real>& result_;
    RowMaker<Index, Real> maker_;
    TreeDrawer<Index, Real> drawer_;
    std::vector<int64_t> bounds_;    // rows where ranges begin, and the end of the last
    std::vector<int64_t> ends_;      // of each range's requests
    std::vector<Request> requests_;
    std::vector<uint32_t> numbers_;  // of each row of a range among the ready ones
    std::vector<ReadyRow> ready_;
};

// Makes the arrays of the result, for count(vertex) entries of each row.
template <class Index, class Real, class Count>
void lay_out(const WeightedCall<Index, Real>& call, bool positions, bool weights, WeightedResult<Index, Real>& result, Count&& count) {
    result.rows = RowsResult<Index>();  // gives the memory back first
    result.weights = Buffer<Real>();
    result.rows = laid_out(call.A, call.Q, positions, count);
    result.with_weights = weights;
    if (weights) result.weights = Buffer<Real>(result.rows.columns.size());
}

template <class Index, class Real>
void draw_parts(const WeightedCall<Index, Real>& call, const AllRuns<Index>& runs, bool exact, WeightedResult<Index, Real>& result) {
    if (result.rows.columns.size() == 0) return;
    const Parts<Index> parts(call.A, call.Q.num_rows);
    const auto make_worker = [&] {
        return std::make_unique<PartWorker<Index, Real>>(call, runs.runs(), parts.range_cost(), exact, result);
    };
    parallel_chunks(parts.count(), 1, make_worker, [&](auto& worker, int64_t part, int64_t) {
        worker->work(parts.first_row(part), parts.first_row(part + 1));
    });
}

// How many entries a row gives, by its positive weights.
template <class Index, class Real>
int64_t exact_number(const WeightedCall<Index, Real>& call, int64_t vertex) {
    const int64_t enough = call.draw.replace ? 1 : call.draw.size;
    const int64_t positive = count_positive(call.data + call.A.begin(vertex), call.A.degree(vertex), enough);
    return drawn_count(positive, call.draw.size, call.draw.replace);
}

// Lays the result out as if no row of more than `size` entries had weights of 0 that matter: their weights are not looked at, and in
// shorter rows, which are few, a single 0 matters. Where a row is found then that gives fewer entries, it counts positive weights of
// all rows and begins again.
template <class Index, class Real>
void weighted_rows(const WeightedCall<Index, Real>& call, bool positions, bool weights, WeightedResult<Index, Real>& result) {
    const AllRuns<Index> runs(call.Q);
    lay_out(call, positions, weights, result, [&](int64_t vertex) {
        const int64_t degree = call.A.degree(vertex);
        return degree <= call.draw.size ? exact_number(call, vertex) : expected_number(degree, call.draw);
    });
    draw_parts(call, runs, false, result);
    if (!result.misplaced) return;
    result.misplaced = false;
    lay_out(call, positions, weights, result, [&](int64_t vertex) { return exact_number(call, vertex); });
    draw_parts(call, runs, true, result);
}

// --- binding ----------------------------------------------------------------------------------------------------------------

// (entry_ptr, indptr, columns, positions or None, weights or None). O(entries of distinct rows + m size log d) expected time.
// Memory per thread: about 1 MB, and 5 bytes for each entry of the largest row; n bytes where m >= n; 16 bytes for each row that
// is out of order.
template <class Index, class Real>
nb::tuple sample_rows_weighted(
    const In<int64_t>& indptr, const In<Index>& indices, const In<Real>& data, const In<int64_t>& batch_ptr,
    const In<Index>& vertices, const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1, int64_t hop, int64_t size,
    bool replace, bool positions, bool weights) {
    require(data.size() == indices.size(), "data", "needs one element per entry");
    const CsrView<Index> A = csr_view(indptr, indices);
    const WeightedCall<Index, Real> call{
        A, data.data(), selector_view(batch_ptr, vertices, batch_ids, A.num_rows), draw_arguments(key0, key1, hop, size, replace)};
    WeightedResult<Index, Real> result;
    {
        nb::gil_scoped_release release;
        weighted_rows(call, positions, weights, result);
    }
    nb::object drawn_weights = nb::none();
    if (weights) drawn_weights = nb::cast(to_numpy(std::move(result.weights)));
    return nb::steal<nb::tuple>(PySequence_Concat(packed(std::move(result.rows)).ptr(), nb::make_tuple(drawn_weights).ptr()));
}

template <class Index, class Real>
void bind_for(nb::module_& m) {
    m.def("sample_rows_weighted", &sample_rows_weighted<Index, Real>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("batch_ptr"), nb::arg("vertices"),
          nb::arg("batch_ids"), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"),
          nb::arg("replace"), nb::arg("positions"), nb::arg("weights") = false);
}

}  // namespace

void bind_weighted_rows(nb::module_& m) {
    bind_for<int32_t, float>(m);
    bind_for<int32_t, double>(m);
    bind_for<int64_t, float>(m);
    bind_for<int64_t, double>(m);
}

}  // namespace spsample
