// drop_numbers, drop_rectified, scale_where_positive: dropout (after ReLU) whose mask follows from a key, so that it need not be kept for the way back.
//
// x, out (count,). O(count), in parallel. Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC'11.
#include "dropout.h"

#include <algorithm>
#include <cstring>

#include "bindings.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kNumbers = 1 << 14;  // of a chunk, whole groups
constexpr int kPerWord = 16;           // counters of a group

struct Choice {
    DropNumbers portable, avx2, avx512;
};

#if SPSAMPLE_X86
constexpr Choice kAllNumbers{drop_numbers_portable, drop_numbers_avx2, drop_numbers_avx512};
constexpr Choice kRectifiedNumbers{drop_rectified_portable, drop_rectified_avx2, drop_rectified_avx512};
#else
constexpr Choice kAllNumbers{drop_numbers_portable, nullptr, nullptr};
constexpr Choice kRectifiedNumbers{drop_rectified_portable, nullptr, nullptr};
#endif

DropNumbers chosen(const Choice& choice) {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return choice.avx512;
    if (&instruction_set() == &kAvx2) return choice.avx2;
#endif
    return choice.portable;
}

template <const Choice& choice>
void drop(const In<float>& x, std::pair<uint32_t, uint32_t> key, uint32_t least, float scale, const InOut<float>& out) {
    const int64_t count = static_cast<int64_t>(x.size());
    require(x.size() == out.size(), "out", "needs one element per number");
    require(x.size() == 0 || x.data() != out.data(), "out", "must not be x: a group may be dropped twice");
    const PhiloxKey words{key.first, key.second};
    const DropoutRule rule{words, RoundKeys(words), least, scale};
    const float* const from = x.data();
    float* const to = out.data();
    const nb::gil_scoped_release release;
    const ThreadsFor threads(count);
    const DropNumbers numbers = chosen(choice);
    parallel_chunks(count, kNumbers, [&](int64_t begin, int64_t end) { numbers(rule, from, begin, end, to); });
}

// Masks of all bits or none: a loop without a branch, since which numbers are dropped cannot be foreseen.
void scale_numbers(const float* x, const float* where, float scale, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) {
        const float scaled = x[i] * scale;
        uint32_t bits;
        std::memcpy(&bits, &scaled, sizeof(bits));
        bits &= where[i] <= 0 ? 0u : ~0u;
        std::memcpy(out + i, &bits, sizeof(bits));
    }
}

void scale_where_positive(const In<float>& x, const In<float>& where, float scale, const InOut<float>& out) {
    const int64_t count = static_cast<int64_t>(x.size());
    require(x.size() == out.size(), "out", "needs one element per number");
    require(x.size() == where.size(), "where", "needs one element per number");
    const float *const from = x.data(), *const positive = where.data();
    float* const to = out.data();
    const nb::gil_scoped_release release;
    const ThreadsFor threads(count);
    parallel_chunks(count, kNumbers, [&](int64_t begin, int64_t end) {
        scale_numbers(from + begin, positive + begin, scale, end - begin, to + begin);
    });
}

// Half `half` of the four words: 16 bits.
uint32_t half_of(const PhiloxWords& words, int64_t half) { return words.w[half / 2] >> (16 * (half % 2)) & 0xFFFF; }

// Words of the counter (counter, part, 0).
PhiloxWords words_of(const DropoutRule& rule, uint64_t counter, uint32_t part) {
    return philox4x32_10({{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), part, 0}}, rule.key);
}

template <class Numbers>
void drop_by_groups(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out, const Numbers& number) {
    for (int64_t first = begin; first < end; first += kDropoutGroup) {
        for (int lane = 0; lane < kPerWord && first + lane < end; ++lane) {
            const uint64_t counter = static_cast<uint64_t>(first / kDropoutGroup * kPerWord + lane);
            const PhiloxWords words = words_of(rule, counter, 0);
            for (int64_t half = 0, i = first + lane; half < 8 && i < end; ++half, i += kPerWord) {
                uint32_t bits = half_of(words, half) << 16;
                if (bits == rule.least_upper() && !rule.upper_bits_decide()) bits |= half_of(words_of(rule, counter, 1), half);
                out[i] = bits >= rule.least ? number(x[i]) * rule.scale : 0.0f;
            }
        }
    }
}

}  // namespace

void drop_numbers_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_by_groups(rule, x, begin, end, out, [](float number) { return number; });
}

void drop_rectified_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_by_groups(rule, x, begin, end, out, [](float number) { return number <= 0 ? 0.0f : number; });
}

void bind_dropout(nb::module_& m) {
    m.def("drop_numbers", &drop<kAllNumbers>, nb::arg("x").noconvert(), nb::arg("key"), nb::arg("least"), nb::arg("scale"), nb::arg("out"),
          "out = x * scale where the number's bits are at least `least`, else 0; bits follow from the key and the place.");
    m.def("drop_rectified", &drop<kRectifiedNumbers>, nb::arg("x").noconvert(), nb::arg("key"), nb::arg("least"), nb::arg("scale"),
          nb::arg("out"), "As drop_numbers, of max(x, 0).");
    m.def("scale_where_positive", &scale_where_positive, nb::arg("x").noconvert(), nb::arg("where").noconvert(), nb::arg("scale"),
          nb::arg("out"), "out = x * scale where `where` is above 0 or NaN, else 0: the way back through drop_rectified, `where` its result.");
}

}  // namespace spsample
