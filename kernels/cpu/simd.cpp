// The portable implementations, and the choice among instruction sets.
#include "simd.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "simd_ranks.h"
#include "spsample/row_law.h"

namespace spsample {

void draw_lane(const LaneDraw& how, Lanes& lanes, int lane) {
    const int64_t degree = lanes.degree[lane];
    const uint64_t vertex = wide_word(lanes.vertex_low[lane], lanes.vertex_high[lane]);
    DrawStream draws(how.key, vertex, how.hop, lanes.batch_id[lane], static_cast<uint64_t>(degree));
    int64_t positions[kMostVectorDraws];
    if (how.replace) {
        uniform_repeated(degree, how.size, draws, positions);
    } else {
        Chosen chosen{positions, 0, {nullptr, nullptr, 0}};
        floyd(degree, how.size, draws, chosen);
    }
    for (int j = 0; j < how.size; ++j) lanes.positions[j][lane] = static_cast<uint32_t>(positions[j]);
}

namespace {

void draw_lanes(const LaneDraw& how, Lanes& lanes) {
    for (int lane = 0; lane < kLanes; ++lane) draw_lane(how, lanes, lane);
}

template <class Index>
IdRange<Index> id_range(const Index* ids, int64_t count) {
    return id_range_loop(ids, count);
}

template <class Index>
int64_t take_new(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    return take_new_loop(sets, out, first, places);
}

template <class Index>
void place(const RankedWord* ranks, const Index* vertices, int64_t count, uint32_t first, uint32_t* places) {
    place_loop(ranks, vertices, count, first, places);
}

template <class Index>
void relabel(const RankedWord* ranks, const uint32_t* places, const Index* vertices, int64_t count, Index* local) {
    relabel_loop(ranks, places, vertices, count, local);
}

const InstructionSet kPortable{
    "portable", draw_lanes, {id_range<int32_t>, take_new<int32_t>, place<int32_t>, relabel<int32_t>},
    {id_range<int64_t>, take_new<int64_t>, place<int64_t>, relabel<int64_t>}};

#if SPSAMPLE_X86
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("f16c");
}

// As from Ice Lake and Zen 4 on: what came before is not much faster in AVX-512 than in AVX2.
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

// The named set where the machine has it, else null.
const InstructionSet* available(const char* name) {
    if (std::strcmp(name, kPortable.name) == 0) return &kPortable;
#if SPSAMPLE_X86
    if (std::strcmp(name, kAvx2.name) == 0) return has_avx2() ? &kAvx2 : nullptr;
    if (std::strcmp(name, kAvx512.name) == 0) return has_avx512() ? &kAvx512 : nullptr;
#endif
    return nullptr;
}

// The best there is, or the one that SPSAMPLE_INSTRUCTION_SET names. Throws std::invalid_argument where it names another.
const InstructionSet* first_choice() {
    const char* wanted = std::getenv("SPSAMPLE_INSTRUCTION_SET");
    if (wanted && *wanted) {
        if (const InstructionSet* set = available(wanted)) return set;
        throw std::invalid_argument(
            std::string("SPSAMPLE_INSTRUCTION_SET: got '") + wanted + "'; expected avx512, avx2 or portable, as this machine has them");
    }
    for (const char* name : {"avx512", "avx2"}) {
        if (const InstructionSet* set = available(name)) return set;
    }
    return &kPortable;
}

std::atomic<const InstructionSet*>& chosen() {
    static std::atomic<const InstructionSet*> set{first_choice()};
    return set;
}

}  // namespace

const InstructionSet& instruction_set() { return *chosen().load(std::memory_order_relaxed); }

bool set_instruction_set(const char* name) {
    const InstructionSet* set = available(name);
    if (set) chosen().store(set);
    return set != nullptr;
}

}  // namespace spsample
