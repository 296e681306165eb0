// sum_outer_products, multiply_sparse: g^T x and g w of a dense g most of whose numbers are 0; those are left out. The ways back through a
// product whose gradient is behind ReLU and dropout.
//
// g (rows, width), x (rows, dim), w (width, dim). O(numbers of g + those other than 0 times dim), threads by pieces of the rows. No result
// depends on the number of threads or the instruction set (sparse_products.h). Numbers times 0 are taken for 0, infinities and NaN too.
#include "sparse_products.h"

#include <algorithm>

#include "bindings.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kPieces = 16;      // of the rows of a sum of outer products, each with sums of its own
constexpr int64_t kColumnsAtOnce = 16;  // of g, between two requests to memory
constexpr int64_t kRowsAtOnce = 128;  // of a product's result

struct Functions {
    AddTile add_tile;
    FindNumbers find;
    ListColumns list_columns;
};

void add_tile(const TileLists& lists, const Tile& tile, float* sums, int64_t stride) {
    for (int64_t i = 0; i < lists.count; ++i) {
        float* const to = sums + stride * i;
        for (uint32_t e = 0; e < lists.counts[i]; ++e) {
            const float value = lists.values[kListRoom * i + e];
            const float* const row = tile.numbers + lists.rows[kListRoom * i + e] * tile.width;
            for (int64_t j = 0; j < tile.width; ++j) to[j] += value * row[j];
        }
    }
}

int64_t find_numbers(const SparseRow& row, int64_t count, uint32_t* places, float* values) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        const float number = row.numbers[i];
        places[found] = static_cast<uint32_t>(i);
        values[found] = row.where ? number * row.scale : number;
        found += row.where ? !(row.where[i] <= 0) : number != 0;
    }
    return found;
}

void list_columns(const SparseRow& first, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts) {
    std::fill_n(counts, width, 0u);
    for (int64_t r = 0; r < rows; ++r) {
        const SparseRow row = first.from(r * width);
        for (int64_t column = 0; column < width; ++column) {
            const float number = row.where ? row.numbers[column] * row.scale : row.numbers[column];
            const int64_t to = kListRoom * column + counts[column];
            places[to] = static_cast<uint32_t>(r);
            values[to] = number;
            counts[column] += row.where ? !(row.where[column] <= 0) : number != 0;
        }
    }
}

Functions chosen() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return {add_tile_avx512, find_numbers_avx512, list_columns_avx512};
    if (&instruction_set() == &kAvx2) return {add_tile_avx2, find_numbers_avx2, list_columns_avx2};
#endif
    return {add_tile, find_numbers, list_columns};
}

// Columns in panels of as equal widths as there can be, whole lanes.
struct Panels {
    explicit Panels(int64_t dim)
        : padded((dim + kTileLanes - 1) / kTileLanes * kTileLanes),
          count((padded + kTileWidth - 1) / kTileWidth),
          widest(count ? (padded / kTileLanes + count - 1) / count * kTileLanes : 0) {}

    int64_t begin(int64_t panel) const { return std::min(panel * widest, padded); }
    int64_t width(int64_t panel) const { return begin(panel + 1) - begin(panel); }

    int64_t padded, count, widest;
};

// Numbers that begin with a cache line, so that no register of them lies in two.
class Lines {
public:
    explicit Lines(int64_t size) : room_(checked_sum(size, kTileLanes)) {}

    float* data() {
        constexpr uintptr_t kLine = kTileLanes * sizeof(float);
        const uintptr_t start = reinterpret_cast<uintptr_t>(room_.data());
        return room_.data() + (kLine - start % kLine) % kLine / sizeof(float);
    }

private:
    Buffer<float> room_;
};

// Room for lists, and what they are filled from.
struct Lists {
    explicit Lists(int64_t count)
        : rows(checked_product(count, kListRoom)), values(checked_product(count, kListRoom)), counts(count) {}

    TileLists from(int64_t first, int64_t count) const {
        return {rows.data() + kListRoom * first, values.data() + kListRoom * first, counts.data() + first, count};
    }

