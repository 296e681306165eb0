// Rows of features by vertex id, as float: out[at[i]] = x[ids[i]], of dense x and of CSR.
//
// features_moving.h moves them.
#include "features_moving.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "features_decoders.h"
#include "simd.h"
#include "spsample/features.h"

namespace spsample {
namespace {

template <class Stored, class Decode>
void decode_each(const void* row, int64_t dim, Decode decode, void* out) {
    const Stored* const x = static_cast<const Stored*>(row);
    float* const to = static_cast<float*>(out);
    for (int64_t j = 0; j < dim; ++j) to[j] = decode(x[j], j);
}

constexpr RowDecoders kPortable{
    [](const void* row, int64_t dim, const float*, void* out) { decode_each<uint16_t>(row, dim, FromHalf(), out); },
    [](const void* row, int64_t dim, const float*, void* out) { decode_each<uint16_t>(row, dim, FromBFloat(), out); },
    [](const void* row, int64_t dim, const float* scale, void* out) { decode_each<int8_t>(row, dim, FromInt8{scale}, out); }};

template <class Stored>
void decode_numbers(const void* row, int64_t dim, const float*, void* out) {
    decode_each<Stored>(row, dim, FromNumber(), out);
}

template <size_t Bytes>
void copy_row(const void* row, int64_t dim, const float*, void* out) {
    std::memcpy(out, row, static_cast<size_t>(dim) * Bytes);
}

// Calls body(example) with a number of that type; ValueError where it is of another.
template <class Body>
void with_numbers(ElementType type, Body&& body) {
    bool found = false;
    const auto of = [&](auto... examples) {
        ((type == ElementType::of<decltype(examples)>() ? (found = true, body(examples)) : void()), ...);
    };
    of(float(), double(), bool(), int8_t(), uint8_t(), int16_t(), uint16_t(), int32_t(), uint32_t(), int64_t(), uint64_t());
    require(found, "x", "must be of real numbers of at most 8 bytes");
}

// What reads rows of numbers that stand for themselves.
DecodeRow number_decoder(ElementType type) {
    if (type == ElementType{'f', 2}) return row_decoders().float16;
    if (type == ElementType::of<float>()) return copy_row<sizeof(float)>;
    DecodeRow found = nullptr;
    with_numbers(type, [&](auto example) { found = decode_numbers<decltype(example)>; });
    return found;
}

DecodeRow copier(ElementType type) {
    switch (type.bytes) {
        case 1: return copy_row<1>;
        case 2: return copy_row<2>;
        case 4: return copy_row<4>;
        default: require(type.bytes == 8, "x", "must be of numbers of at most 8 bytes"); return copy_row<8>;
    }
}

// CSR; numbers of one place are added.
template <class Index, class Stored>
struct SparseRows {
    const int64_t* indptr;
    const Index* indices;
    const Stored* data;
    int64_t num_rows, dim;

    static constexpr int64_t kRowsAhead = 16, kBytesAhead = 1 << 12;

    static int64_t ahead() { return kRowsAhead; }
    void fetch(int64_t row) const {
        const int64_t first = indptr[row], count = indptr[row + 1] - first;
        prefetch_bytes(indices + first, std::min<int64_t>(count * sizeof(Index), kBytesAhead));
        prefetch_bytes(data + first, std::min<int64_t>(count * sizeof(Stored), kBytesAhead));
    }
    void read(int64_t row, char* out) const {
        float* const to = reinterpret_cast<float*>(out);
        std::fill_n(to, dim, 0.0f);
        for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
            const int64_t column = indices[e];
            require(column >= 0 && column < dim, "indices", "a column is outside the matrix");
            to[column] += static_cast<float>(data[e]);
        }
    }
    static const char* as_written(int64_t) { return nullptr; }
};

// Where rows go: to a new array, or to rows of the caller's, all of them or those `at`.
struct Destination {
    ElementType type;
    const std::optional<AnyInOut>& out;
    const std::optional<In<int64_t>>& at;

