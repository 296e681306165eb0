// The portable implementations of compaction_new_vertices.h, and the choice among instruction sets.
#include "compaction_new_vertices_loops.h"

namespace spsample {
namespace {

template <class Index>
int64_t take(const NewSet& set, Index* out, uint32_t first) {
    return take_loop(set, out, first);
}

template <class Index>
void relabel(const RankedWord* places, const HashMap<Index, Index>& targets, const Index* vertices, int64_t count, Index* local) {
    relabel_new_loop(places, targets, vertices, count, local);
}

template <class Index>
constexpr NewSetFunctions<Index> kPortable{take<Index>, relabel<Index>};

#if SPSAMPLE_X86
// Counting the bits of 16 words at a time is no part of kAvx512, though all processors so far that have that have this.
bool counts_bits() { return __builtin_cpu_supports("avx512vpopcntdq"); }
#endif

}  // namespace

template <>
const NewSetFunctions<int32_t>& new_set_functions<int32_t>() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return counts_bits() ? kNewSetAvx512x32 : kNewSetAvx2x32;
    if (&instruction_set() == &kAvx2) return kNewSetAvx2x32;
#endif
    return kPortable<int32_t>;
}

template <>
const NewSetFunctions<int64_t>& new_set_functions<int64_t>() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return counts_bits() ? kNewSetAvx512x64 : kNewSetAvx2x64;
    if (&instruction_set() == &kAvx2) return kNewSetAvx2x64;
#endif
    return kPortable<int64_t>;
}

}  // namespace spsample