    Buffer<uint32_t> rows;
    Buffer<float> values;
    Buffer<uint32_t> counts;
};

// Rows of `dim` numbers in C order, followed in each row by a 1 where `ones`.
struct Rows {
    const float* numbers;
    int64_t count, dim;
    bool ones;

    int64_t width() const { return dim + ones; }

    // Columns [begin, begin + width) of the rows from `first` on, 0 where there are none.
    void pack(int64_t first, int64_t begin, int64_t width, float* tile) const {
        for (int64_t r = 0; r < std::min(kTileRows, count - first); ++r) {
            float* const to = tile + r * width;
            const float* const row = numbers + (first + r) * dim;
            const int64_t there = std::clamp<int64_t>(dim - begin, 0, width);
            std::copy_n(row + begin, there, to);
            std::fill_n(to + there, width - there, 0.0f);
            if (ones && begin <= dim && dim < begin + width) to[dim - begin] = 1.0f;
        }
    }
};

// M in C order.
struct SparseRows {
    SparseRow first;
    int64_t count, width;

    SparseRow row(int64_t number) const { return first.from(number * width); }
};

// Checks the arguments that M is given by.
SparseRows sparse_rows(const In<float>& g, const std::optional<In<float>>& where, float scale, int64_t width) {
    const int64_t count = static_cast<int64_t>(g.size()) / width;
    require(count * width == static_cast<int64_t>(g.size()), "g", "needs whole rows");
    require(!where || where->size() == g.size(), "where", "needs one element per number");
    return {{g.data(), where ? where->data() : nullptr, scale}, count, width};
}

// Scratch of a thread that sums up outer products.
struct OuterScratch {
    OuterScratch(int64_t width, const Panels& panels) : lists(width), tile(kTileRows * panels.widest) {}

    Lists lists;
    Lines tile;
};

// Asks memory for rows of C arrays bit by bit, while others are worked on.
class Ahead {
public:
    Ahead(int64_t count, int64_t parts) : count_(std::max<int64_t>(count, 0)), parts_(parts) {}

    // Part `part` of the rows of `width` numbers from `first` on.
    void fetch(const float* first, int64_t width, int64_t part) const {
        constexpr int64_t kNumbers = kTileLanes;  // of a cache line
        const int64_t numbers = count_ * width;
        for (int64_t i = numbers * part / parts_; i < numbers * (part + 1) / parts_; i += kNumbers) SPSAMPLE_PREFETCH_NEAR(first + i);
    }

private:
    const int64_t count_, parts_;
};

// sums = g^T x of the rows [begin, end), one panel after the other, each with a row for each column of g.
void sum_piece(
    const Functions& functions, const SparseRows& g, const Rows& x, const Panels& panels, int64_t begin, int64_t end, OuterScratch& scratch,
    float* sums) {
    std::fill_n(sums, g.width * panels.padded, 0.0f);
    for (int64_t first = begin; first < end; first += kTileRows) {
        Lists& lists = scratch.lists;
        const int64_t rows = std::min(kTileRows, end - first);
        functions.list_columns(g.row(first), rows, g.width, lists.rows.data(), lists.values.data(), lists.counts.data());
        const int64_t next = first + kTileRows, groups = (g.width + kColumnsAtOnce - 1) / kColumnsAtOnce;
        const Ahead ahead(std::min(kTileRows, end - next), panels.count * groups);
        for (int64_t panel = 0; panel < panels.count; ++panel) {
            const int64_t column = panels.begin(panel), width = panels.width(panel);
            x.pack(first, column, width, scratch.tile.data());
            for (int64_t group = 0; group < groups; ++group) {
                const int64_t list = group * kColumnsAtOnce, part = panel * groups + group;
                ahead.fetch(g.first.numbers + next * g.width, g.width, part);
                if (g.first.where) ahead.fetch(g.first.where + next * g.width, g.width, part);
                ahead.fetch(x.numbers + next * x.dim, x.dim, part);
                const TileLists some = lists.from(list, std::min(kColumnsAtOnce, g.width - list));
                functions.add_tile(some, {scratch.tile.data(), width}, sums + g.width * column + list * width, width);
            }
        }
    }
}

