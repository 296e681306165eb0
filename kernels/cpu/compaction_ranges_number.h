// number: a batch range by range. Included by each of compaction_ranges*.cpp, which says what SPSAMPLE_RANGES and
// SPSAMPLE_RANGES_INLINE mark functions with, and brings nonempty_words (of a group of 64 words, as bits) and lowest_or_64 (bit of a word,
// 64 where there is none).

// The next N vertices of a word, whether there are so many or not: what is too much is written over.
template <int N, class Index>
SPSAMPLE_RANGES_INLINE uint64_t write_some(uint64_t bits, uint64_t first, uint32_t* places, Index* out, uint32_t place) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
        const uint64_t bit = lowest_or_64(bits);
        out[i] = static_cast<Index>(first + bit);
        places[bit] = place + static_cast<uint32_t>(i);
        bits &= bits - 1;
    }
    return bits;
}

// Takes a group, `nonempty` of whose words are not empty: its new vertices, ascending, go to `so_far`, and get places. Few words have more
// than three, so that branches are foreseen.
template <class Index>
SPSAMPLE_RANGES_INLINE void take_group(const Group& group, uint64_t nonempty, NewSoFar<Index>& so_far) {
    for (; nonempty != 0; nonempty &= nonempty - 1) {
        const int w = lowest_bit(nonempty);
        const uint64_t added = std::exchange(group.bits[w], 0), first = group.first + 64 * static_cast<uint64_t>(w);
        uint32_t* const places = group.places + 64 * w;
        const int count = static_cast<int>(bits_set(added));
        uint64_t rest = write_some<3>(added, first, places, so_far.end, so_far.place);
        for (int done = 3; done < count; done += 4) {
            rest = write_some<4>(rest, first, places, so_far.end + done, so_far.place + static_cast<uint32_t>(done));
        }
        so_far.end += count;
        so_far.place += static_cast<uint32_t>(count);
    }
}

template <class Index>
SPSAMPLE_RANGES RangeOutcome number(const RangeBatch<Index>& batch, const RangeMemory& memory) {
    const int64_t length = int64_t(1) << batch.ranges.shift;
    const bool few = has_few_entries(batch);
    spread_entries(batch, memory);
    spread_targets(batch, memory);
    NewSoFar<Index> so_far{batch.vertices, static_cast<uint32_t>(batch.num_targets)};
    bool distinct = true;
    for (int64_t r = 0; r < batch.ranges.count; ++r) {
        const RangeSpan span = span_of(memory, r);
        few ? mark_range<true>(span, memory) : mark_range<false>(span, memory);
        for (int64_t g = 0; g < length / kGroup; ++g) {
            const Group group{memory.bits + 64 * g, static_cast<uint64_t>(r * length + g * kGroup), memory.places + g * kGroup};
            const uint64_t nonempty = few ? std::exchange(memory.words[g], 0) : nonempty_words(group.bits);
            take_group(group, nonempty, so_far);
        }
        distinct &= place_range(span, memory.places);
    }
    fetch_places(batch, memory);
    return {so_far.end - batch.vertices, distinct};
}
