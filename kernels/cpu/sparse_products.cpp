// sum_outer_products, multiply_sparse: g^T x and g w of a dense g most of whose numbers are 0; those are left out. The ways back through a
// product whose gradient is behind ReLU and dropout. The sums of g's columns, where asked for, are g^T times one more column of x, of ones.
//
// g (rows, width), x (rows, dim), w (width, dim). O(numbers of g + those other than 0 times dim), threads by pieces of the rows. No result
// depends on the number of threads or the instruction set (sparse_products.h). Numbers times 0 are taken for 0, infinities and NaN too.
#include "sparse_products.h"

#include <algorithm>

#include "bindings.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kPieces = 16;         // at most, of the rows of a sum of outer products, each with sums of its own
constexpr int64_t kColumnsAtOnce = 16;  // of g, between two requests to memory
constexpr int64_t kRowsAtOnce = 128;    // of a product's result

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

int64_t find_numbers(const float* numbers, int64_t count, uint32_t* places, float* values) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        places[found] = static_cast<uint32_t>(i);
        values[found] = numbers[i];
        found += numbers[i] != 0;
    }
    return found;
}

void list_columns(const float* numbers, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts) {
    std::fill_n(counts, width, 0u);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t column = 0; column < width; ++column) {
            const float number = numbers[r * width + column];
            const int64_t to = kListRoom * column + counts[column];
            places[to] = static_cast<uint32_t>(r);
            values[to] = number;
            counts[column] += number != 0;
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
          widest((padded / kTileLanes + count - 1) / count * kTileLanes) {}

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

// A matrix in C order.
struct Matrix {
    const float* numbers;
    int64_t rows, width;

    const float* row(int64_t number) const { return numbers + number * width; }
};

// Columns [begin, begin + width) of the kTileRows rows from `first` on, 0 where there are none.
void pack(const Matrix& x, int64_t first, int64_t begin, int64_t width, float* tile) {
    const int64_t there = std::clamp<int64_t>(x.width - begin, 0, width);
    for (int64_t r = 0; r < std::min(kTileRows, x.rows - first); ++r) {
        float* const to = tile + r * width;
        std::copy_n(x.row(first + r) + begin, there, to);
        std::fill_n(to + there, width - there, 0.0f);
    }
}

// Asks memory for part `part` of `parts` of some rows, while others are worked on.
void fetch_part(const Matrix& x, int64_t first, int64_t count, int64_t part, int64_t parts) {
    const int64_t numbers = count * x.width;
    for (int64_t i = numbers * part / parts; i < numbers * (part + 1) / parts; i += kTileLanes) SPSAMPLE_PREFETCH_NEAR(x.row(first) + i);
}

// Scratch of a thread that sums up outer products.
struct OuterScratch {
    OuterScratch(int64_t width, const Panels& panels) : lists(width), tile(kTileRows * panels.widest) {}

    Lists lists;
    Lines tile;
};

// g^T x, one piece of the rows after the other, and the pieces' sums added up in their order.
class OuterSums {
public:
    // `of_columns`: where the sums of g's columns go, or null.
    OuterSums(const Matrix& g, const Matrix& x, float* out, float* of_columns)
        : g_(g), x_(x), out_(out), of_columns_(of_columns), panels_(x.width + (of_columns != nullptr)) {}

    void run() const {
        const int64_t size = checked_product(g_.width, panels_.padded);
        const int64_t of_x = checked_product(g_.width, Panels(x_.width).padded);  // so that sums of columns change no piece
        const int64_t most = std::clamp<int64_t>(g_.rows * (g_.width + x_.width) / of_x, 1, kPieces);  // about as much room as g and x have
        const int64_t per_piece = (g_.rows / kTileRows / most + 1) * kTileRows, pieces = (g_.rows + per_piece - 1) / per_piece;
        Lines room(checked_product(pieces, size));
        float* const sums = room.data();
        parallel_chunks(
            pieces, 1, [&] { return OuterScratch(g_.width, panels_); },
            [&](OuterScratch& scratch, int64_t piece, int64_t) {
                const int64_t begin = piece * per_piece;
                sum_piece(begin, std::min(begin + per_piece, g_.rows), scratch, sums + piece * size);
            });
        parallel_chunks(g_.width, 16, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) add_pieces(sums, pieces, row);
        });
    }

