// Few draws from each long row, a block a row (row_law_weighted_draw.h).
#include "row_law_weighted_draw.h"

using namespace spsample;

// Writes the entries of the rows that were listed; size <= kMostFew, or with replacement. O(their entries).
extern "C" __global__ void __launch_bounds__(BlockTeam::kThreads, 1) draw_few_long(DRAW_PARAMETERS) {
    __shared__ uint64_t ends_of_sections[kBlockSections];
    __shared__ uint64_t exchange[kWarpsPerLongRow];
    __shared__ int64_t found[kWarp];
    __shared__ RowRecord record[1];
    __shared__ int64_t entries[kMostFew];
    __shared__ uint32_t bits[2];
    give_long_rows(DRAW_ARGUMENTS, BlockTeam{exchange}, ends_of_sections, found, record, FewChosen{entries, bits}, failed);
}
