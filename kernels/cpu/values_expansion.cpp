// Values of rows that were drawn from A D: weights of a sum over the whole row of A (docs/law.md, section 6).
#include <algorithm>
#include <optional>

#include "row_law_fill.h"
#include "row_law_scale.h"
#include "stacking.h"

namespace spsample {
namespace {

// Sums of weights of entries in the set, and of others: apart, so that a large factor hides nothing.
struct Sums {
    double outside = 0, inside = 0;

    void operator+=(const Sums& other) {
        outside += other.outside;
        inside += other.inside;
    }
    // A weight as a sum. No branch: it would be taken as often as not.
    static Sums of(double weight, bool is_inside) {
        const double inside = weight * static_cast<double>(is_inside);
        return {weight - inside, inside};
    }
};

template <class Index>
struct Expansions {
    ColumnScale<Index> scale;
    bool replace;

    // Whether the entries at local[0 .. count - 1] of src are all that their row has, but for rounding.
    template <class Weight>
    bool are_all(const Index* src, const Index* local, int64_t count, const Sums& total, Weight&& weight) const {
        Sums sum;
        for (int64_t j = 0; j < count; ++j) sum += Sums::of(weight(j), scale.has(src[local[j]]));
        return total.outside - sum.outside <= total.outside * 1e-12 && total.inside - sum.inside <= total.inside * 1e-12;
    }

    // put(j, weight of entry j), for a row of entries in the order drawn. Des Raj, JASA 1956; with replacement Hansen and Hurwitz 1943.
    template <class Weight, class Put>
    void of_row(const Index* src, const Index* local, int64_t count, const Sums& total, Weight&& weight, Put&& put) const {
        if (!replace && are_all(src, local, count, total, weight)) {
            for (int64_t j = 0; j < count; ++j) put(j, 1.0);
            return;
        }
        int64_t positive = 0;
        for (int64_t j = 0; j < count; ++j) positive += weight(j) != 0;
        const double s = static_cast<double>(std::max<int64_t>(positive, 1));
        const double whole = total.outside + total.inside * scale.factor;
        const double factors[] = {1.0, scale.factor};
        Sums sum;
        for (int64_t j = 0; j < count; ++j) {
            const bool is_inside = scale.has(src[local[j]]);
            const double scaled = weight(j) * factors[is_inside];
            if (replace) {
                put(j, whole / (s * scaled));
                continue;
            }
            const Sums entry = Sums::of(weight(j), is_inside);
            sum += entry;
            const double outside = std::max(total.outside - sum.outside + entry.outside, 0.0);
            const double rest = outside + std::max(total.inside - sum.inside + entry.inside, 0.0) * scale.factor;
            put(j, (rest / scaled + (s - 1 - static_cast<double>(j))) / s);
        }
    }
};

// own: weights of the entries, by which rows were drawn where `by_own`, or null. O(entries).
template <class Index, class Real>
Buffer<Real> expanded(
    const Expansions<Index>& expansions, const SelectorView<Index>& Q, const StackedView<Index>& rows, const int64_t* src_ptr,
    const Index* src, const Index* local, const double* totals, const Real* own, bool by_own) {
    Buffer<Real> values(rows.num_entries);
    parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            const int64_t first = rows.begin(i, r), count = rows.end(i, r) - first;
            const double* const total = totals + 2 * static_cast<int64_t>(Q.vertices[r]);
            const auto put = [&](int64_t j, double expansion) {
                values[first + j] = static_cast<Real>(own ? static_cast<double>(own[first + j]) * expansion : expansion);
            };
            const Index* const batch = src + src_ptr[i];
            if (by_own) {
                const auto weight = [&](int64_t j) { return static_cast<double>(own[first + j]); };
                expansions.of_row(batch, local + first, count, {total[0], total[1]}, weight, put);
            } else {
                expansions.of_row(batch, local + first, count, {total[0], total[1]}, [](int64_t) { return 1.0; }, put);
            }
        });
    });
    return values;
}

// totals: two sums for each vertex, of entries outside of the set and in it. Real: float where own is None.
template <class Index, class Real>
nb::object expansion_values_of(
    const Expansions<Index>& expansions, const SelectorIn<Index>& selector, const RowsIn<Index>& stacked, const CompactionIn<Index>& sources,
    const In<Index>& src, const In<double>& totals, const Real* own, bool by_own) {
    const SelectorView<Index> Q = selector_view(selector, static_cast<int64_t>(totals.size() / 2));
    const StackedView<Index> rows = stacked_view(selector.batch_ptr, stacked);
    Buffer<Real> values;
    {
        nb::gil_scoped_release release;
        values = expanded(
            expansions, Q, rows, sources.src_ptr.data(), src.data(), sources.local.data(), totals.data(), own, by_own);
    }
    return to_numpy(std::move(values));
}

// `sources` are as `compact` made them: places are not checked.
template <class Index>
nb::object expansion_values(
    const SelectorIn<Index>& selector, const RowsIn<Index>& rows, const CompactionIn<Index>& sources, const In<Index>& src,
    const In<double>& totals, const std::optional<AnyIn>& own, bool by_own, const In<uint64_t>& members, double factor, bool replace) {
    const size_t entries = rows.columns.size();
    require(sources.local.size() == entries, "local", "needs one element per entry");
    require(sources.src_ptr.size() == selector.batch_ptr.size(), "src_ptr", "needs one element per batch and one more");
    require_pointers(sources.src_ptr, static_cast<int64_t>(src.size()), "src_ptr");
    require(own ? own->size() == entries : !by_own, "own", "needs one element per entry");
    const Expansions<Index> expansions{{members.data(), members.size() * 64, factor}, replace};
    if (!own) return expansion_values_of<Index, float>(expansions, selector, rows, sources, src, totals, nullptr, false);
    if (own->is<float>()) {
        const float* const weights = static_cast<const float*>(own->data());
        return expansion_values_of<Index, float>(expansions, selector, rows, sources, src, totals, weights, by_own);
    }
    require(own->is<double>(), "own", "must be float32 or float64");
    const double* const weights = static_cast<const double*>(own->data());
    return expansion_values_of<Index, double>(expansions, selector, rows, sources, src, totals, weights, by_own);
}

}  // namespace

void bind_values_expansion(nb::module_& m) {
    m.def("expansion_values", &expansion_values<int32_t>, "Values of rows drawn from A D, as weights of the sums over whole rows.");
    m.def("expansion_values", &expansion_values<int64_t>, "Values of rows drawn from A D, as weights of the sums over whole rows.");
}

}  // namespace spsample
