// compaction_new_vertices.h in AVX-512, 512 vertices at a time (lanes_avx512.h says how such a file is compiled).
#include "compaction_new_vertices_loops.h"

#if SPSAMPLE_X86

#include "vertices_avx512.h"

// Beside what all AVX-512 files use: counting the bits of 16 words at a time.
#define SPSAMPLE_COUNTING target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,avx2,bmi,bmi2,lzcnt,popcnt")
#define SPSAMPLE_AVX512_COUNTING __attribute__((SPSAMPLE_COUNTING))
#define SPSAMPLE_AVX512_COUNTING_INLINE __attribute__((SPSAMPLE_COUNTING, always_inline)) static inline

namespace spsample {
namespace {

using avx512::write_vertices;

// Writes the places of 16 words of 32 bits; returns the next place.
SPSAMPLE_AVX512_COUNTING_INLINE uint32_t write_places16(__m512i bits, RankedWord* places, uint32_t first) {
    const __m512i counts = _mm512_popcnt_epi32(bits);
    const __m512i sums = avx512::prefix_sums(counts);
    const __m512i ranks = _mm512_add_epi32(_mm512_sub_epi32(sums, counts), _mm512_set1_epi32(static_cast<int>(first)));
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_storeu_si512(places, _mm512_permutex2var_epi32(bits, low, ranks));
    _mm512_storeu_si512(places + 8, _mm512_permutex2var_epi32(bits, high, ranks));
    return first + static_cast<uint32_t>(_mm_extract_epi32(_mm512_extracti32x4_epi32(sums, 3), 3));
}

template <class Index>
SPSAMPLE_AVX512_COUNTING int64_t take(const NewSet& set, Index* out, uint32_t first) {
    const Index* const begin = out;
    for (int64_t eight = 0; eight < set.num_words; eight += 8) {  // num_words is a multiple of 8
        const __m512i bits = _mm512_loadu_si512(set.bits + eight);
        unsigned rest = _mm512_test_epi64_mask(bits, bits);
        if (rest == 0) continue;
        first = write_places16(bits, set.places + 2 * eight, first);
        for (; rest != 0; rest &= rest - 1) {
            const int64_t w = eight + __builtin_ctz(rest);
            out = write_vertices(set.bits[w], w, out);
        }
        _mm512_storeu_si512(set.bits + eight, _mm512_setzero_si512());
    }
    return out - begin;
}

template <class Index>
SPSAMPLE_AVX512_COUNTING void relabel(
    const RankedWord* places, const HashMap<Index, Index>& targets, const Index* vertices, int64_t count, Index* local) {
    relabel_new_loop(places, targets, vertices, count, local);
}

}  // namespace

const NewSetFunctions<int32_t> kNewSetAvx512x32{take<int32_t>, relabel<int32_t>};
const NewSetFunctions<int64_t> kNewSetAvx512x64{take<int64_t>, relabel<int64_t>};

}  // namespace spsample

#endif
