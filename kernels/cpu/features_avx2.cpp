// features_decoders.h in AVX2, 8 numbers at a time; memory is the limit, so that AVX-512 has no code of its own (lanes_avx2.h says how such a
// file is compiled).
#include "features_decoders.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"
#include "spsample/features.h"

#define SPSAMPLE_F16C __attribute__((target("avx2,f16c")))
#define SPSAMPLE_F16C_MEMBER __attribute__((target("avx2,f16c"), always_inline))

namespace spsample {
namespace {

constexpr int64_t kNumbers = 8;

// eight(j) writes out[j] .. out[j + 7]; one(j) writes out[j].
template <class Eight, class One>
__attribute__((target("avx2,f16c"), always_inline)) inline void decode(int64_t dim, const Eight& eight, const One& one) {
    int64_t j = 0;
    for (; j + kNumbers <= dim; j += kNumbers) eight(j);
    for (; j < dim; ++j) one(j);
}

SPSAMPLE_F16C void float16(const void* row, int64_t dim, const float*, void* result) {
    float* const out = static_cast<float*>(result);
    const uint16_t* const x = static_cast<const uint16_t*>(row);
    decode(
        dim,
        [=](int64_t j) SPSAMPLE_F16C_MEMBER {
            _mm256_storeu_ps(out + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + j))));
        },
        [=](int64_t j) SPSAMPLE_F16C_MEMBER { out[j] = FromHalf()(x[j], j); });
}

SPSAMPLE_F16C void bfloat16(const void* row, int64_t dim, const float*, void* result) {
    float* const out = static_cast<float*>(result);
    const uint16_t* const x = static_cast<const uint16_t*>(row);
    decode(
        dim,
        [=](int64_t j) SPSAMPLE_F16C_MEMBER {
            const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + j)));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + j), _mm256_slli_epi32(wide, 16));
        },
        [=](int64_t j) SPSAMPLE_F16C_MEMBER { out[j] = FromBFloat()(x[j], j); });
}

SPSAMPLE_F16C void int8(const void* row, int64_t dim, const float* scale, void* result) {
    float* const out = static_cast<float*>(result);
    const int8_t* const x = static_cast<const int8_t*>(row);
    decode(
        dim,
        [=](int64_t j) SPSAMPLE_F16C_MEMBER {
            const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + j)));
            _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_loadu_ps(scale + j)));
        },
        [=](int64_t j) SPSAMPLE_F16C_MEMBER { out[j] = FromInt8{scale}(x[j], j); });
}

}  // namespace

const RowDecoders kDecodersAvx2{float16, bfloat16, int8};

}  // namespace spsample

#endif
