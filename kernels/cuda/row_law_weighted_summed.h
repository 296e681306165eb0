// Sums of rows' numerators that are kept with A, and draws by them.
//
// A's entries, in their order, are cut into sections of kSumsEvery. Where a row goes on from one section to the next, the sum of its
// numerators before that section stands in `sums`: its element number e / kSumsEvery is that of entry e. A section's first entry is
// in one row, so that the rows share one array without a gap.
#pragma once

#include "row_law_weighted_rows.h"

namespace spsample {

constexpr int64_t kSumsEvery = 8;  // as SUMS_EVERY in Python: 32 bytes of float weights, which is what a GPU reads at least

// A row by its sums. The record lies in shared memory, as registers are few.
class SummedRow {
public:
    __device__ SummedRow(const RowRecord& row, const uint64_t* sums) : row_(row), sums_(sums) {}

    __device__ uint64_t numerator(int64_t entry) const { return Quantizer(row_.plan)(row_.weights[entry]); }

    // Sum of the numerators before an entry.
    __device__ uint64_t before(int64_t entry) const {
        const int64_t section = section_of(entry);
        uint64_t sum = section > 0 ? sums_[row_.begin / kSumsEvery + section] : 0;
#pragma unroll 1
        for (int64_t other = first_of(section); other < entry; ++other) sum += numerator(other);
        return sum;
    }

    // The position of unit x of [0, T). O(log degree).
    __device__ int64_t position_of(uint64_t x) const {
        const uint64_t* const sums = sums_ + row_.begin / kSumsEvery;
        Sections<int64_t> many = {0, section_of(row_.degree - 1), 0};
        many.narrow(sums, x, kMostInt);
        Sections<int> few = {0, static_cast<int>(many.rest), many.sum};
        few.narrow(sums + many.found, x, 0);
        const int64_t section = many.found + few.found;
        return first_of(section) + passed(section, x - few.sum);
    }

private:
    static constexpr int64_t kMostInt = 0x7FFFFFFE;

    // The search for the last section whose sum does not exceed x: one that is it or before it, with its sum, and how many behind it
    // are left to look at. Most of a draw's instructions are here, so that numbers have 32 bits where these suffice.
    template <class Number>
    struct Sections {
        Number found, rest;
        uint64_t sum;

        __device__ void narrow(const uint64_t* sums, uint64_t x, Number until) {
#pragma unroll 1
            while (rest > until) {
                const Number half = rest / 2, middle = found + half + 1;
                const uint64_t here = sums[middle];
                const bool passes = here <= x;
                rest = passes ? rest - half - 1 : half;
                found = passes ? middle : found;
                sum = passes ? here : sum;
            }
        }
    };

    // Sections are counted from the row's first, which begins before the row does.
    __device__ int64_t section_of(int64_t entry) const { return (row_.begin % kSumsEvery + entry) / kSumsEvery; }
    __device__ int64_t first_of(int64_t section) const {
        const int64_t first = section * kSumsEvery - row_.begin % kSumsEvery;
        return first > 0 ? first : 0;
    }

    // How many entries of a section come before unit x of its sum. Reads them all at once.
    __device__ int passed(int64_t section, uint64_t x) const {
        const int64_t first = first_of(section), next = first_of(section + 1);
        const int number = static_cast<int>((next < row_.degree ? next : row_.degree) - first);
        Real weights[kSumsEvery];
        read(row_.weights + first, number, weights);
        const Quantizer quantizer(row_.plan);
        uint64_t sum = 0;
        int result = 0;
#pragma unroll
        for (int i = 0; i < kSumsEvery; ++i) {
            sum += quantizer(weights[i]);
            result += sum <= x ? 1 : 0;
        }
        return result;
    }

    // Weights as one access reads them.
    struct alignas(16) Piece {
        Real weights[16 / sizeof(Real)];
    };

    // The first `number` weights, and 0 behind them.
    __device__ static void read(const Real* from, int number, Real (&weights)[kSumsEvery]) {
        if (number == kSumsEvery && reinterpret_cast<uint64_t>(from) % sizeof(Piece) == 0) {
            constexpr int kOf = sizeof(Piece) / sizeof(Real);
            const Piece* pieces = reinterpret_cast<const Piece*>(from);
#pragma unroll
            for (int piece = 0; piece < kSumsEvery / kOf; ++piece) {
                const Piece here = pieces[piece];
#pragma unroll
                for (int i = 0; i < kOf; ++i) weights[piece * kOf + i] = here.weights[i];
            }
        } else {
#pragma unroll
            for (int i = 0; i < kSumsEvery; ++i) weights[i] = i < number ? from[i] : 0;
        }
    }

    const RowRecord& row_;
    const uint64_t* sums_;
};

}  // namespace spsample
