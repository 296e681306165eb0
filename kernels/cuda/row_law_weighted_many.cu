// Draws of any number from each row, one warp a row (row_law_weighted_draw.h).
#include "row_law_weighted_draw.h"

using namespace spsample;

// Writes the entries of the selected rows of up to kLongRow entries and lists the others. scratch: `capacity` elements, a power of
// two, at least 2 size, for each warp of the grid; null where no row of up to kLongRow entries has more than `size`. O(entries of the
// rows drawn from).
extern "C" __global__ void __launch_bounds__(256, 2)
    draw_many(DRAW_PARAMETERS, int64_t rows_per_warp, int64_t* scratch, int64_t capacity) {
    __shared__ uint64_t ends_of_sections[kWarpsPerBlock][kWarpSections];
    __shared__ RowRecord records[kWarpsPerBlock][kWarp];
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    const ManyChosen chosen = {scratch + warp_index() * capacity, capacity};
    give_rows(DRAW_ARGUMENTS, rows_per_warp, ends_of_sections[warp], records[warp], chosen, failed);
}