private:
    // The sums of the rows [begin, end), one panel after the other, each with a row for each column of g.
    void sum_piece(int64_t begin, int64_t end, OuterScratch& scratch, float* sums) const {
        Lists& lists = scratch.lists;
        std::fill_n(sums, g_.width * panels_.padded, 0.0f);
        for (int64_t first = begin; first < end; first += kTileRows) {
            const int64_t rows = std::min(kTileRows, end - first), next = std::min(kTileRows, end - first - rows);
            functions_.list_columns(g_.row(first), rows, g_.width, lists.rows.data(), lists.values.data(), lists.counts.data());
            for (int64_t panel = 0; panel < panels_.count; ++panel) add_panel(panel, first, next, scratch, sums);
        }
    }

    // Adds the products of the rows from `first` on, and asks for the `next` ones behind them.
    void add_panel(int64_t panel, int64_t first, int64_t next, OuterScratch& scratch, float* sums) const {
        const int64_t column = panels_.begin(panel), width = panels_.width(panel);
        const int64_t groups = (g_.width + kColumnsAtOnce - 1) / kColumnsAtOnce, parts = panels_.count * groups;
        float* const tile = scratch.tile.data();
        pack(x_, first, column, width, tile);
        const int64_t ones = x_.width - column;
        if (of_columns_ && ones >= 0 && ones < width) {
            for (int64_t r = 0; r < kTileRows; ++r) tile[r * width + ones] = 1.0f;
        }
        for (int64_t group = 0; group < groups; ++group) {
            const int64_t part = panel * groups + group, list = group * kColumnsAtOnce;
            fetch_part(g_, first + kTileRows, next, part, parts);
            fetch_part(x_, first + kTileRows, next, part, parts);
            const TileLists lists = scratch.lists.from(list, std::min(kColumnsAtOnce, g_.width - list));
            functions_.add_tile(lists, {tile, width}, sums + g_.width * column + list * width, width);
        }
    }

    // One row of the total.
    void add_pieces(const float* sums, int64_t pieces, int64_t row) const {
        float* const total = out_ + row * x_.width;
        std::fill_n(total, x_.width, 0.0f);
        float of_column = 0.0f;
        for (int64_t piece = 0; piece < pieces; ++piece) {
            for (int64_t panel = 0; panel < panels_.count; ++panel) {
                const int64_t begin = panels_.begin(panel), width = panels_.width(panel), there = std::min(width, x_.width - begin);
                const float* const part = sums + g_.width * (piece * panels_.padded + begin) + row * width;
                for (int64_t j = 0; j < there; ++j) total[begin + j] += part[j];
                if (of_columns_ && there >= 0 && there < width) of_column += part[there];
            }
        }
        if (of_columns_) of_columns_[row] = of_column;
    }

    const Matrix g_, x_;
    float* const out_;
    float* const of_columns_;
    const Panels panels_;
    const Functions functions_ = chosen();
};

// Scratch of a thread that multiplies rows.
struct RowScratch {
    RowScratch(int64_t blocks, const Panels& panels) : lists(kRowsAtOnce * blocks), sums(kRowsAtOnce * panels.widest) {}

    Lists lists;
    Lines sums;
};

// g w. w is packed as tiles: all panels of the first kTileRows rows, then those of the next.
class RowProducts {
public:
    RowProducts(const Matrix& g, const Matrix& w, float* out)
        : g_(g), out_(out), dim_(w.width), panels_(w.width), blocks_((w.rows + kTileRows - 1) / kTileRows),
          room_(checked_product(blocks_, kTileRows * panels_.padded)), packed_(room_.data()) {
        for (int64_t block = 0; block < blocks_; ++block) {
            for (int64_t panel = 0; panel < panels_.count; ++panel) {
                pack(w, block * kTileRows, panels_.begin(panel), panels_.width(panel), tile(block, panel));
            }
        }
    }

    void run() const {
        parallel_chunks(
            g_.rows, kRowsAtOnce, [&] { return RowScratch(blocks_, panels_); },
            [&](RowScratch& scratch, int64_t begin, int64_t end) {
                list(begin, end, scratch.lists);
                for (int64_t panel = 0; panel < panels_.count; ++panel) multiply(begin, end, panel, scratch);
            });
    }

private:
    float* tile(int64_t block, int64_t panel) const { return packed_ + kTileRows * (block * panels_.padded + panels_.begin(panel)); }

