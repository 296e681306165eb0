// add_symmetric_rows: sums over the columns of a symmetric A in fixed point (spsample/features/scores/column_sums.py).
#include "feature_symmetric.h"

#include <algorithm>

#include "bindings.h"
#include "fixed_point.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kRows = 1 << 10;      // of a chunk
constexpr int64_t kNumbers = 1 << 15;   // of a chunk
constexpr int64_t kTried = 64;          // entries whose reverses are looked for first

bool has_functions() {
#if SPSAMPLE_X86
    return &instruction_set() == &kAvx512;
#else
    return false;
#endif
}

void require_inside(bool is_inside) {
    if (!is_inside) throw std::out_of_range("columns: outside the sums");
}

// Whether some entries, far from each other, have reverses: most graphs that are not symmetric show it here.
bool may_be_symmetric(const CsrView<int32_t>& A) {
    const int64_t tried = std::min(kTried, A.num_entries);
    for (int64_t i = 0; i < tried; ++i) {
        const int64_t e = A.num_entries / tried * i;
        const int64_t u = std::upper_bound(A.indptr, A.indptr + A.num_rows + 1, e) - A.indptr - 1, v = A.indices[e];
        require_inside(v >= 0 && v < A.num_rows);
        const int32_t* const stop = A.indices + A.indptr[v + 1];
        if (std::find(A.indices + A.indptr[v], stop, static_cast<int32_t>(u)) == stop) return false;
    }
    return true;
}

// Numbers times a scale, rounded up and packed.
class Packed {
public:
    Packed(const double* numbers, int64_t count, double scale) {
        const int64_t largest = count ? rounded_up(*std::max_element(numbers, numbers + count) * scale) : 0;
        while (width_ < 8 && largest >> (8 * width_)) ++width_;
        bytes_ = Buffer<uint8_t>(width_ * count + kPast);
        parallel_chunks(count, kNumbers, [&](int64_t begin, int64_t end) {
            uint8_t* to = bytes_.data() + width_ * begin;
            for (int64_t v = begin; v < end; ++v, to += width_) {
                const int64_t number = rounded_up(numbers[v] * scale);
                const bool is_near_end = (end - v) * width_ < 8;  // of the chunk: what follows may be another thread's
                std::memcpy(to, &number, static_cast<size_t>(is_near_end ? width_ : 8));
            }
        });
        std::fill_n(bytes_.data() + width_ * count, kPast, uint8_t{0});
        numbers_ = {bytes_.data(), count, width_};
    }
    const PackedNumbers& numbers() const { return numbers_; }

private:
    static constexpr int64_t kPast = 16;  // bytes: a number of 0, and what is read with it

    int width_ = 1;
    Buffer<uint8_t> bytes_;
    PackedNumbers numbers_{};
};

#if SPSAMPLE_X86
bool add(const CsrView<int32_t>& A, const PackedNumbers& x, int64_t* sums) {
    Buffer<int64_t> y(A.num_rows);
    std::atomic<uint64_t> difference{0};
    parallel_chunks(A.num_rows, kRows, [&](int64_t begin, int64_t end) {
        uint64_t of_rows = 0;
        require_inside(add_columns_avx512(A, x, begin, end, y.data(), of_rows));
        difference += of_rows;
    });
    if (difference != 0) return false;
    parallel_chunks(A.num_rows, kNumbers, [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) sums[v] += y[v];
    });
    return true;
}
#endif

// What add_rows does for a symmetric A: sums[columns[e]] += ceil(scale numbers[r]) for the entries e of each row r. indptr (n + 1,), columns
// (entries,), numbers (n,): times `scale` at least 0 and, summed over a column, below 2^62; sums (n,). False, and nothing is added, where A is
// not symmetric, or the instruction set in use has nothing to do it sooner. O(rows + entries), in parallel.
bool add_symmetric_rows(
    const In<int64_t>& indptr, const In<int32_t>& columns, const In<double>& numbers, double scale, const InOut<int64_t>& sums) {
    const CsrView<int32_t> A = csr_view(indptr, columns);
    require(static_cast<int64_t>(numbers.size()) == A.num_rows, "numbers", "needs one element per row");
    require(static_cast<int64_t>(sums.size()) == A.num_rows, "sums", "needs one element per row");
    const nb::gil_scoped_release release;
    if (!has_functions() || !may_be_symmetric(A)) return false;
    const ThreadsFor threads(A.num_entries);
#if SPSAMPLE_X86
    return add(A, Packed(numbers.data(), A.num_rows, scale).numbers(), sums.data());
#else
    return false;
#endif
}

}  // namespace

void bind_feature_symmetric(nb::module_& m) {
    m.def("add_symmetric_rows", &add_symmetric_rows, nb::arg("indptr"), nb::arg("columns").noconvert(), nb::arg("numbers"),
          nb::arg("scale"), nb::arg("sums"), "Each entry of a symmetric matrix adds its row's number to its column; False for another matrix.");
}

}  // namespace spsample
