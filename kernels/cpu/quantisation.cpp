// From weights to integers: the exponents of rows (docs/law.md, section 2).
#include "bindings.h"
#include "parallel.h"
#include "spsample/quantisation.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 4096;

template <class Weights>
int32_t row_exponent(const Weights& weights, int64_t begin, int64_t end) {
    if (begin == end) return kNoExponent;
    return decompose(weights(begin, end - begin)).exponent;
}

template <class Real>
int32_t row_exponent(const ArrayWeights<Real>& weights, int64_t begin, int64_t end) {
    return exponent_range(weights.data + begin, end - begin).largest;
}

// exponents: num_rows elements. O(rows + entries).
nb::object row_exponents(const In<int64_t>& indptr, const std::optional<AnyIn>& data, bool row_normalized) {
    require(indptr.size() >= 1, "indptr", "needs at least one element");
    const int64_t num_rows = static_cast<int64_t>(indptr.size()) - 1;
    const int64_t* pointers = indptr.data();
    Buffer<int32_t> exponents(num_rows);
    with_weights(data, row_normalized, pointers[num_rows], [&](auto weights) {
        nb::gil_scoped_release release;
        parallel_chunks(num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) exponents[r] = row_exponent(weights, pointers[r], pointers[r + 1]);
        });
    });
    return to_numpy(std::move(exponents));
}

}  // namespace

void bind_quantisation(nb::module_& m) {
    m.def("row_exponents", &row_exponents, nb::arg("indptr"), nb::arg("data").noconvert().none(),
          nb::arg("row_normalized"), "Largest binary exponent of each row's positive entries.");
    m.def(
        "quantize", [](double w, int64_t shift, int power) { return quantize(w, shift, power); }, nb::arg("weight"),
        nb::arg("shift"), nb::arg("power"), "Numerator of one weight under exponent K = shift and entry power 1 or 2.");
    m.def(
        "row_shift",
        [](const In<double>& weights) { return row_shift(weights.data(), static_cast<int64_t>(weights.size())); },
        nb::arg("weights"), "The row rule's exponent K of one row of weights.");
}

}  // namespace spsample
