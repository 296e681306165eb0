// Draws of any number from each long row, a block a row (row_law_weighted_draw.h).
#include "row_law_weighted_draw.h"

using namespace spsample;

// Writes the entries of the rows that were listed. scratch: `capacity` elements, a power of two, at least 2 size, for each block of
// the grid. O(their entries).
extern "C" __global__ void __launch_bounds__(BlockTeam::kThreads, 1)
    draw_many_long(DRAW_PARAMETERS, int64_t* scratch, int64_t capacity) {
    __shared__ uint64_t ends_of_sections[kBlockSections];
    __shared__ uint64_t exchange[kWarpsPerLongRow];
    __shared__ int64_t found[kWarp];
    __shared__ RowRecord record[1];
    const ManyChosen chosen = {scratch + static_cast<int64_t>(blockIdx.x) * capacity, capacity};
    give_long_rows(DRAW_ARGUMENTS, BlockTeam{exchange}, ends_of_sections, found, record, chosen, failed);
}
