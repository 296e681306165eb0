// What all kernels of the second pass of the weighted row law share: numerators from weights as they are read, a row to give entries
// of, and where its entries go.
#pragma once

#include "row_law_weighted.h"

namespace spsample {

// x rounded to an integer, half to even. 0 <= x < 2^63.
__device__ inline uint64_t rounded(double x) {
#if defined(__CUDA_ARCH__)
    return __double2ull_rn(x);
#else
    return static_cast<uint64_t>(__builtin_rint(x));
#endif
}

__device__ inline double power_of_two(int64_t exponent) { return double_from_bits(static_cast<uint64_t>(exponent + 1023) << 52); }

// quantize(w, K, 1) by multiplication: w 2^K is exact, or far below 1 and then 1. 2^K itself may be no double where weights are.
class Quantizer {
public:
    __device__ explicit Quantizer(int64_t shift) {
        const int64_t first = shift < -1000 ? -1000 : shift > 1000 ? 1000 : shift;
        scale_ = power_of_two(first);
        rest_ = power_of_two(shift - first);
    }
    // One that gives 1 for each positive weight.
    __device__ static Quantizer ones() { return Quantizer(0.0, 0.0); }
    __device__ uint64_t operator()(float w) const { return numerator(w, static_cast<double>(w) * scale_); }
    __device__ uint64_t operator()(double w) const { return numerator(w, w * scale_ * rest_); }

private:
    __device__ Quantizer(double scale, double rest) : scale_(scale), rest_(rest) {}

    template <class T>
    __device__ uint64_t numerator(T w, double scaled) const {
        if (!is_positive(w)) return 0;
        const uint64_t n = rounded(scaled);
        return n > 0 ? n : 1;
    }

    double scale_, rest_;
};

// A row to give entries of. Where all lanes work on one row it is in shared memory: it would take many registers.
struct RowRecord {
    const Index* columns;
    const Real* weights;
    int64_t begin, degree;  // in A
    int64_t vertex, batch_id;
    int64_t out, length;  // where its entries go in the result, and how many it gives
    int plan;
};

// Where results go: ends (Q_rows + 1), and plans of the first pass. positions and weights may be null.
struct Results {
    const int64_t* ends;
    const int16_t* plans;
    Index* columns;
    int64_t* positions;
    Real* weights;

    __device__ void write(const RowRecord& row, int64_t number, int64_t entry) const {
        const int64_t out = row.out + number;
        columns[out] = row.columns[entry];
        if (positions) positions[out] = row.begin + entry;
        if (weights) weights[out] = row.weights[entry];
    }
};

__device__ inline RowRecord record_of(
    const Rows& A, const Weights& weights, const Selector& Q, const Results& results, int64_t r, int64_t row, int64_t degree) {
    const int64_t out = results.ends[r], length = results.ends[r + 1] - out;
    return {A.columns(row), weights.row(A, row), A.begin(row), degree, A.vertex(row), Q.batch_ids[Q.batch_of(r)], out, length,
            results.plans[r]};
}

// No state is kept from draw to draw: what a stream holds ready costs more registers than it saves time.
__device__ inline DrawStream draws_of(const DrawArguments& how, const RowRecord& row, uint64_t initial_total) {
    return DrawStream(how.key, row.vertex, how.hop, row.batch_id, initial_total);
}

}  // namespace spsample