// Where the sums of the pieces lie, and where their total goes.
struct Total {
    const float* sums;
    int64_t pieces, size, rows;
    float *out, *column_sums;

    // One row of the total, `dim` numbers and, where that is wanted, one of `column_sums`.
    void add_pieces(const Panels& panels, int64_t dim, int64_t row) const {
        float* const total = out + row * dim;
        std::fill_n(total, dim, 0.0f);
        float ones = 0.0f;
        for (int64_t piece = 0; piece < pieces; ++piece) {
            for (int64_t panel = 0; panel < panels.count; ++panel) {
                const int64_t begin = panels.begin(panel), width = panels.width(panel), there = std::clamp<int64_t>(dim - begin, 0, width);
                const float* const part = sums + piece * size + rows * begin + row * width;
                for (int64_t j = 0; j < there; ++j) total[begin + j] += part[j];
                if (there < width) ones += part[there];
            }
        }
        if (column_sums) column_sums[row] = ones;
    }
};

void sum_outer_products(
    const In<float>& g, const std::optional<In<float>>& where, float scale, const In<float>& x, std::pair<int64_t, int64_t> shape,
    const InOut<float>& out, const std::optional<InOut<float>>& column_sums) {
    const auto [width, dim] = shape;
    require(width >= 1 && dim >= 1 && checked_product(width, dim) == static_cast<int64_t>(out.size()), "shape", "must be that of `out`");
    const SparseRows of_g = sparse_rows(g, where, scale, width);
    const int64_t rows = of_g.count;
    require(checked_product(rows, dim) == static_cast<int64_t>(x.size()), "x", "needs a row per row of g, as wide as `out`");
    require(!column_sums || static_cast<int64_t>(column_sums->size()) == width, "column_sums", "needs one element per column of g");
    const Rows of_x{x.data(), rows, dim, column_sums.has_value()};
    float *const to = out.data(), *const sums_of_g = column_sums ? column_sums->data() : nullptr;
    const nb::gil_scoped_release release;
    const ThreadsFor threads(checked_product(rows, checked_product(width, dim) / kTileLanes + 1));
    const Panels panels(of_x.width());
    const int64_t size = checked_product(width, panels.padded);
    const int64_t per_piece = (rows / kTileRows / kPieces + 1) * kTileRows, pieces = (rows + per_piece - 1) / per_piece;
    Lines sums(checked_product(pieces, size));
    float* const first_sums = sums.data();
    const Functions functions = chosen();
    parallel_chunks(
        pieces, 1, [&] { return OuterScratch(width, panels); },
        [&](OuterScratch& scratch, int64_t piece, int64_t) {
            const int64_t begin = piece * per_piece, end = std::min(begin + per_piece, rows);
            sum_piece(functions, of_g, of_x, panels, begin, end, scratch, first_sums + piece * size);
        });
    const Total total{first_sums, pieces, size, width, to, sums_of_g};
    parallel_chunks(width, 16, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) total.add_pieces(panels, dim, row);
    });
}

// w (width, dim) as tiles: all panels of the first kTileRows rows, then those of the next.
Lines packed_rows(const Rows& w, const Panels& panels) {
    const int64_t blocks = (w.count + kTileRows - 1) / kTileRows;
    Lines packed(checked_product(blocks, kTileRows * panels.padded));
    for (int64_t block = 0; block < blocks; ++block) {
        float* const tiles = packed.data() + block * kTileRows * panels.padded;
        for (int64_t panel = 0; panel < panels.count; ++panel) {
            w.pack(block * kTileRows, panels.begin(panel), panels.width(panel), tiles + kTileRows * panels.begin(panel));
        }
    }
    return packed;
}

