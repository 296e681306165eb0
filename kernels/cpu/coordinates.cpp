// Minibatches in other libraries' terms: CSR as coordinates (COO), ids as int64.
#include "bindings.h"

namespace spsample {
namespace {

constexpr int64_t kChunk = 1 << 15;   // elements; less is not worth waking a thread for
constexpr int64_t kAlways = 8;        // elements written for every row where there is room: rows are mostly shorter

// target[e] = row for the entries of the rows [begin, end). What is written too much belongs to one of these rows that comes later.
void fill_targets(const int64_t* indptr, int64_t begin, int64_t end, int64_t* target) {
    const int64_t limit = indptr[end];
    for (int64_t row = begin; row < end; ++row) {
        int64_t e = indptr[row];
        if (e + kAlways <= limit) {
            for (int64_t j = 0; j < kAlways; ++j) target[e + j] = row;
            e += kAlways;
        }
        for (; e < indptr[row + 1]; ++e) target[e] = row;
    }
}

template <class Index>
void widen(const Index* from, int64_t begin, int64_t end, int64_t* to) {
    for (int64_t i = begin; i < end; ++i) to[i] = from[i];
}

// (2, entries): the columns of a CSR matrix, and the rows. O(rows + entries).
template <class Index>
nb::object edge_index(const In<int64_t>& indptr, const In<Index>& indices) {
    const int64_t num_entries = static_cast<int64_t>(indices.size());
    require_pointers(indptr, num_entries, "indptr");
    const int64_t num_rows = static_cast<int64_t>(indptr.size()) - 1;
    Buffer<int64_t> out(checked_product(2, num_entries));
    {
        nb::gil_scoped_release release;
        const int64_t num_parts = std::max<int64_t>(1, std::min(num_rows, num_entries / kChunk));
        parallel_chunks(num_parts, 1, [&](int64_t part, int64_t) {
            const int64_t first = num_rows * part / num_parts, last = num_rows * (part + 1) / num_parts;
            widen(indices.data(), indptr.data()[first], indptr.data()[last], out.data());
            fill_targets(indptr.data(), first, last, out.data() + num_entries);
        });
    }
    return to_numpy(std::move(out), {2, num_entries});
}

// The ids as int64. O(count).
template <class Index>
nb::object widened(const In<Index>& ids) {
    Buffer<int64_t> out(static_cast<int64_t>(ids.size()));
    {
        nb::gil_scoped_release release;
        parallel_chunks(out.size(), kChunk, [&](int64_t begin, int64_t end) { widen(ids.data(), begin, end, out.data()); });
    }
    return to_numpy(std::move(out));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("edge_index", &edge_index<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          "Columns and rows of a CSR matrix's entries.");
    m.def("widened", &widened<Index>, nb::arg("ids").noconvert(), "The ids as int64.");
}

}  // namespace

void bind_coordinates(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
