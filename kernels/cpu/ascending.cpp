// ascending_rows: the entries of CSR rows with their columns in ascending order, repeated ones apart or summed.
#include <algorithm>
#include <limits>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "scratch.h"

namespace spsample {
namespace {

constexpr int64_t kEntryWork = 8;  // nanoseconds, about
constexpr int64_t kRowsAtOnce = 512;
constexpr int64_t kFewEntries = 32;  // of a row, that are sorted by insertion

// A column and the place of its entry in the row: equal columns keep their order.
template <class Index>
struct Key {
    Index column;
    int64_t place;
    bool operator<(const Key& other) const { return column != other.column ? column < other.column : place < other.place; }
};

template <>
struct Key<int32_t> {
    int32_t column;
    uint32_t place;
    bool operator<(const Key& other) const { return both() < other.both(); }
    uint64_t both() const { return uint64_t(uint32_t(column) ^ 0x80000000u) << 32 | place; }
};

template <class Item>
void sort_by_insertion(Item* items, int64_t count) {
    for (int64_t i = 1; i < count; ++i) {
        const Item item = items[i];
        int64_t j = i;
        for (; j > 0 && item < items[j - 1]; --j) items[j] = items[j - 1];
        items[j] = item;
    }
}

template <class Item>
void sort_row(Item* keys, int64_t count) {
    if (count <= kFewEntries) sort_by_insertion(keys, count);
    else std::sort(keys, keys + count);
}

// Without repeats: values are those of the entries, if any. Returns how many distinct columns each row has, in distinct[row + 1].
template <class Item, class Index, class Real>
void sort_rows(const int64_t* indptr, const Index* indices, const Real* data, int64_t begin, int64_t end, std::vector<Item>& scratch,
               int64_t* columns, Real* values, int64_t* distinct) {
    using Place = decltype(Item::place);
    for (int64_t row = begin; row < end; ++row) {
        const int64_t first = indptr[row], count = indptr[row + 1] - first;
        Item* const keys = grown(scratch, count);
        for (int64_t i = 0; i < count; ++i) keys[i] = {indices[first + i], static_cast<Place>(i)};
        sort_row(keys, count);
        int64_t repeats = 0;
        for (int64_t i = 0; i < count; ++i) {
            columns[first + i] = keys[i].column;
            repeats += i > 0 && keys[i].column == keys[i - 1].column;
        }
        if (data) {
            for (int64_t i = 0; i < count; ++i) values[first + i] = data[first + static_cast<int64_t>(keys[i].place)];
        }
        distinct[row + 1] = count - repeats;
    }
}

// Each column of a row once, from `next` on; values are summed in binary64 in their order, and rounded once.
template <class Real>
void merge_row(const int64_t* columns, const Real* values, int64_t first, int64_t last, int64_t* to_columns, Real* to_values) {
    for (int64_t e = first; e < last;) {
        const int64_t column = columns[e];
        double sum = 0.0;
        for (; e < last && columns[e] == column; ++e) sum += static_cast<double>(values[e]);
        *to_columns++ = column;
        *to_values++ = static_cast<Real>(sum);
    }
}

template <class Item, class Index, class Real>
nb::tuple ascending(const In<int64_t>& indptr, const In<Index>& indices, const Real* data, bool merge) {
    const int64_t entries = static_cast<int64_t>(indices.size()), num_rows = static_cast<int64_t>(indptr.size()) - 1;
    Buffer<int64_t> ptr(num_rows + 1), columns(entries);
    Buffer<Real> values(data || merge ? entries : 0);
    {
        nb::gil_scoped_release release;
        const ThreadsFor threads(checked_product(kEntryWork, entries));
        const auto no_scratch = [] { return std::vector<Item>(); };
        ptr[0] = 0;
        parallel_chunks(num_rows, kRowsAtOnce, no_scratch, [&](std::vector<Item>& scratch, int64_t begin, int64_t end) {
            sort_rows(indptr.data(), indices.data(), data, begin, end, scratch, columns.data(), values.data(), ptr.data());
        });
        for (int64_t row = 0; row < num_rows; ++row) ptr[row + 1] += ptr[row];
        if (merge && !data) std::fill_n(values.data(), entries, Real(1));
        if (merge && ptr[num_rows] < entries) {
            Buffer<int64_t> once(ptr[num_rows]);
            Buffer<Real> sums(ptr[num_rows]);
            parallel_chunks(num_rows, kRowsAtOnce, [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    merge_row(columns.data(), values.data(), indptr.data()[row], indptr.data()[row + 1], once.data() + ptr[row], sums.data() + ptr[row]);
                }
            });
            columns = std::move(once);
            values = std::move(sums);
        } else {
            std::copy(indptr.data(), indptr.data() + num_rows + 1, ptr.data());
        }
    }
    nb::object as_values = nb::none();
    if (data || merge) as_values = to_numpy(std::move(values));
    return nb::make_tuple(to_numpy(std::move(ptr)), to_numpy(std::move(columns)), as_values);
}

// Keys of 32-bit columns hold a place of 32 bits, too.
template <class Index, class Real>
nb::tuple ascending_by_keys(const In<int64_t>& indptr, const In<Index>& indices, const Real* data, bool merge) {
    if (indices.size() > std::numeric_limits<uint32_t>::max()) return ascending<Key<int64_t>>(indptr, indices, data, merge);
    return ascending<Key<Index>>(indptr, indices, data, merge);
}

template <class Index>
nb::tuple ascending_rows(const In<int64_t>& indptr, const In<Index>& indices, const std::optional<AnyIn>& data, bool merge) {
    const int64_t entries = static_cast<int64_t>(indices.size());
    require_pointers(indptr, entries, "indptr");
    require(!data || static_cast<int64_t>(data->size()) == entries, "data", "needs one element per entry");
    if (data && data->template is<double>()) return ascending_by_keys(indptr, indices, static_cast<const double*>(data->data()), merge);
    require(!data || data->template is<float>(), "data", "needs float32 or float64");
    return ascending_by_keys(indptr, indices, data ? static_cast<const float*>(data->data()) : nullptr, merge);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("ascending_rows", &ascending_rows<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("data").none(), nb::arg("merge"),
          "(indptr, columns as int64, values or None) with ascending columns in each row; repeats are summed where they are merged.");
}

}  // namespace

void bind_ascending(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
