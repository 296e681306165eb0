// What the memory of this machine gives at most: random cache lines per second, and bytes copied per second.
// Compiled by bench/limits.py on first use; no part of the package.

#include <omp.h>
#include <stdint.h>
#include <string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

constexpr uint64_t kAhead = 32;         // loads in flight per thread, by prefetching that many indices ahead
constexpr uint64_t kWordsPerLine = 8;   // 64-byte lines of 8-byte words

// Scatters consecutive counters over [0, lines): the high bits of a multiplication by an odd constant, mixed once.
inline uint64_t scattered(uint64_t counter, uint64_t lines) {
    uint64_t mixed = counter * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 29;
    mixed *= 0xBF58476D1CE4E5B9ull;
    return uint64_t((unsigned __int128)mixed * lines >> 64);
}

}  // namespace

extern "C" {

// Ask for huge pages for words[0, bytes) and touch them from the threads that will read them.
void prepare(uint64_t* words, uint64_t bytes, int threads) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 4096, begin = (reinterpret_cast<uintptr_t>(words) + page - 1) / page * page;
    madvise(reinterpret_cast<void*>(begin), bytes - page, MADV_HUGEPAGE);
#endif
    const int64_t count = int64_t(bytes / 8);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; ++i) words[i] = uint64_t(i);
}

// One word from each of `count` random lines of words[0, lines * 8), by all threads together; independent loads.
// The sum of the words is returned so that no load can be left out.
uint64_t random_lines(const uint64_t* words, uint64_t lines, uint64_t count, int threads) {
    uint64_t sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        const uint64_t thread = uint64_t(omp_get_thread_num()), all = uint64_t(omp_get_num_threads());
        const uint64_t begin = count * thread / all, end = count * (thread + 1) / all;
        for (uint64_t i = begin; i < end; ++i) {
            __builtin_prefetch(words + scattered(i + kAhead, lines) * kWordsPerLine);
            sum += words[scattered(i, lines) * kWordsPerLine];
        }
    }
    return sum;
}

// All words of each of `count` random rows of `row_words` words of words[0, rows * row_words), by all threads together. As many lines
// are in flight as with random_lines.
uint64_t random_rows(const uint64_t* words, uint64_t rows, uint64_t row_words, uint64_t count, int threads) {
    const uint64_t lines = (row_words + kWordsPerLine - 1) / kWordsPerLine;
    const uint64_t ahead = kAhead / lines > 1 ? kAhead / lines : 1;
    uint64_t sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        const uint64_t thread = uint64_t(omp_get_thread_num()), all = uint64_t(omp_get_num_threads());
        const uint64_t begin = count * thread / all, end = count * (thread + 1) / all;
        for (uint64_t i = begin; i < end; ++i) {
            const uint64_t* const next = words + scattered(i + ahead, rows) * row_words;
            for (uint64_t j = 0; j < row_words; j += kWordsPerLine) __builtin_prefetch(next + j);
            const uint64_t* const row = words + scattered(i, rows) * row_words;
            for (uint64_t j = 0; j < row_words; ++j) sum += row[j];
        }
    }
    return sum;
}

// Copies `bytes` in all from one half of the buffer to the other, round and round, each thread its own share.
void copy_bytes(char* buffer, uint64_t buffer_bytes, uint64_t bytes, int threads) {
    const uint64_t half = buffer_bytes / 2;
#pragma omp parallel num_threads(threads)
    {
        const uint64_t thread = uint64_t(omp_get_thread_num()), all = uint64_t(omp_get_num_threads());
        const uint64_t begin = half * thread / all, share = half * (thread + 1) / all - begin;
        uint64_t left = bytes * (thread + 1) / all - bytes * thread / all;
        while (left > 0) {
            const uint64_t now = left < share ? left : share;
            memcpy(buffer + half + begin, buffer + begin, now);
            left -= now;
        }
    }
}
}
