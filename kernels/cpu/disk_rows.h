// Rows of a file, of which pages are kept in memory: how the file is divided, and what is read of it at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "disk_file.h"
#include "page_sets.h"

namespace spsample {

// A page is 2^shift rows that follow each other, kept in memory or not together; the last page may have fewer. Rows begin at byte `begin` of
// the file. Pages end anywhere in a block of the file; blocks are what can be read.
struct PageLayout {
    int64_t begin, num_rows, row_bytes;
    int shift;

    int64_t page_rows() const { return int64_t{1} << shift; }
    int64_t page_bytes() const { return row_bytes << shift; }
    int64_t num_pages() const { return (num_rows + page_rows() - 1) >> shift; }
    int64_t page_of(int64_t row) const { return row >> shift; }
    int64_t row_in_page(int64_t row) const { return row & (page_rows() - 1); }
    int64_t first_byte(int64_t page) const { return begin + std::min(page << shift, num_rows) * row_bytes; }
    int64_t first_block(int64_t page) const { return first_byte(page) / DiskFile::kBlock; }
    int64_t end_block(int64_t page) const { return (first_byte(page + 1) + DiskFile::kBlock - 1) / DiskFile::kBlock; }
};

// Blocks that are read at once, and the pages that lie whole in them; each page is one read's at most.
struct BlockRun {
    int64_t first_block, end_block;
    int64_t first_page, end_page;
};

// The reads that pages need, in the order of the file. Neighbours are one read, also those with a block between them, which costs less
// than another read; a read has at most `most_blocks`, which hold a page.
inline std::vector<BlockRun> runs_of(const PageSet& pages, const PageLayout& layout, int64_t most_blocks) {
    constexpr int64_t kGap = 1;
    std::vector<BlockRun> runs;
    const auto close = [&] {
        if (runs.empty()) return;
        BlockRun& run = runs.back();
        const int64_t end = run.end_block * DiskFile::kBlock - layout.begin;
        run.end_page = std::min(end / layout.page_bytes(), layout.num_pages());
        if (end >= layout.num_rows * layout.row_bytes) run.end_page = layout.num_pages();
    };
    pages.for_each([&](int64_t page) {
        const int64_t first = layout.first_block(page), end = layout.end_block(page);
        if (!runs.empty()) {
            BlockRun& run = runs.back();
            if (end <= run.end_block) return;
            if (first <= run.end_block + kGap && end - run.first_block <= most_blocks) {
                run.end_block = end;
                return;
            }
        }
        close();
        const int64_t before = first * DiskFile::kBlock - layout.begin;
        const int64_t whole = before <= 0 ? 0 : (before + layout.page_bytes() - 1) / layout.page_bytes();
        runs.push_back({first, end, std::max(whole, runs.empty() ? 0 : runs.back().end_page), 0});
    });
    close();
    return runs;
}

}  // namespace spsample
