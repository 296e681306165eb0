// Rows of features by vertex id, as float: out[at[i]] = x[ids[i]], of dense x and of CSR.
//
// Random rows are read as fast as the memory gives them: those that come next are asked for ahead, and a large result is put together
// in the first-level cache, a piece at a time, and written past the caches, which saves reading the lines that are written.
#include "features_decoders.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "bindings.h"
#include "copy_runs.h"
#include "simd.h"
#include "spsample/features.h"

namespace spsample {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kChunkBytes = 1 << 17;   // of the result, for a thread at a time
constexpr int64_t kPieceBytes = 1 << 13;   // of the result, put together in the first-level cache
constexpr int64_t kLongestPiece = 1 << 14; // a longer row is written in place
constexpr int64_t kRowsAhead = 16;
constexpr int64_t kBytesAhead = 1 << 12;

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

void prefetch(const void* memory, int64_t bytes) {
    const char* const first = static_cast<const char*>(memory);
    for (int64_t b = 0; b < bytes; b += kLine) SPSAMPLE_PREFETCH(first + b);
    if (bytes > 0) SPSAMPLE_PREFETCH(first + bytes - 1);
}

struct DenseRows {
    const char* x;
    int64_t row_bytes;
    int64_t num_rows, dim;
    DecodeRow decode;
    const float* scale;

    int64_t ahead() const { return std::clamp<int64_t>(kBytesAhead / std::max<int64_t>(row_bytes, 1), 2, kRowsAhead); }
    void fetch(int64_t row) const { prefetch(x + row * row_bytes, std::min(row_bytes, kBytesAhead)); }
    void read(int64_t row, char* out) const { decode(x + row * row_bytes, dim, scale, out); }
};

// CSR; numbers of one place are added.
template <class Index, class Stored>
struct SparseRows {
    const int64_t* indptr;
    const Index* indices;
    const Stored* data;
    int64_t num_rows, dim;

    static int64_t ahead() { return kRowsAhead; }
    void fetch(int64_t row) const {
        const int64_t first = indptr[row], count = indptr[row + 1] - first;
        prefetch(indices + first, std::min<int64_t>(count * sizeof(Index), kBytesAhead));
        prefetch(data + first, std::min<int64_t>(count * sizeof(Stored), kBytesAhead));
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
};

// Rows ids[i] for i in [0, count), each of `bytes` bytes when it is written.
template <class Rows, class Index>
class Gather {
public:
    Gather(const Rows& rows, const Index* ids, int64_t count, int64_t bytes) : rows_(rows), ids_(ids), count_(count), bytes_(bytes) {}

    // One after the other.
    void to(char* out) const {
        if (checked_product(count_, bytes_) < kStreamedAll || bytes_ > kLongestPiece) {
            parallel_chunks(count_, chunk(), [&](int64_t begin, int64_t end) { read(begin, end, out + begin * bytes_); });
            return;
        }
        const size_t piece = static_cast<size_t>(std::max(kPieceBytes / bytes_, int64_t{1}) * bytes_);
        parallel_chunks(
            count_, chunk(), [&] { return Buffer<char>(static_cast<int64_t>(piece)); },
            [&](Buffer<char>& scratch, int64_t begin, int64_t end) { stream(begin, end, out, scratch); });
    }

    // Row i at places[i], which are distinct.
    void to(char* out, const int64_t* places) const {
        parallel_chunks(count_, chunk(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) read(i, i + 1, out + places[i] * bytes_);
        });
    }

private:
    int64_t chunk() const { return std::max<int64_t>(kChunkBytes / std::max<int64_t>(bytes_, 1), 1); }

    void read(int64_t begin, int64_t end, char* out) const {
        const int64_t ahead = rows_.ahead();
        for (int64_t i = begin; i < end; ++i, out += bytes_) {
            rows_.fetch(ids_[std::min(i + ahead, count_ - 1)]);
            rows_.read(ids_[i], out);
        }
    }

    // By way of a piece in the first-level cache.
    void stream(int64_t begin, int64_t end, char* out, Buffer<char>& piece) const {
        const CopyRun copy = run_functions().stream;
        const int64_t at_once = piece.size() / bytes_;
        for (int64_t i = begin; i < end; i += at_once) {
            const int64_t stop = std::min(end, i + at_once);
            read(i, stop, piece.data());
            copy(out + i * bytes_, piece.data(), (stop - i) * bytes_);
        }
        fence_streams();
    }

    const Rows& rows_;
    const Index* const ids_;
    const int64_t count_, bytes_;
};

// Where rows go: to a new array, or to rows of the caller's, all of them or those `at`.
struct Destination {
    ElementType type;
    const std::optional<AnyInOut>& out;
    const std::optional<In<int64_t>>& at;

    template <class Rows, class Index>
    nb::object take(const Rows& rows, const In<Index>& ids) const {
        const int64_t count = static_cast<int64_t>(ids.size()), bytes = checked_product(rows.dim, static_cast<int64_t>(type.bytes));
        require_fitting(count, rows.dim);
        Buffer<char> made;
        {
            nb::gil_scoped_release release;
            if (!all_below(ids.data(), count, rows.num_rows)) throw std::out_of_range("ids: outside the rows");
            if (!out) made = Buffer<char>(checked_product(count, bytes));
            const Gather<Rows, Index> gather(rows, ids.data(), count, bytes);
            char* const to = out ? static_cast<char*>(out->data()) : made.data();
            at ? gather.to(to, at->data()) : gather.to(to);
        }
        return out ? nb::none() : to_numpy(std::move(made), type, {count, rows.dim});
    }

private:
    void require_fitting(int64_t count, int64_t dim) const {
        if (!out) return require(!at, "at", "needs `out`");
        require(out->type() == type, "out", "has another type");
        const int64_t size = static_cast<int64_t>(out->size());
        if (!at) return require(size == checked_product(count, dim), "out", "needs one row per id");
        require(static_cast<int64_t>(at->size()) == count, "at", "needs one place per id");
        require(dim == 0 || all_below(at->data(), count, size / dim), "at", "a place is outside `out`");
    }
};

template <class Index>
nb::object gather_features(
    const AnyIn& x, std::pair<int64_t, int64_t> shape, const In<Index>& ids, const char* form, const std::optional<In<float>>& scale,
    const std::optional<AnyInOut>& out, const std::optional<In<int64_t>>& at) {
    const auto [num_rows, dim] = shape;
    require(num_rows >= 0 && dim >= 0 && checked_product(num_rows, dim) == static_cast<int64_t>(x.size()), "shape", "must be that of `x`");
    const auto [decode, type] = row_decoder(form, x.type(), dim, scale ? scale->size() : 0);
    const DenseRows rows{
        static_cast<const char*>(x.data()), dim * static_cast<int64_t>(x.type().bytes), num_rows, dim, decode, scale ? scale->data() : nullptr};
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

}  // namespace

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
