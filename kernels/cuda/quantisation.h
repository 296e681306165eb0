// The numerators of entries under the frontier rule or the graph rule (docs/law.md, section 2).
#pragma once

#include "device.h"
#include "spsample/quantisation.h"

namespace spsample {

// shifts: K of each batch, or null where every entry counts 1.
struct EntryNumerators {
    Weights weights;
    const int64_t* shifts;
    int32_t power;

    __device__ uint64_t operator()(const Rows& A, int64_t row, int64_t entry, int64_t batch) const {
        return shifts ? quantize(weights(A, row, entry), shifts[batch], power) : 1;
    }

    // Whether the numerator is not 0.
    __device__ bool counts(const Rows& A, int64_t row, int64_t entry) const {
        return !shifts || is_positive(weights(A, row, entry));
    }
};

#define SPSAMPLE_NUMERATORS_PARAMETERS const int64_t *rule_shifts, int64_t rule_power
#define SPSAMPLE_NUMERATORS \
    EntryNumerators { SPSAMPLE_ROW_WEIGHTS, rule_shifts, static_cast<int32_t>(rule_power) }

}  // namespace spsample
