// Products with a dense matrix most of whose numbers are 0, such as a gradient behind ReLU and dropout, and the choice of instruction set at
// run time (as in simd.h). Equal bits on all of them: each number is added up in one order, products are rounded before they are added.
//
// What is multiplied by it is packed: tiles of kTileRows rows and at most kTileWidth numbers of each, which fit the first cache.
#pragma once

#include <cstdint>

namespace spsample {

constexpr int64_t kTileRows = 64;
constexpr int64_t kTileWidth = 128;
constexpr int64_t kTileLanes = 16;  // widths of tiles are multiples of it
constexpr int64_t kListRoom = 80;   // from list to list: no power of two, which would put their beginnings into few sets of the cache

// Lists of numbers other than 0, each with its row in a tile: list i has counts[i] of them from kListRoom i on.
struct TileLists {
    const uint32_t* rows;
    const float* values;
    const uint32_t* counts;
    int64_t count;
};

// `width` numbers of kTileRows rows, one row after the other.
struct Tile {
    const float* numbers;
    int64_t width;
};

// sums[i stride .. + width) += the sum of values times the rows of the tile, for each list i.
using AddTile = void (*)(const TileLists& lists, const Tile& tile, float* sums, int64_t stride);

// Writes which of `count` numbers are not 0, and at which places. `places` and `values` have room for kTileLanes elements more. Returns how many.
using FindNumbers = int64_t (*)(const float* numbers, int64_t count, uint32_t* places, float* values);

// The same of kTileRows rows of `width` numbers at most, in lists by column: list i has counts[i] numbers of column i, from kListRoom i on.
using ListColumns = void (*)(const float* numbers, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts);

void add_tile_avx2(const TileLists& lists, const Tile& tile, float* sums, int64_t stride);
void add_tile_avx512(const TileLists& lists, const Tile& tile, float* sums, int64_t stride);
int64_t find_numbers_avx2(const float* numbers, int64_t count, uint32_t* places, float* values);
int64_t find_numbers_avx512(const float* numbers, int64_t count, uint32_t* places, float* values);

void list_columns_avx2(const float* numbers, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts);
void list_columns_avx512(const float* numbers, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts);

}  // namespace spsample
