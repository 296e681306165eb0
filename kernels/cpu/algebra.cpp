// General sparse algebra: C = A B and A[rows], all CSR.
#include <cstring>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "numbering.h"
#include "parallel.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 64;

// --- spgemm --------------------------------------------------------------------------------------------------------

// Integers wrap around, as NumPy's do; a signed overflow in C++ would be undefined.
template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::common_type<T>>;

template <class T>
T multiply(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
}

template <class T>
T add(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

template <class Index, class T>
struct ValuedCsr {
    CsrView<Index> pattern;
    const T* data;
};

template <class Index, class T>
struct ProductScratch {
    Numbering<Index> columns;
    std::vector<T> sums;
    std::vector<Numbered<Index>> order, spare;
};

template <class Index, class T>
struct Product {
    Buffer<int64_t> indptr;
    Buffer<Index> indices;
    Buffer<T> data;
};

// Number of products a_ij b_jv of row i.
template <class Index>
int64_t row_flops(const CsrView<Index>& A, const CsrView<Index>& B, int64_t row) {
    int64_t flops = 0;
    for (int64_t p = A.indptr[row]; p < A.indptr[row + 1]; ++p) flops = checked_sum(flops, B.degree(A.indices[p]));
    return flops;
}

// First pass: the number of distinct columns of row i of C.
template <class Index>
int64_t count_columns(
    const CsrView<Index>& A, const CsrView<Index>& B, int64_t row, int64_t num_columns, Numbering<Index>& columns) {
    columns.reset(std::min({row_flops(A, B, row), num_columns, int64_t(1) << 16}));
    for (int64_t p = A.indptr[row]; p < A.indptr[row + 1]; ++p) {
        const Index j = A.indices[p];
        for (int64_t q = B.indptr[j]; q < B.indptr[j + 1]; ++q) columns.number(B.indices[q]);
    }
    return columns.size();
}

// Second pass: row i of C into indices and data. Every sum starts with its first product and goes on in the order of
// A's row entries and, inside, of B's.
template <class Index, class T>
void fill_row(
    const ValuedCsr<Index, T>& A, const ValuedCsr<Index, T>& B, int64_t row, int64_t count,
    ProductScratch<Index, T>& scratch, Index* indices, T* data) {
    scratch.columns.reset(count);
    scratch.sums.resize(static_cast<size_t>(count));
    for (int64_t p = A.pattern.indptr[row]; p < A.pattern.indptr[row + 1]; ++p) {
        const Index j = A.pattern.indices[p];
        for (int64_t q = B.pattern.indptr[j]; q < B.pattern.indptr[j + 1]; ++q) {
            const T product = multiply(A.data[p], B.data[q]);
            const int64_t known = scratch.columns.size();
            const Index number = scratch.columns.number(B.pattern.indices[q]);
            T& sum = scratch.sums[static_cast<size_t>(number)];
            sum = number == known ? product : add(sum, product);
        }
    }
    ascending(scratch.columns, 0, scratch.order, scratch.spare);
    for (size_t i = 0; i < scratch.order.size(); ++i) {
        indices[i] = scratch.order[i].key;
        data[i] = scratch.sums[static_cast<size_t>(scratch.order[i].number)];
    }
}

// Gustavson's algorithm with a hash accumulator, row by row in two passes (ACM TOMS 4(3), 1978; Nagasaka et al., 2018).
// A: m x p with any order of entries and duplicates; B: p x num_columns, likewise. O(flops + sort of C's rows).
template <class Index, class T>
Product<Index, T> multiply_matrices(const ValuedCsr<Index, T>& A, const ValuedCsr<Index, T>& B, int64_t num_columns) {
    const int64_t num_rows = A.pattern.num_rows;
    Product<Index, T> C{Buffer<int64_t>(num_rows + 1), {}, {}};
    C.indptr[0] = 0;
    const auto make_numbering = [] { return Numbering<Index>(); };
    parallel_chunks(num_rows, kRowChunk, make_numbering, [&](auto& columns, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            C.indptr[r + 1] = count_columns(A.pattern, B.pattern, r, num_columns, columns);
        }
    });
    for (int64_t r = 0; r < num_rows; ++r) C.indptr[r + 1] = checked_sum(C.indptr[r], C.indptr[r + 1]);
    C.indices = Buffer<Index>(C.indptr[num_rows]);
    C.data = Buffer<T>(C.indptr[num_rows]);
    const auto make_scratch = [] { return ProductScratch<Index, T>(); };
    parallel_chunks(num_rows, kRowChunk, make_scratch, [&](auto& scratch, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const int64_t start = C.indptr[r];
            fill_row(A, B, r, C.indptr[r + 1] - start, scratch, C.indices.data() + start, C.data.data() + start);
        }
    });
    return C;
}

template <class Index>
void require_columns(const CsrView<Index>& matrix, int64_t num_columns, const char* name) {
    for (int64_t p = 0; p < matrix.num_entries; ++p) {
        const bool inside = matrix.indices[p] >= 0 && static_cast<int64_t>(matrix.indices[p]) < num_columns;
        require(inside, name, "a column is outside the matrix");
    }
}