    template <class Rows, class Index>
    nb::object take(const Rows& rows, const In<Index>& ids) const {
        const int64_t count = static_cast<int64_t>(ids.size()), bytes = checked_product(rows.dim, static_cast<int64_t>(type.bytes));
        require(out || !at, "at", "needs `out`");
        if (out) require_destination(type, rows.dim, count, *out, at);
        Buffer<char> made;
        {
            nb::gil_scoped_release release;
            if (!all_below(ids.data(), count, rows.num_rows)) throw std::out_of_range("ids: outside the rows");
            if (!out) made = Buffer<char>(checked_product(count, bytes));
            char* const to = out ? static_cast<char*>(out->data()) : made.data();
            move_rows(rows, ids.data(), count, bytes, to, at ? at->data() : nullptr);
        }
        return out ? nb::none() : to_numpy(std::move(made), type, {count, rows.dim});
    }
};

template <class Index>
nb::object gather_features(
    const AnyIn& x, std::pair<int64_t, int64_t> shape, const In<Index>& ids, const char* form, const std::optional<In<float>>& scale,
    const std::optional<AnyInOut>& out, const std::optional<In<int64_t>>& at) {
    const auto [rows, type] = dense_rows(x, shape, form, scale);
    return Destination{type, out, at}.take(rows, ids);
}

template <class Column, class Index>
nb::object gather_sparse_features(
    const In<int64_t>& indptr, const In<Column>& indices, const AnyIn& data, int64_t dim, const In<Index>& ids,
    const std::optional<AnyInOut>& out, const std::optional<In<int64_t>>& at) {
    const CsrView<Column> x = csr_view(indptr, indices);
    require(data.size() == indices.size(), "data", "needs one element per entry");
    require(dim >= 0, "dim", "must not be negative");
    nb::object result;
    with_numbers(data.type(), [&](auto example) {
        using Stored = decltype(example);
        const SparseRows<Column, Stored> rows{x.indptr, x.indices, static_cast<const Stored*>(data.data()), x.num_rows, dim};
        result = Destination{ElementType::of<float>(), out, at}.take(rows, ids);
    });
    return result;
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("gather_features", &gather_features<Index>, nb::arg("x"), nb::arg("shape"), nb::arg("ids").noconvert(), nb::arg("form") = "number",
          nb::arg("scale").none() = nb::none(), nb::arg("out").none() = nb::none(), nb::arg("at").none() = nb::none(),
          "Rows `ids` of x (flat, of `shape`), into `out` (flat), at its rows `at`, or into a new array.");
}

template <class Column, class Index>
void bind_sparse_for(nb::module_& m) {
    m.def("gather_sparse_features", &gather_sparse_features<Column, Index>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("data"),
          nb::arg("dim"), nb::arg("ids").noconvert(), nb::arg("out").none() = nb::none(), nb::arg("at").none() = nb::none(),
          "Rows `ids` of a CSR matrix of `dim` columns as float32, dense; numbers of one place are added.");
}

// What reads `x`, and the type it gives: "number" (to float), "stored" (as it is), or one of the other forms of spsample.features.formats.
std::pair<DecodeRow, ElementType> decoder_of(const std::string& form, const AnyIn& x, int64_t dim, const std::optional<In<float>>& scale) {
    constexpr ElementType kFloat = ElementType::of<float>();
    if (form == "number") return {number_decoder(x.type()), kFloat};
    if (form == "stored") return {copier(x.type()), x.type()};
    if (form == "bfloat16") {
        require(x.is<uint16_t>(), "x", "must be uint16 for bfloat16");
        return {row_decoders().bfloat16, kFloat};
    }
    require(form == "int8", "form", "must be 'number', 'stored', 'bfloat16' or 'int8'");
    require(x.is<int8_t>(), "x", "must be int8 for int8");
    require(scale && static_cast<int64_t>(scale->size()) == dim, "scale", "needs one element per column");
    return {row_decoders().int8, kFloat};
}

}  // namespace

std::pair<DenseRows, ElementType> dense_rows(
    const AnyIn& x, std::pair<int64_t, int64_t> shape, const char* form, const std::optional<In<float>>& scale) {
    const auto [num_rows, dim] = shape;
    require(num_rows >= 0 && dim >= 0 && checked_product(num_rows, dim) == static_cast<int64_t>(x.size()), "shape", "must be that of `x`");
    const auto [decode, type] = decoder_of(form, x, dim, scale);
    const int64_t row_bytes = dim * static_cast<int64_t>(x.type().bytes);
    const bool is_copied = type == x.type();
    return {{static_cast<const char*>(x.data()), row_bytes, num_rows, dim, decode, scale ? scale->data() : nullptr, is_copied}, type};
}

void require_destination(ElementType type, int64_t dim, int64_t count, const AnyInOut& out, const std::optional<In<int64_t>>& at) {
    require(out.type() == type, "out", "has another type");
    const int64_t size = static_cast<int64_t>(out.size());
    if (!at) return require(size == checked_product(count, dim), "out", "needs one row per id");
    require(static_cast<int64_t>(at->size()) == count, "at", "needs one place per id");
    require(dim == 0 || all_below(at->data(), count, size / dim), "at", "a place is outside `out`");
}

const RowDecoders& row_decoders() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512 || &instruction_set() == &kAvx2) return kDecodersAvx2;
#endif
    return kPortable;
}

std::pair<DecodeRow, ElementType> row_decoder(const std::string& form, ElementType stored, int64_t dim, size_t scales) {
    constexpr ElementType kFloat = ElementType::of<float>();
    if (form == "number") return {number_decoder(stored), kFloat};
    if (form == "stored") return {copier(stored), stored};
    if (form == "bfloat16") {
        require(stored == ElementType::of<uint16_t>(), "x", "must be uint16 for bfloat16");
        return {row_decoders().bfloat16, kFloat};
    }
    require(form == "int8", "form", "must be 'number', 'stored', 'bfloat16' or 'int8'");
    require(stored == ElementType::of<int8_t>(), "x", "must be int8 for int8");
    require(static_cast<int64_t>(scales) == dim, "scale", "needs one element per column");
    return {row_decoders().int8, kFloat};
}

void bind_features(nb::module_& m) {
    m.def("new_rows", [](int64_t count, int64_t dim) { return to_numpy(Buffer<float>(checked_product(count, dim)), {count, dim}); },
          nb::arg("count"), nb::arg("dim"), "A float32 array of that shape, not filled.");
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    bind_sparse_for<int32_t, int32_t>(m);
    bind_sparse_for<int32_t, int64_t>(m);
    bind_sparse_for<int64_t, int32_t>(m);
    bind_sparse_for<int64_t, int64_t>(m);
}

}  // namespace spsample