    // Lists of the rows [begin, end), kRowsAtOnce at most: one list for each row and kTileRows columns.
    void list(int64_t begin, int64_t end, Lists& lists) const {
        for (int64_t row = begin; row < end; ++row) {
            for (int64_t block = 0; block < blocks_; ++block) {
                const int64_t column = block * kTileRows, to = block * kRowsAtOnce + row - begin;
                lists.counts[to] = static_cast<uint32_t>(functions_.find(
                    g_.row(row) + column, std::min(kTileRows, g_.width - column), lists.rows.data() + kListRoom * to,
                    lists.values.data() + kListRoom * to));
            }
        }
    }

    void multiply(int64_t begin, int64_t end, int64_t panel, RowScratch& scratch) const {
        const int64_t column = panels_.begin(panel), width = panels_.width(panel), there = std::min(width, dim_ - column);
        float* const sums = scratch.sums.data();
        std::fill_n(sums, (end - begin) * width, 0.0f);
        for (int64_t block = 0; block < blocks_; ++block) {
            functions_.add_tile(scratch.lists.from(block * kRowsAtOnce, end - begin), {tile(block, panel), width}, sums, width);
        }
        for (int64_t row = begin; row < end; ++row) std::copy_n(sums + (row - begin) * width, there, out_ + row * dim_ + column);
    }

    const Matrix g_;
    float* const out_;
    const int64_t dim_;
    const Panels panels_;
    const int64_t blocks_;
    Lines room_;
    float* const packed_;
    const Functions functions_ = chosen();
};

// g, whose rows are as long as `shape` says; `message` where that is not the shape of `size` numbers.
Matrix gradient(const In<float>& g, std::pair<int64_t, int64_t> shape, size_t size, const char* message) {
    const auto [width, dim] = shape;
    require(width >= 1 && dim >= 1 && checked_product(width, dim) == static_cast<int64_t>(size), "shape", message);
    const int64_t rows = static_cast<int64_t>(g.size()) / width;
    require(rows * width == static_cast<int64_t>(g.size()), "g", "needs whole rows");
    return {g.data(), rows, width};
}

int64_t work(const Matrix& g, int64_t dim) { return checked_product(g.rows, checked_product(g.width, dim) / kTileLanes + 1); }

void sum_outer_products(
    const In<float>& g, const In<float>& x, std::pair<int64_t, int64_t> shape, const InOut<float>& out, const std::optional<InOut<float>>& of_columns) {
    const Matrix of_g = gradient(g, shape, out.size(), "must be that of `out`");
    const Matrix of_x{x.data(), of_g.rows, shape.second};
    require(checked_product(of_x.rows, of_x.width) == static_cast<int64_t>(x.size()), "x", "needs a row per row of g, as wide as `out`");
    require(!of_columns || static_cast<int64_t>(of_columns->size()) == of_g.width, "of_columns", "needs one element per column of g");
    const OuterSums sums(of_g, of_x, out.data(), of_columns ? of_columns->data() : nullptr);
    const nb::gil_scoped_release release;
    const ThreadsFor threads(work(of_g, of_x.width));
    sums.run();
}

void multiply_sparse(const In<float>& g, const In<float>& w, std::pair<int64_t, int64_t> shape, const InOut<float>& out) {
    const Matrix of_g = gradient(g, shape, w.size(), "must be that of `w`");
    const Matrix of_w{w.data(), of_g.width, shape.second};
    require(checked_product(of_g.rows, of_w.width) == static_cast<int64_t>(out.size()), "out", "needs a row per row of g, as wide as `w`");
    float* const to = out.data();
    const nb::gil_scoped_release release;
    const ThreadsFor threads(work(of_g, of_w.width));
    RowProducts(of_g, of_w, to).run();
}

}  // namespace

void bind_sparse_products(nb::module_& m) {
    m.def("sum_outer_products", &sum_outer_products, nb::arg("g").noconvert(), nb::arg("x").noconvert(), nb::arg("shape"), nb::arg("out"),
          nb::arg("of_columns").none() = nb::none(), "out = g^T x (flat, of `shape`), and the sums of g's columns; zeros of g are left out.");
    m.def("multiply_sparse", &multiply_sparse, nb::arg("g").noconvert(), nb::arg("w").noconvert(), nb::arg("shape"), nb::arg("out"),
          "out = g w of w (flat, of `shape`); zeros of g are left out.");
}

}  // namespace spsample
