// Numbers as integers, whose sums do not depend on the order in which they are made.
#pragma once

#include <cstdint>

namespace spsample {

// The least integer that is not below `number`, which is in [0, 2^62].
inline int64_t rounded_up(double number) {
    const int64_t whole = static_cast<int64_t>(number);
    return whole + (static_cast<double>(whole) < number);
}

}  // namespace spsample