// indptr within its array: a general matrix has not been through the graph's checks.
template <class Index>
CsrView<Index> checked_csr(const In<int64_t>& indptr, const In<Index>& indices, const char* name) {
    require_pointers(indptr, static_cast<int64_t>(indices.size()), name);
    return csr_view<Index>(indptr, indices);
}

template <class Index, class T>
nb::tuple spgemm(
    const In<int64_t>& a_indptr, const In<Index>& a_indices, const In<T>& a_data, const In<int64_t>& b_indptr,
    const In<Index>& b_indices, const In<T>& b_data, int64_t num_columns) {
    const CsrView<Index> a_pattern = checked_csr<Index>(a_indptr, a_indices, "A");
    const CsrView<Index> b_pattern = checked_csr<Index>(b_indptr, b_indices, "B");
    require(a_data.size() == a_indices.size(), "A", "needs one value per entry");
    require(b_data.size() == b_indices.size(), "B", "needs one value per entry");
    Product<Index, T> C;
    {
        nb::gil_scoped_release release;
        require_columns(a_pattern, b_pattern.num_rows, "A");
        require_columns(b_pattern, num_columns, "B");
        C = multiply_matrices(
            ValuedCsr<Index, T>{a_pattern, a_data.data()}, ValuedCsr<Index, T>{b_pattern, b_data.data()}, num_columns);
    }
    return nb::make_tuple(to_numpy(std::move(C.indptr)), to_numpy(std::move(C.indices)), to_numpy(std::move(C.data)));
}

// --- select_rows ---------------------------------------------------------------------------------------------------

void copy_range(const uint8_t* from, int64_t first, int64_t count, int64_t item_size, uint8_t* to) {
    if (count > 0) std::memcpy(to, from + first * item_size, static_cast<size_t>(count * item_size));
}

// Rows are copied as bytes, so that one function serves every dtype. O(selected rows + their entries).
template <class Index>
nb::tuple select_rows(
    const In<int64_t>& indptr, const In<Index>& indices, const std::optional<In<uint8_t>>& data_bytes,
    int64_t item_size, const In<int64_t>& rows) {
    const CsrView<Index> A = checked_csr<Index>(indptr, indices, "A");
    require(item_size >= 0, "item_size", "must not be negative");
    const int64_t num_bytes = data_bytes ? checked_product(A.num_entries, item_size) : 0;
    require(!data_bytes || static_cast<int64_t>(data_bytes->size()) == num_bytes, "A", "needs one value per entry");
    const int64_t count = static_cast<int64_t>(rows.size());
    Buffer<int64_t> pointers(count + 1);
    pointers[0] = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows.data()[i];
        require(row >= 0 && row < A.num_rows, "rows", "a row is outside the matrix");
        pointers[i + 1] = checked_sum(pointers[i], A.degree(row));
    }
    Buffer<Index> columns(pointers[count]);
    Buffer<uint8_t> values(data_bytes ? checked_product(pointers[count], item_size) : 0);
    {
        nb::gil_scoped_release release;
        parallel_chunks(count, kRowChunk, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t row = rows.data()[i];
                const int64_t first = A.begin(row);
                const int64_t degree = A.degree(row);
                std::copy(A.indices + first, A.indices + first + degree, columns.data() + pointers[i]);
                if (!data_bytes) continue;
                copy_range(data_bytes->data(), first, degree, item_size, values.data() + pointers[i] * item_size);
            }
        });
    }
    nb::object data = nb::none();
    if (data_bytes) data = nb::cast(to_numpy(std::move(values)));
    return nb::make_tuple(to_numpy(std::move(pointers)), to_numpy(std::move(columns)), data);
}

// --- bindings ------------------------------------------------------------------------------------------------------

template <class Index, class T>
void bind_spgemm(nb::module_& m) {
    m.def("spgemm", &spgemm<Index, T>, nb::arg("a_indptr").noconvert(), nb::arg("a_indices").noconvert(),
          nb::arg("a_data").noconvert(), nb::arg("b_indptr").noconvert(), nb::arg("b_indices").noconvert(),
          nb::arg("b_data").noconvert(), nb::arg("num_columns"), "(indptr, indices, data) of A B.");
}

template <class Index>
void bind_algebra_for(nb::module_& m) {
    bind_spgemm<Index, float>(m);
    bind_spgemm<Index, double>(m);
    bind_spgemm<Index, int64_t>(m);
    bind_spgemm<Index, uint64_t>(m);
    m.def("select_rows", &select_rows<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data_bytes").noconvert().none(), nb::arg("item_size"), nb::arg("rows").noconvert(),
          "(indptr, indices, data bytes) of A[rows].");
}

}  // namespace

void bind_algebra(nb::module_& m) {
    bind_algebra_for<int32_t>(m);
    bind_algebra_for<int64_t>(m);
}

}  // namespace spsample
