// What a call of sample_rows_weighted is about, and its result.
#pragma once

#include <atomic>
#include <vector>

#include "row_law_fill.h"
#include "row_law_rules.h"
#include "row_law_scale.h"
#include "spsample/quantisation.h"
#include "spsample/row_law.h"

namespace spsample {

template <class Index, class Real>
struct WeightedCall {
    CsrView<Index> A;
    const Real* data;  // null: every entry is 1, which only scaled columns make something to draw by
    SelectorView<Index> Q;
    DrawArguments draw;
    RowRules rules;
    ColumnScale<Index> scale;

    // What an entry weighs in the draw.
    Real weight(int64_t entry) const {
        const Real stored = data ? data[entry] : Real(1);
        return scale.members ? scale.scaled(stored, A.indices[entry]) : stored;
    }

    // Those of a row, which are stored, or made in `room`.
    const Real* weights(int64_t begin, int64_t degree, std::vector<Real>& room) const {
        if (!scale.members) return data + begin;
        if (room.size() < static_cast<size_t>(degree)) room.resize(static_cast<size_t>(degree));
        const Index* columns = A.indices + begin;
        if (data) {
            scale.scale_all(data + begin, columns, degree, room.data());
        } else {
            const Real of_kind[] = {Real(1), scale.product(Real(1))};
            for (int64_t e = 0; e < degree; ++e) room[e] = of_kind[scale.has(columns[e])];
        }
        return room.data();
    }
};

template <class Index, class Real>
struct WeightedResult {
    RowsResult<Index> rows;
    Buffer<Real> weights;  // empty where not asked for
    bool with_weights = false;
    std::atomic<bool> misplaced{false};  // a row gave fewer entries than the layout says: it has weights of 0
};

// Writes the entries at positions[0], positions[Stride], ... within the row that begins at entry `begin` of A to `out` in
// the result.
template <int Stride, class Index, class Real, class Position>
inline void emit(
    const WeightedCall<Index, Real>& call, int64_t begin, const Position* positions, int64_t number, int64_t out,
    WeightedResult<Index, Real>& result) {
    const Index* indices = call.A.indices + begin;
    const Real* data = call.data + begin;
    Index* columns = result.rows.columns.data() + out;
    if (result.with_weights) {
        Real* weights = result.weights.data() + out;
        for (int64_t j = 0; j < number; ++j) {
            columns[j] = indices[positions[j * Stride]];
            weights[j] = data[positions[j * Stride]];
        }
    } else {
        for (int64_t j = 0; j < number; ++j) columns[j] = indices[positions[j * Stride]];
    }
    if (result.rows.with_positions) {
        int64_t* where = result.rows.positions.data() + out;
        for (int64_t j = 0; j < number; ++j) where[j] = begin + positions[j * Stride];
    }
}

// --- layout -----------------------------------------------------------------------------------------------------------------

// Number of positive weights, or `enough` as soon as there are that many. weight(e): that of entry e.
template <class Weight>
int64_t count_positive(Weight&& weight, int64_t degree, int64_t enough) {
    const int64_t first = std::min(degree, enough);
    int64_t positive = 0;
    for (int64_t e = 0; e < first; ++e) positive += is_positive(weight(e)) ? 1 : 0;
    for (int64_t e = first; e < degree && positive < enough; ++e) positive += is_positive(weight(e)) ? 1 : 0;
    return positive;
}

// How many entries rows of A give.
template <class Index, class Real>
class EntryCounts {
public:
    // Exact: by the positive weights of every row. Else rows of more than `size` entries are taken to have no weight of 0
    // that matters, and their weights are not looked at; in shorter rows, which are few, a single 0 matters. Where the rows
    // asked for are as many as A's, all are counted now: O(A's rows) time, one byte each; else none is.
    EntryCounts(const WeightedCall<Index, Real>& call, bool exact) : call_(call), exact_(exact) {
        if (call.Q.num_rows < call.A.num_rows || call.draw.size > 255) return;
        known_ = Buffer<uint8_t>(call.A.num_rows);
        parallel_chunks(call.A.num_rows, kRowChunk * 16, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) known_[row] = static_cast<uint8_t>(count(row));
        });
    }

    int64_t of(int64_t vertex) const { return known_.size() > 0 ? known_[vertex] : count(vertex); }

    // Asks for what of() reads.
    void ask(int64_t vertex) const {
        if (known_.size() == 0) SPSAMPLE_PREFETCH(call_.A.indptr + vertex);
    }

    // Whether a row whose layout was not by its weights gives `number` entries.
    bool is_right(int64_t degree, int64_t number) const {
        return exact_ || degree <= call_.draw.size || number == drawn_count(degree, call_.draw.size, call_.draw.replace);
    }

private:
    int64_t count(int64_t vertex) const {
        const DrawArguments& draw = call_.draw;
        const int64_t degree = call_.A.degree(vertex);
        if (!exact_ && degree > draw.size) return drawn_count(degree, draw.size, draw.replace);
        if (!call_.data && is_positive(call_.scale.product(Real(1)))) return drawn_count(degree, draw.size, draw.replace);
        return drawn_count(positive(vertex, degree, draw.replace ? 1 : draw.size), draw.size, draw.replace);
    }

    // Scaled weights are looked at one by one: a product can round to 0.
    int64_t positive(int64_t vertex, int64_t degree, int64_t enough) const {
        const int64_t begin = call_.A.begin(vertex);
        if (call_.scale.members) return count_positive([&](int64_t e) { return call_.weight(begin + e); }, degree, enough);
        const Real* stored = call_.data + begin;
        return count_positive([&](int64_t e) { return stored[e]; }, degree, enough);
    }

    const WeightedCall<Index, Real>& call_;
    const bool exact_;
    Buffer<uint8_t> known_;
};

}  // namespace spsample
