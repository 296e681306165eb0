// Inverse transform sampling over one row whose numerators are computed as they are read: prefix sums of sections of the row are
// kept in shared memory, and what lies inside of a section is found by reading it again.
#pragma once

#include "teams.h"

namespace spsample {

constexpr int kSectionEntries = 256;  // a section has a multiple of it
constexpr int kWarpSections = 32;     // of a row that one warp reads
constexpr int kBlockSections = 1024;  // of a row that a block reads
constexpr int64_t kLongRow = kSectionEntries * kWarpSections;  // rows of more entries are for blocks

// A numerator is a function of an entry's position within the row. Every thread of the team calls each method together with the
// others and with equal arguments, but for x, which are those of one warp's lanes and the same in every warp.
//   ends    room for kMost sums, in shared memory
//   found   room for 32 positions, in shared memory; not used by one warp
template <class Team>
class RowSections {
public:
    using Entry = typename Team::Entry;
    static constexpr int kMost = Team::kWarps == 1 ? kWarpSections : kBlockSections;

    __device__ RowSections(const Team& team, uint64_t* ends, int64_t* found, Entry degree)
        : team_(team), ends_(ends), found_(found), degree_(degree) {
        constexpr Entry kStep = kSectionEntries * kMost;
        length_ = kSectionEntries * ((degree + kStep - 1) / kStep);
        count_ = static_cast<int>((degree + length_ - 1) / length_);
    }

    __device__ int count() const { return count_; }
    __device__ Entry first(int section) const { return section * length_; }
    __device__ Entry last(int section) const { return section + 1 < count_ ? (section + 1) * length_ : degree_; }
    // Sum of the sections before this one, where there are several.
    __device__ uint64_t before(int section) const { return section > 0 ? ends_[section - 1] : 0; }

    // Sums up all numerators; returns their total. Reads the row once, a section at a time. degree > 0.
    template <class Numerator>
    __device__ uint64_t fill(const Numerator& numerator) {
        if (count_ == 1) {
            only_ = portions(0, numerator);
            return __shfl_sync(kAllLanes, only_.end, kWarp - 1);
        }
        for (int section = team_.warp(); section < count_; section += Team::kWarps) {
            const Entry stop = last(section);
            const uint64_t sum = reduce_in_warp(sum_of(numerator, first(section) + lane_index(), stop, kWarp), kWarp, Sum());
            if (lane_index() == 0) ends_[section] = sum;
        }
        team_.sync();
        if (team_.warp() == 0) add_up();
        team_.sync();
        return ends_[count_ - 1];
    }

    // The position of unit x of [0, total), for each lane that draws. One warp reads each section that is drawn from.
    template <class Numerator>
    __device__ Entry position_of(uint64_t x, bool draws, const Numerator& numerator) const {
        if (count_ == 1) return find(only_, x, draws, numerator);
        const int mine = draws ? section_of(x) : 0;
        Entry position = 0;
        int turn = 0;
        for (unsigned rest = __ballot_sync(kAllLanes, draws); rest != 0; ++turn) {
            const int section = __shfl_sync(kAllLanes, mine, __ffs(rest) - 1);
            const bool here = draws && mine == section;
            rest &= ~__ballot_sync(kAllLanes, here);
            if (turn % Team::kWarps != team_.warp()) continue;
            const Entry candidate = find(portions(section, numerator), here ? x - before(section) : 0, here, numerator);
            if (!here) continue;
            position = candidate;
            if (Team::kWarps > 1) found_[lane_index()] = candidate;
        }
        if (Team::kWarps == 1) return position;
        team_.sync();
        position = static_cast<Entry>(found_[lane_index()]);
        team_.sync();
        return position;
    }

private:
    // A section in 32 portions, one a lane: its first entry, and the sum of this portion and those before it.
    struct Portions {
        Entry first, last, length;  // of the section; entries of a portion
        uint64_t begin, end;          // sums before and after this lane's
    };

    // Sum over every step-th entry of [entry, stop). Reads four weights at a time, the last ones too: without copies of the loop for
    // what is left over.
    template <class Numerator>
    __device__ static uint64_t sum_of(const Numerator& numerator, Entry entry, Entry stop, Entry step) {
        constexpr int kAtOnce = 4;
        uint64_t sum = 0;
        if (numerator.takes_out()) {
#pragma unroll 1
            for (Entry other = entry; other < stop; other += step) sum -= numerator.taken_out(other);
        }
#pragma unroll 1
        for (; entry < stop; entry += kAtOnce * step) {
            typename Numerator::Weight weights[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) weights[i] = entry + i * step < stop ? numerator.weight(entry + i * step) : 0;
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) sum += numerator.of(weights[i]);
        }
        return sum;
    }

    template <class Numerator>
    __device__ Portions portions(int section, const Numerator& numerator) const {
        Portions row = {first(section), last(section), 0, 0, 0};
        row.length = (row.last - row.first + kWarp - 1) / kWarp;
        const Entry begin = row.first + lane_index() * row.length;
        const Entry stop = begin + row.length < row.last ? begin + row.length : row.last;
        const uint64_t sum = sum_of(numerator, begin, stop, 1);
        row.end = inclusive_in_warp(sum);
        row.begin = row.end - sum;
        return row;
    }

    // The position of unit x of the section's sum: first the portion, then the entry, which a drawing lane walks to by itself.
    template <class Numerator>
    __device__ Entry find(const Portions& row, uint64_t x, bool draws, const Numerator& numerator) const {
        int lane = 0;
        for (int step = kWarp / 2; step > 0; step /= 2) {
            const uint64_t end = __shfl_sync(kAllLanes, row.end, lane + step - 1);
            if (end <= x) lane += step;
        }
        const uint64_t before = __shfl_sync(kAllLanes, row.begin, lane);
        Entry entry = row.first + lane * row.length;
        if (!draws || row.length == 1) return entry;
#pragma unroll 1
        for (uint64_t rest = x - before; entry + 1 < row.last; ++entry) {
            const uint64_t here = numerator(entry);
            if (rest < here) break;
            rest -= here;
        }
        return entry;
    }

    __device__ int section_of(uint64_t x) const {
        int section = 0;
        for (int rest = count_; rest > 0;) {
            const int half = rest / 2;
            if (ends_[section + half] <= x) {
                section += half + 1;
                rest -= half + 1;
            } else {
                rest = half;
            }
        }
        return section;
    }

    // From the sums of sections to inclusive prefix sums: one warp.
    __device__ void add_up() const {
        uint64_t carry = 0;
        for (int base = 0; base < count_; base += kWarp) {
            const int section = base + lane_index();
            const uint64_t sum = carry + inclusive_in_warp(section < count_ ? ends_[section] : 0);
            if (section < count_) ends_[section] = sum;
            carry = __shfl_sync(kAllLanes, sum, kWarp - 1);
        }
    }

    Team team_;
    uint64_t* ends_;
    int64_t* found_;
    Entry degree_, length_;
    int count_;
    Portions only_ = {};
};

}  // namespace spsample
