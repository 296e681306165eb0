// compaction_new_vertices.h with the bit instructions that come with AVX2 (lanes_avx2.h says how such a file is compiled).
#include "compaction_new_vertices_loops.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

template <class Index>
SPSAMPLE_AVX2 int64_t take(const NewSet& set, Index* out, uint32_t first) {
    return take_loop(set, out, first);
}

template <class Index>
SPSAMPLE_AVX2 void relabel(
    const RankedWord* places, const HashMap<Index, Index>& targets, const Index* vertices, int64_t count, Index* local) {
    relabel_new_loop(places, targets, vertices, count, local);
}

}  // namespace

const NewSetFunctions<int32_t> kNewSetAvx2x32{take<int32_t>, relabel<int32_t>};
const NewSetFunctions<int64_t> kNewSetAvx2x64{take<int64_t>, relabel<int64_t>};

}  // namespace spsample

#endif
