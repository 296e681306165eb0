// Few draws from each row, one warp a row (row_law_weighted_draw.h).
#include "row_law_weighted_draw.h"

using namespace spsample;

// Writes the entries of the selected rows of up to kLongRow entries and lists the others; size <= kMostFew, or with replacement.
// O(entries of the rows drawn from).
extern "C" __global__ void __launch_bounds__(256, 3) draw_few(DRAW_PARAMETERS, int64_t rows_per_warp) {
    __shared__ uint64_t ends_of_sections[kWarpsPerBlock][kWarpSections];
    __shared__ RowRecord records[kWarpsPerBlock][kWarp];
    __shared__ int64_t entries[kWarpsPerBlock][kMostFew];
    __shared__ uint32_t bits[kWarpsPerBlock][2];
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    const FewChosen chosen = {entries[warp], bits[warp]};
    give_rows(DRAW_ARGUMENTS, rows_per_warp, ends_of_sections[warp], records[warp], chosen, failed);
}
