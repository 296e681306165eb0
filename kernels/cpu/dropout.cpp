// drop_numbers: dropout whose mask follows from a key, so that it need not be kept for the way back.
//
// x, out (count,). O(count), in parallel. Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC'11.
#include "dropout.h"

#include <algorithm>

#include "bindings.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kNumbers = 1 << 14;  // of a chunk, whole groups
constexpr int kPerWord = 16;           // counters of a group

DropNumbers drop_function() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return drop_numbers_avx512;
    if (&instruction_set() == &kAvx2) return drop_numbers_avx2;
#endif
    return drop_numbers_portable;
}

void drop_numbers(const In<float>& x, std::pair<uint32_t, uint32_t> key, uint32_t least, float scale, const InOut<float>& out) {
    const int64_t count = static_cast<int64_t>(x.size());
    require(x.size() == out.size(), "out", "needs one element per number");
    const PhiloxKey words{key.first, key.second};
    const DropoutRule rule{words, RoundKeys(words), least, scale};
    const float* const from = x.data();
    float* const to = out.data();
    const nb::gil_scoped_release release;
    const ThreadsFor threads(count);
    const DropNumbers drop = drop_function();
    parallel_chunks(count, kNumbers, [&](int64_t begin, int64_t end) { drop(rule, from, begin, end, to); });
}

}  // namespace

void drop_numbers_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    for (int64_t first = begin; first < end; first += kDropoutGroup) {
        for (int lane = 0; lane < kPerWord && first + lane < end; ++lane) {
            const uint64_t counter = static_cast<uint64_t>(first / kDropoutGroup * kPerWord + lane);
            const PhiloxWords words =
                philox4x32_10({{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}}, rule.key);
            for (int64_t word = 0, i = first + lane; word < 4 && i < end; ++word, i += kPerWord) {
                out[i] = words.w[word] >= rule.least ? x[i] * rule.scale : 0.0f;
            }
        }
    }
}

void bind_dropout(nb::module_& m) {
    m.def("drop_numbers", &drop_numbers, nb::arg("x").noconvert(), nb::arg("key"), nb::arg("least"), nb::arg("scale"), nb::arg("out"),
          "out = x * scale where the number's word is at least `least`, else 0; words follow from the key and the place.");
}

}  // namespace spsample