// Scratch of a thread that multiplies rows.
struct RowScratch {
    RowScratch(int64_t blocks, const Panels& panels) : lists(kRowsAtOnce * blocks), sums(kRowsAtOnce * panels.widest) {}

    Lists lists;
    Lines sums;
};

// out = g w of the rows [begin, end), kRowsAtOnce at most.
void multiply_rows(
    const Functions& functions, const SparseRows& g, const float* packed, const Panels& panels, int64_t dim, int64_t begin, int64_t end,
    RowScratch& scratch, float* out) {
    const int64_t rows = end - begin, blocks = (g.width + kTileRows - 1) / kTileRows;
    Lists& lists = scratch.lists;
    for (int64_t r = 0; r < rows; ++r) {
        const SparseRow row = g.row(begin + r);
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t column = block * kTileRows, list = block * kRowsAtOnce + r;
            lists.counts[list] = static_cast<uint32_t>(functions.find(
                row.from(column), std::min(kTileRows, g.width - column), lists.rows.data() + kListRoom * list,
                lists.values.data() + kListRoom * list));
        }
    }
    for (int64_t panel = 0; panel < panels.count; ++panel) {
        const int64_t column = panels.begin(panel), width = panels.width(panel), there = std::min(width, dim - column);
        std::fill_n(scratch.sums.data(), rows * width, 0.0f);
        for (int64_t block = 0; block < blocks; ++block) {
            const float* const tile = packed + block * kTileRows * panels.padded + kTileRows * column;
            functions.add_tile(lists.from(block * kRowsAtOnce, rows), {tile, width}, scratch.sums.data(), width);
        }
        for (int64_t r = 0; r < rows; ++r) std::copy_n(scratch.sums.data() + r * width, there, out + (begin + r) * dim + column);
    }
}

void multiply_sparse(
    const In<float>& g, const std::optional<In<float>>& where, float scale, const In<float>& w, std::pair<int64_t, int64_t> shape,
    const InOut<float>& out) {
    const auto [width, dim] = shape;
    require(width >= 1 && dim >= 1 && checked_product(width, dim) == static_cast<int64_t>(w.size()), "shape", "must be that of `w`");
    const SparseRows of_g = sparse_rows(g, where, scale, width);
    const int64_t rows = of_g.count;
    require(checked_product(rows, dim) == static_cast<int64_t>(out.size()), "out", "needs a row per row of g, as wide as `w`");
    const Panels panels(dim);
    const int64_t blocks = (width + kTileRows - 1) / kTileRows;
    float* const to = out.data();
    const Rows of_w{w.data(), width, dim, false};
    const nb::gil_scoped_release release;
    const ThreadsFor threads(checked_product(rows, checked_product(width, dim) / kTileLanes + 1));
    Lines packed_w = packed_rows(of_w, panels);
    const float* const packed = packed_w.data();
    const Functions functions = chosen();
    parallel_chunks(
        rows, kRowsAtOnce, [&] { return RowScratch(blocks, panels); },
        [&](RowScratch& scratch, int64_t begin, int64_t end) {
            multiply_rows(functions, of_g, packed, panels, dim, begin, end, scratch, to);
        });
}

}  // namespace

void bind_sparse_products(nb::module_& m) {
    m.def("sum_outer_products", &sum_outer_products, nb::arg("g").noconvert(), nb::arg("where").noconvert().none(), nb::arg("scale"),
          nb::arg("x").noconvert(), nb::arg("shape"), nb::arg("out"), nb::arg("column_sums").none(),
          "out = M^T x (flat, of `shape`), and the sums of M's columns. M is g, numbers that are 0 left out; or, where `where` is given, "
          "g * scale where that is above 0 or NaN, else 0.");
    m.def("multiply_sparse", &multiply_sparse, nb::arg("g").noconvert(), nb::arg("where").noconvert().none(), nb::arg("scale"),
          nb::arg("w").noconvert(), nb::arg("shape"), nb::arg("out"), "out = M w of w (flat, of `shape`), M as in sum_outer_products.");
}

}  // namespace spsample
