// Numbers of feature rows to float, and the choice of instruction set at run time (as in simd.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "arrays.h"

namespace spsample {

// out[j] = the stored number j of a row, for all j < dim; `out` is of float. `scale` (dim): of each column, for int8 only.
using DecodeRow = void (*)(const void* row, int64_t dim, const float* scale, void* out);

// spsample/features.h says what each stands for.
struct RowDecoders {
    DecodeRow float16;
    DecodeRow bfloat16;
    DecodeRow int8;
};

// Those of the instruction set in use.
const RowDecoders& row_decoders();

// What reads rows of `dim` numbers of a stored type, and the type it gives: "number" (to float), "stored" (as it is), or one of the other
// forms of spsample.features.formats; `scales`: how many are there. ValueError where they do not fit.
std::pair<DecodeRow, ElementType> row_decoder(const std::string& form, ElementType stored, int64_t dim, size_t scales);

extern const RowDecoders kDecodersAvx2;

}  // namespace spsample
