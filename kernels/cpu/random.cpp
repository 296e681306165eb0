// Philox words and the shuffled order (docs/law.md, sections 1 and 5).
#include "spsample/philox.h"

#include <algorithm>
#include <vector>

#include "bindings.h"

namespace spsample {
namespace {

// counters (r, 4) -> words (r, 4); O(r).
nb::object philox(const InRows<uint32_t, 4>& counters, uint32_t key0, uint32_t key1) {
    const int64_t rows = static_cast<int64_t>(counters.rows());
    Buffer<uint32_t> words(checked_product(rows, 4));
    {
        nb::gil_scoped_release release;
        const uint32_t* in = counters.data();
        uint32_t* out = words.data();
        parallel_chunks(rows, 4096, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                const PhiloxWords c = {{in[4 * r], in[4 * r + 1], in[4 * r + 2], in[4 * r + 3]}};
                const PhiloxWords w = philox4x32_10(c, {key0, key1});
                std::copy(w.w, w.w + 4, out + 4 * r);
            }
        });
    }
    return to_numpy(std::move(words), {rows, 4});
}

// The first two words of one counter.
std::pair<uint32_t, uint32_t> philox_key(uint64_t low, uint32_t third, uint64_t key) {
    const auto half = [](uint64_t word, int i) { return static_cast<uint32_t>(word >> 32 * i); };
    const PhiloxWords words = philox4x32_10({{half(low, 0), half(low, 1), third, 0}}, {half(key, 0), half(key, 1)});
    return {words.w[0], words.w[1]};
}

struct KeyedPosition {
    uint64_t word;
    int64_t position;
    bool operator<(const KeyedPosition& other) const {
        return word != other.word ? word < other.word : position < other.position;
    }
};

KeyedPosition keyed(int64_t position, PhiloxKey key) {
    const uint64_t p = static_cast<uint64_t>(position);
    const PhiloxWords w = philox4x32_10({{static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), 0, 0}}, key);
    return {wide_word(w.w[0], w.w[1]), position};
}

constexpr int64_t kBucketSize = 1024;

// Bits of the word that number the bucket: about kBucketSize words in each, at most 2^16 buckets.
int bucket_bits(int64_t count) {
    int bits = 0;
    while (bits < 16 && (count >> bits) > kBucketSize) ++bits;
    return bits;
}

// Sorts by the high bits first (one counting pass), then each bucket by itself. `buckets` gets the bucket bounds.
Buffer<KeyedPosition> bucketed(int64_t count, PhiloxKey key, int bits, std::vector<int64_t>& bounds) {
    Buffer<KeyedPosition> in_order(count), sorted(count);
    parallel_chunks(count, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) in_order[i] = keyed(i, key);
    });
    const auto bucket = [bits](uint64_t word) { return bits == 0 ? size_t(0) : static_cast<size_t>(word >> (64 - bits)); };
    bounds.assign((size_t(1) << bits) + 1, 0);
    for (int64_t i = 0; i < count; ++i) ++bounds[bucket(in_order[i].word) + 1];
    for (size_t b = 1; b < bounds.size(); ++b) bounds[b] += bounds[b - 1];
    std::vector<int64_t> next(bounds.begin(), bounds.end() - 1);
    for (int64_t i = 0; i < count; ++i) sorted[next[bucket(in_order[i].word)]++] = in_order[i];
    return sorted;
}

// Positions 0 .. count - 1 by their 64-bit word, ties by position. O(count log kBucketSize) expected up to 2^26 positions.
nb::object shuffle(int64_t count, uint32_t key0, uint32_t key1) {
    require(count >= 0, "count", "must not be negative");
    Buffer<int64_t> order(count);
    {
        nb::gil_scoped_release release;
        std::vector<int64_t> bounds;
        Buffer<KeyedPosition> words = bucketed(count, {key0, key1}, bucket_bits(count), bounds);
        parallel_chunks(static_cast<int64_t>(bounds.size()) - 1, 16, [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; ++b) std::sort(words.data() + bounds[b], words.data() + bounds[b + 1]);
            for (int64_t i = bounds[begin]; i < bounds[end]; ++i) order[i] = words[i].position;
        });
    }
    return to_numpy(std::move(order));
}

}  // namespace

void bind_random(nb::module_& m) {
    m.def("philox", &philox, nb::arg("counters"), nb::arg("key0"), nb::arg("key1"));
    m.def("philox_key", &philox_key, nb::arg("low"), nb::arg("third"), nb::arg("key"),
          "Words 0 and 1 of Philox of the counter (low as two words, third, 0).");
    m.def("draw_count", [](uint64_t initial_total) { return DrawStream({0, 0}, 0, 0, 0, initial_total).count(); },
          nb::arg("initial_total"), "Draw numbers of a row with this total are below this.");
    m.def("shuffle", &shuffle, nb::arg("count"), nb::arg("key0"), nb::arg("key1"));
}

}  // namespace spsample
