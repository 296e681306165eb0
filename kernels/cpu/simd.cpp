// The portable implementations, and the choice among instruction sets.
#include "simd.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "spsample/row_law.h"

namespace spsample {

void draw_lane(const LaneDraw& how, Lanes& lanes, int lane) {
    const int64_t degree = lanes.degree[lane];
    if (!how.replace && degree <= how.size) {
        for (int j = 0; j < how.size; ++j) lanes.positions[j][lane] = static_cast<uint32_t>(j);
        return;
    }
    if (degree == 0) return;
    const uint64_t vertex = wide_word(lanes.vertex_low[lane], lanes.vertex_high[lane]);
    DrawStream draws(how.key, vertex, how.hop, how.batch_id, static_cast<uint64_t>(degree));
    int64_t positions[kMostVectorDraws];
    if (how.replace) {
        uniform_repeated(degree, how.size, draws, positions);
    } else {
        Chosen chosen{positions, 0, {nullptr, nullptr, 0}};
        floyd(degree, how.size, draws, chosen);
    }
    for (int j = 0; j < how.size; ++j) lanes.positions[j][lane] = static_cast<uint32_t>(positions[j]);
}

void draw_lanes_portable(const LaneDraw& how, Lanes& lanes) {
    for (int lane = 0; lane < kLanes; ++lane) draw_lane(how, lanes, lane);
}

namespace {

constexpr InstructionSet kPortable{"portable", draw_lanes_portable};
#if SPSAMPLE_X86
constexpr InstructionSet kAvx2{"avx2", draw_lanes_avx2};
constexpr InstructionSet kAvx512{"avx512", draw_lanes_avx512};

bool has_avx2() { return __builtin_cpu_supports("avx2"); }

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
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

// The best there is, or the one that SPSAMPLE_INSTRUCTION_SET names.
const InstructionSet* first_choice() {
    const char* wanted = std::getenv("SPSAMPLE_INSTRUCTION_SET");
    if (const InstructionSet* set = wanted ? available(wanted) : nullptr) return set;
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
