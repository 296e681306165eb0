// Arrays of several rows, batches or hops as one: the hops of a subgraph side by side in each batch, CSR as coordinates (COO), and ids
// as int64.
#include "stacking_hops.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>

namespace spsample {
namespace {

// --- hops ----------------------------------------------------------------------------------------------------------

// The pointers of each hop, k + 1 items, checked.
Places places_of(const std::vector<In<int64_t>>& pointers, int64_t extra) {
    require(!pointers.empty() && pointers[0].size() >= 1, "pointers", "needs one array of pointers per hop");
    const int64_t num_batches = static_cast<int64_t>(pointers[0].size()) - 1;
    std::vector<const int64_t*> from;
    for (const auto& hop : pointers) {
        require(static_cast<int64_t>(hop.size()) == num_batches + 1, "pointers", "needs one element per batch and one more");
        require_pointers(hop, hop.data()[num_batches], "pointers");
        from.push_back(hop.data());
    }
    return {std::move(from), num_batches, extra};
}

// parts: one array per hop, all of one type; pointers: of each hop, k + 1 items. O(bytes), in parallel over batches.
nb::object interleave(const std::vector<AnyIn>& parts, const std::vector<In<int64_t>>& pointers) {
    const Places places = places_of(pointers, 0);
    require(parts.size() == pointers.size(), "parts", "needs one array per hop");
    std::vector<const void*> arrays;
    for (size_t h = 0; h < parts.size(); ++h) {
        const int64_t size = places.from[h][places.num_batches];
        require(static_cast<int64_t>(parts[h].size()) == size, "parts", "needs as many items as its pointers say");
        require(parts[h].type() == parts[0].type(), "parts", "must be of one type");
        arrays.push_back(parts[h].data());
    }
    const int64_t item_size = static_cast<int64_t>(parts[0].type().bytes);
    Buffer<uint8_t> out(checked_product(places.total(), item_size));
    {
        nb::gil_scoped_release release;
        interleave_parts(places, arrays, item_size, out.data());
    }
    return to_numpy(std::move(out), parts[0].type(), {places.total()});
}

// Row pointers over the rows of all hops that start at 0 in every batch. parts: the row pointers of each hop, stacked (rows + k);
// pointers: of each hop, its rows (k + 1). O(rows), in parallel over batches.
nb::object interleave_pointers(const std::vector<In<int64_t>>& parts, const std::vector<In<int64_t>>& pointers) {
    const Places places = places_of(pointers, 1);
    require(parts.size() == pointers.size(), "parts", "needs one array per hop");
    std::vector<const int64_t*> arrays;
    for (size_t h = 0; h < parts.size(); ++h) {
        const int64_t size = checked_sum(places.from[h][places.num_batches], places.num_batches);
        require(static_cast<int64_t>(parts[h].size()) == size, "parts", "needs one pointer per row and per batch");
        arrays.push_back(parts[h].data());
    }
    Buffer<int64_t> out(places.total());
    {
        nb::gil_scoped_release release;
        interleave_row_pointers(places, arrays, out.data());
    }
    return to_numpy(std::move(out));
}

// Pointers (k + 1) and ids of what stands behind the first ids of each batch. O(ids), in parallel over batches.
template <class Index>
nb::tuple appended(const In<int64_t>& found_ptr, const In<int64_t>& known_ptr, const In<Index>& known) {
    require(found_ptr.size() == known_ptr.size(), "found_ptr", "needs one element per batch and one more");
    require_pointers(known_ptr, static_cast<int64_t>(known.size()), "known_ptr");
    StackedIds<Index> all;
    {
        nb::gil_scoped_release release;
        all = appended_ids(found_ptr.data(), known_ptr.data(), known.data(), static_cast<int64_t>(known_ptr.size()) - 1);
    }
    return nb::make_tuple(to_numpy(std::move(all.ptr)), to_numpy(std::move(all.ids)));
}

// --- int64 ---------------------------------------------------------------------------------------------------------

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

// Arrays of int64 that are filled in one parallel loop, so that threads are woken once for all of them.
template <class Index>
class WideArrays {
public:
    // The ids. O(count).
    void add_ids(const In<Index>& ids) {
        const int64_t count = static_cast<int64_t>(ids.size());
        int64_t* const out = added(count);
        for (int64_t begin = 0; begin < count; begin += kChunk) {
            const int64_t end = std::min(begin + kChunk, count);
            parts_.push_back([=, from = ids.data()] { widen(from, begin, end, out); });
        }
    }

