// A number that tells the contents of arrays apart.
#include <cstring>

#include "bindings.h"

namespace spsample {
namespace {

constexpr int64_t kWord = 8;
constexpr int64_t kChunk = 1 << 17;  // words
constexpr uint64_t kStep = 0x9E3779B97F4A7C15;

// A bijection of 64-bit words in which every bit depends on every other: the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
inline uint64_t mixed(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    return word ^ (word >> 31);
}

// Sum over words [begin, end) of `bytes`, whose first one has this number in the whole array.
inline uint64_t sum_of(const uint8_t* bytes, int64_t first, int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) {
        uint64_t word;
        std::memcpy(&word, bytes + i * kWord, kWord);
        sum += mixed(word + static_cast<uint64_t>(first + i + 1) * kStep);
    }
    return sum;
}

// Sum modulo 2^64 over the 64-bit words of an array, each mixed with its number, which is `first` for the first one; bytes after the last whole
// word are filled up with zeros. bytes: any length. O(length). Sums of parts add up, in any order: no result depends on the threads. One changed
// word always changes the sum; of other changes one in 2^64 does not.
uint64_t content_sum(const In<uint8_t>& bytes, int64_t first) {
    const nb::gil_scoped_release release;
    const int64_t length = static_cast<int64_t>(bytes.size()), words = length / kWord;
    std::atomic<uint64_t> sum{0};
    const ThreadsFor threads(words);
    parallel_chunks(words, kChunk, [&](int64_t begin, int64_t end) { sum += sum_of(bytes.data(), first, begin, end); });
    if (length > words * kWord) {
        uint8_t rest[kWord] = {};
        std::memcpy(rest, bytes.data() + words * kWord, static_cast<size_t>(length - words * kWord));
        sum += sum_of(rest, first + words, 0, 1);
    }
    return sum;
}

}  // namespace

void bind_content_sum(nb::module_& m) {
    m.def("content_sum", &content_sum, nb::arg("bytes").noconvert(), nb::arg("first"),
          "Sum modulo 2^64 over the words of an array, each mixed with its number.");
}

}  // namespace spsample
