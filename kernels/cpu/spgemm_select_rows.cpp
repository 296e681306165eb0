// A[rows]: whole rows of a CSR matrix, written out.
#include <algorithm>

#include "bindings.h"
#include "copy_runs.h"
#include "parallel.h"

namespace spsample {
namespace {

constexpr int64_t kPointerChunk = 1 << 13;  // rows
constexpr int64_t kEntryChunk = 1 << 15;    // entries
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kBytesAhead = 1 << 10;

// A[rows] before its entries are copied: where each row begins in A (count) and in the result (count + 1).
struct Pieces {
    Buffer<int64_t> sources, pointers;
    int64_t count() const { return sources.size(); }
};

// Checks rows, and the pointers of the rows that are read. O(rows).
template <class Index>
Pieces find_pieces(const CsrView<Index>& A, const In<int64_t>& rows) {
    const int64_t count = static_cast<int64_t>(rows.size());
    Pieces pieces{Buffer<int64_t>(count), Buffer<int64_t>(count + 1)};
    parallel_chunks(count, kPointerChunk, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = rows.data()[i];
            require(row >= 0 && row < A.num_rows, "rows", "a row is outside the matrix");
            const int64_t first = A.indptr[row], last = A.indptr[row + 1];
            require(0 <= first && first <= last && last <= A.num_entries, "A", "must not descend");
            pieces.sources[i] = first;
            pieces.pointers[i + 1] = last - first;
        }
    });
    pieces.pointers[0] = 0;
    for (int64_t i = 0; i < count; ++i) pieces.pointers[i + 1] = checked_sum(pieces.pointers[i], pieces.pointers[i + 1]);
    return pieces;
}

// Calls copy(from, to, count) piece by piece; together they cover every entry once. Chunks have equal numbers of entries and may
// begin and end inside a row. Some rows ahead fetch(from, count) asks for a row.
template <class Fetch, class Copy>
void for_each_piece(const Pieces& pieces, Fetch&& fetch, Copy&& copy) {
    const int64_t count = pieces.count();
    const int64_t* const from = pieces.sources.data();
    const int64_t* const to = pieces.pointers.data();
    parallel_chunks(to[count], kEntryChunk, [&](int64_t begin, int64_t end) {
        for (int64_t i = std::upper_bound(to, to + count + 1, begin) - to - 1; begin < end; ++i) {
            const int64_t ahead = std::min(i + kRowsAhead, count - 1);
            fetch(from[ahead], to[ahead + 1] - to[ahead]);
            const int64_t stop = std::min(end, to[i + 1]);
            if (begin < stop) copy(from[i] + begin - to[i], begin, stop - begin);
            begin = stop;
        }
        fence_streams();
    });
}

// Items of `size` bytes each, for every dtype; moved by one of run_functions().
struct Items {
    CopyRun move;
    const uint8_t* from;
    uint8_t* to;
    int64_t size;

    // Of a long row only the beginning: the processor sees by itself how it goes on.
    void fetch(int64_t first, int64_t count) const {
        const int64_t bytes = std::min(count * size, kBytesAhead);
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(from + first * size + b);
    }
    void copy(int64_t first, int64_t place, int64_t count) const {
        move(to + place * size, from + first * size, count * size);
    }
};

// Values are copied as bytes, so that one function serves every dtype. O(selected rows + their entries).
template <class Index>
nb::tuple select_rows(
    const In<int64_t>& indptr, const In<Index>& indices, const std::optional<In<uint8_t>>& data_bytes,
    int64_t item_size, const In<int64_t>& rows) {
    const CsrView<Index> A = csr_view<Index>(indptr, indices);
    require(item_size >= 0, "item_size", "must not be negative");
    const int64_t num_bytes = data_bytes ? checked_product(A.num_entries, item_size) : 0;
    require(!data_bytes || static_cast<int64_t>(data_bytes->size()) == num_bytes, "A", "needs one value per entry");
    Pieces pieces;
    Buffer<Index> columns;
    Buffer<uint8_t> values;
    {
        nb::gil_scoped_release release;
        pieces = find_pieces(A, rows);
        const int64_t num_entries = pieces.pointers[pieces.count()];
        columns = Buffer<Index>(num_entries);
        values = Buffer<uint8_t>(data_bytes ? checked_product(num_entries, item_size) : 0);
        const CopyRun move = copy_into(num_entries * static_cast<int64_t>(sizeof(Index)));
        const Items index_items{
            move, reinterpret_cast<const uint8_t*>(A.indices), reinterpret_cast<uint8_t*>(columns.data()), sizeof(Index)};
        const Items value_items{move, data_bytes ? data_bytes->data() : nullptr, values.data(), data_bytes ? item_size : 0};
        for_each_piece(
            pieces,
            [&](int64_t first, int64_t count) {
                index_items.fetch(first, count);
                value_items.fetch(first, count);
            },
            [&](int64_t first, int64_t place, int64_t count) {
                index_items.copy(first, place, count);
                if (value_items.size > 0) value_items.copy(first, place, count);
            });
    }
    nb::object data = nb::none();
    if (data_bytes) data = nb::cast(to_numpy(std::move(values)));
    return nb::make_tuple(to_numpy(std::move(pieces.pointers)), to_numpy(std::move(columns)), data);
}

template <class Index>
void bind_select_rows_for(nb::module_& m) {
    m.def("select_rows", &select_rows<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("data_bytes").none(), nb::arg("item_size"), nb::arg("rows"),
          "(indptr, indices, data bytes) of A[rows].");
}

}  // namespace

void bind_spgemm_select_rows(nb::module_& m) {
    bind_select_rows_for<int32_t>(m);
    bind_select_rows_for<int64_t>(m);
}

}  // namespace spsample
