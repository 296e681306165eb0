// Numerators of A's entries under a rule (docs/law.md, section 2).
#pragma once

#include <type_traits>

#include "bindings.h"
#include "quantisation_many.h"

namespace spsample {

// How weights become integers: with K = shift and entry power a = power, or 1 for every entry without shifts.
struct QuantisationRule {
    const int64_t* shifts;  // num_batches elements, or null
    int32_t power;
    int32_t column_power;
};

inline uint64_t raise(uint64_t sum, int32_t column_power) { return column_power == 2 ? sum * sum : sum; }

// Calls body(position, numerator) for the entries of a row of A in order. Rows whose entries weigh the same (all but
// those of ArrayWeights) are quantised once.
template <class Index, class Weights, class Body>
void for_each_numerator(
    const CsrView<Index>& A, const Weights& weights, const QuantisationRule& rule, int64_t batch, int64_t row, Body&& body) {
    const int64_t begin = A.indptr[row];
    const int64_t end = A.indptr[row + 1];
    if (rule.shifts == nullptr) {
        for (int64_t p = begin; p < end; ++p) body(p, uint64_t(1));
        return;
    }
    const int64_t shift = rule.shifts[batch];
    if constexpr (std::is_same_v<Weights, UnitWeights> || std::is_same_v<Weights, RowNormalizedWeights>) {
        const uint64_t numerator = begin < end ? quantize(weights(begin, end - begin), shift, rule.power) : 0;
        for (int64_t p = begin; p < end; ++p) body(p, numerator);
    } else {
        for_each_quantized(weights.data, begin, end, shift, rule.power, body);
    }
}

// Checks the rule and that it has `count` shifts, or none.
inline QuantisationRule quantisation_rule(const QuantisationRuleIn& rule, int64_t count) {
    const auto& [shifts, power, column_power] = rule;
    require(power == 1 || power == 2, "power", "must be 1 or 2");
    require(column_power == 1 || column_power == 2, "column_power", "must be 1 or 2");
    if (!shifts) return {nullptr, power, column_power};
    require(static_cast<int64_t>(shifts->size()) == count, "shifts", "needs one element per batch (graph rule: one)");
    return {shifts->data(), power, column_power};
}

}  // namespace spsample
