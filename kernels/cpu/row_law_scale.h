// Columns of A scaled in the row law (docs/law.md, section 3): A D, where D is diagonal, `factor` for the columns of a set, else 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>

namespace spsample {

template <class Index>
struct ColumnScale {
    const uint64_t* members = nullptr;  // bit v % 64 of element v / 64: whether column v is scaled; null: none is
    uint64_t num_columns = 0;           // a column that is not below it is not scaled
    double factor = 1;

    // Whether column v is scaled.
    bool has(Index v) const {
        const uint64_t column = static_cast<uint64_t>(v);
        return column < num_columns && (members[column >> 6] >> (column & 63) & 1);
    }

    // A weight of column v: multiplied in binary64, rounded once. Throws std::overflow_error where it is not finite.
    template <class Real>
    Real scaled(Real weight, Index v) const {
        return has(v) ? product(weight) : weight;
    }

    // Those of many columns. No branch: it would be taken as often as not.
    template <class Real>
    void scale_all(const Real* weights, const Index* columns, int64_t count, Real* out) const {
        const double factors[] = {1.0, factor};
        Real sum = 0;  // not finite where a product is not: then that one is found
        for (int64_t e = 0; e < count; ++e) {
            out[e] = static_cast<Real>(static_cast<double>(weights[e]) * factors[has(columns[e])]);
            sum += out[e];
        }
        if (std::isfinite(sum)) return;
        for (int64_t e = 0; e < count; ++e) (void)scaled(weights[e], columns[e]);
    }

    // A weight times the factor.
    template <class Real>
    Real product(Real weight) const {
        const Real scaled = static_cast<Real>(static_cast<double>(weight) * factor);
        if (!std::isfinite(scaled)) throw std::overflow_error("a scaled weight is not finite");
        return scaled;
    }
};

}  // namespace spsample
