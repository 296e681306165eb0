// Words of bit sets, for the AVX2 files (lanes_avx2.h says how such a file is compiled).
#pragma once

#include "lanes_avx2.h"
#include "simd.h"
#include "simd_ranks.h"

namespace spsample::avx2 {

// Bit w: whether word w of 64 is not empty in one of two sets.
SPSAMPLE_AVX2_INLINE uint64_t nonempty_words(const uint64_t* one, const uint64_t* other) {
    const __m256i none = _mm256_setzero_si256();
    uint64_t empty = 0;
#pragma GCC unroll 16
    for (int w = 0; w < 64; w += 4) {
        const __m256i four = _mm256_or_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(one + w)),
                                             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(other + w)));
        const int mask = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(four, none)));
        empty |= static_cast<uint64_t>(static_cast<unsigned>(mask)) << w;
    }
    return ~empty;
}

// As take_new_loop, four vertices of a word at a time, whether it has so many or not: what is too much, and what is not new, is written
// over. So branches are foreseen, of which there would else be one or two for each word.
template <class Index>
SPSAMPLE_AVX2_INLINE int64_t take_new_by_fours(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    const Index* const begin = out;
    uint32_t rank = 0;
    for (int64_t group = 0; group < sets.num_words; group += kWordsPerGroup) {
        for (uint64_t nonempty = nonempty_words(sets.found + group, sets.known + group); nonempty != 0; nonempty = _blsr_u64(nonempty)) {
            const int64_t w = group + static_cast<int64_t>(_tzcnt_u64(nonempty));
            const TakenWord word = take_word(sets, w, &rank);
            uint64_t rest = word.all;
            for (uint32_t done = word.rank; done < rank; done += 4) {
#pragma GCC unroll 4
                for (uint32_t i = 0; i < 4; ++i) {
                    const uint64_t bit = _tzcnt_u64(rest);  // 64 where none is left, which is not new
                    const uint32_t is_new = static_cast<uint32_t>(_bextr_u64(word.added, static_cast<unsigned>(bit), 1));
                    *out = static_cast<Index>(64 * static_cast<uint64_t>(w) + bit);
                    places[done + i] = first;
                    out += is_new;
                    first += is_new;
                    rest = _blsr_u64(rest);
                }
            }
        }
    }
    return out - begin;
}

}  // namespace spsample::avx2