    // (2, entries): the columns of a CSR matrix, and the rows. O(rows + entries).
    void add_edges(const In<int64_t>& indptr, const In<Index>& indices) {
        const int64_t num_entries = static_cast<int64_t>(indices.size());
        require_pointers(indptr, num_entries, "indptr");
        int64_t* const out = added(checked_product(2, num_entries));
        const int64_t num_rows = static_cast<int64_t>(indptr.size()) - 1;
        const int64_t num_parts = std::max<int64_t>(1, std::min(num_rows, num_entries / kChunk));
        for (int64_t part = 0; part < num_parts; ++part) {
            const int64_t first = num_rows * part / num_parts, last = num_rows * (part + 1) / num_parts;
            parts_.push_back([=, rows = indptr.data(), from = indices.data()] {
                widen(from, rows[first], rows[last], out);
                fill_targets(rows, first, last, out + num_entries);
            });
        }
    }

    void fill() const {
        nb::gil_scoped_release release;
        const int64_t few = parts_.size() > 1 && elements_ < 2 * kChunk ? static_cast<int64_t>(parts_.size()) : 1;
        parallel_chunks(static_cast<int64_t>(parts_.size()), few, [&](int64_t begin, int64_t end) {
            for (int64_t part = begin; part < end; ++part) parts_[static_cast<size_t>(part)]();
        });
    }

    // Array number `which` as NumPy's, of `rows` rows; once.
    nb::object take(size_t which, int64_t rows) {
        Buffer<int64_t>& array = arrays_[which];
        const int64_t size = array.size();
        return rows == 1 ? to_numpy(std::move(array)) : to_numpy(std::move(array), {rows, size / rows});
    }

private:
    int64_t* added(int64_t size) {
        elements_ += size;
        return arrays_.emplace_back(size).data();
    }

    std::vector<Buffer<int64_t>> arrays_;
    std::vector<std::function<void()>> parts_;
    int64_t elements_ = 0;
};

template <class Index>
nb::object edge_index(const In<int64_t>& indptr, const In<Index>& indices) {
    WideArrays<Index> wide;
    wide.add_edges(indptr, indices);
    wide.fill();
    return wide.take(0, 2);
}

template <class Index>
nb::object widened(const In<Index>& ids) {
    WideArrays<Index> wide;
    wide.add_ids(ids);
    wide.fill();
    return wide.take(0, 1);
}

// The edge index of each of several CSR matrices, and ids as int64.
template <class Index>
nb::tuple coordinates(const std::vector<In<int64_t>>& indptrs, const std::vector<In<Index>>& indices, const In<Index>& ids) {
    require(indptrs.size() == indices.size(), "indptrs", "needs one array per array of indices");
    WideArrays<Index> wide;
    for (size_t m = 0; m < indices.size(); ++m) wide.add_edges(indptrs[m], indices[m]);
    wide.add_ids(ids);
    wide.fill();
    nb::list edges;
    for (size_t m = 0; m < indices.size(); ++m) edges.append(wide.take(m, 2));
    return nb::make_tuple(edges, wide.take(indices.size(), 1));
}

// --- bindings ------------------------------------------------------------------------------------------------------

template <class Index>
void bind_for(nb::module_& m) {
    m.def("appended", &appended<Index>, nb::arg("found_ptr"), nb::arg("known_ptr"),
          nb::arg("known").noconvert(), "Pointers and ids of what stands behind the first ids of each batch.");
    m.def("edge_index", &edge_index<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          "Columns and rows of a CSR matrix's entries.");
    m.def("widened", &widened<Index>, nb::arg("ids").noconvert(), "The ids as int64.");
    m.def("coordinates", &coordinates<Index>, nb::arg("indptrs"), nb::arg("indices").noconvert(), nb::arg("ids").noconvert(),
          "Columns and rows of the entries of each of several CSR matrices, and ids as int64.");
}

}  // namespace

void bind_stacking(nb::module_& m) {
    m.def("interleave", &interleave, nb::arg("parts"), nb::arg("pointers"),
          "The parts of all hops, each batch's side by side.");
    m.def("interleave_pointers", &interleave_pointers, nb::arg("parts"), nb::arg("pointers"),
          "Row pointers over the rows of all hops, from 0 in every batch.");
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
