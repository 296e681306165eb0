// The weights c_v of src columns (docs/law.md, section 6), in binary64 and in the order of operations that the law gives.
//
// Of k batches: drawn_ptr (batches + 1) and local (drawn), the place in its batch's src of each drawn column, in the order drawn;
// totals (batches): T; src_ptr (batches + 1); numerators (src): N; num_targets (batches). One thread a column everywhere.
#include "device.h"

using namespace spsample;

// drawn_numerators (drawn): N of the drawn columns.
extern "C" __global__ void numerators_of_drawn(const int64_t* drawn_ptr, const Index* local, const int64_t* src_ptr,
                                               int64_t batches, const uint64_t* numerators, uint64_t* drawn_numerators) {
    for (int64_t j = thread_index(); j < drawn_ptr[batches]; j += thread_count()) {
        drawn_numerators[j] = numerators[src_ptr[part_of(drawn_ptr, batches, j)] + local[j]];
    }
}

// Des Raj's ordered estimator: the r-th of s' drawn columns weighs ((T - N_1 - ... - N_(r-1)) / N_r + (s' - r)) / s'. ends
// (drawn): inclusive sums of N over all that was drawn, which wrap: differences within a batch are exact. weights (src) holds
// ones.
extern "C" __global__ void weigh_des_raj(const int64_t* drawn_ptr, const Index* local, const int64_t* src_ptr, int64_t batches,
                                         const uint64_t* totals, const uint8_t* whole, const int64_t* num_targets,
                                         const uint64_t* drawn_numerators, const uint64_t* ends, double* weights) {
    for (int64_t j = thread_index(); j < drawn_ptr[batches]; j += thread_count()) {
        const int64_t batch = part_of(drawn_ptr, batches, j);
        if (whole[batch] || local[j] < num_targets[batch]) continue;
        const int64_t first = drawn_ptr[batch], size = drawn_ptr[batch + 1] - first;
        const uint64_t before = ends[j] - drawn_numerators[j] - (first > 0 ? ends[first - 1] : 0);
        const double share = static_cast<double>(totals[batch] - before) / static_cast<double>(drawn_numerators[j]);
        weights[src_ptr[batch] + local[j]] = (share + static_cast<double>(size - (j - first) - 1)) / static_cast<double>(size);
    }
}

// With replacement: a column drawn counts[j] times in `size` draws weighs (count T) / (size N). weights (src) holds ones.
extern "C" __global__ void weigh_replacement(const int64_t* drawn_ptr, const Index* local, const int64_t* src_ptr,
                                             int64_t batches, const uint64_t* totals, const int64_t* num_targets,
                                             const int64_t* counts, int64_t size, const uint64_t* numerators, double* weights) {
    for (int64_t j = thread_index(); j < drawn_ptr[batches]; j += thread_count()) {
        const int64_t batch = part_of(drawn_ptr, batches, j), place = src_ptr[batch] + local[j];
        if (local[j] < num_targets[batch]) continue;
        weights[place] = (static_cast<double>(counts[j]) * static_cast<double>(totals[batch])) /
                         (static_cast<double>(size) * static_cast<double>(numerators[place]));
    }
}

// T / (s' N) of every src column, 0 where s' or N is 0.
extern "C" __global__ void weigh_reference(const int64_t* drawn_ptr, const int64_t* src_ptr, int64_t batches,
                                           const uint64_t* totals, const uint64_t* numerators, double* weights) {
    for (int64_t v = thread_index(); v < src_ptr[batches]; v += thread_count()) {
        const int64_t batch = part_of(src_ptr, batches, v);
        const double denominator =
            static_cast<double>(drawn_ptr[batch + 1] - drawn_ptr[batch]) * static_cast<double>(numerators[v]);
        weights[v] = denominator > 0.0 ? static_cast<double>(totals[batch]) / denominator : 0.0;
    }
}
