// add_rows, add_entries: sums over the columns of A in fixed point, for the scores of vertices (spsample/features/scores/column_sums.py).
//
// Numbers become integers, so that no sum depends on the order in which it is made: on the threads, or on the ranks that have the rows.
#include <algorithm>
#include <mutex>
#include <vector>

#include "bindings.h"
#include "fixed_point.h"

namespace spsample {
namespace {

constexpr int64_t kChunk = 1 << 18;         // entries
constexpr int64_t kEntriesPerColumn = 8;    // for each thread beyond the first

// Adds to the column of an entry; std::out_of_range where there is none.
struct Columns {
    int64_t* sums;
    uint64_t count;

    template <class Index>
    void add(Index column, int64_t number) const {
        const uint64_t place = static_cast<uint64_t>(static_cast<std::make_unsigned_t<Index>>(column));
        if (place >= count) throw std::out_of_range("columns: outside the sums");
        sums[place] += number;
    }
};

// A call's own number of threads.
class AtMostThreads {
public:
    explicit AtMostThreads(int64_t threads) : before_(set_thread_limit(static_cast<int>(std::min<int64_t>(threads, thread_limit())))) {}
    AtMostThreads(const AtMostThreads&) = delete;
    AtMostThreads& operator=(const AtMostThreads&) = delete;
    ~AtMostThreads() { set_thread_limit(before_); }

private:
    const int before_;
};

// One thread adds to the sums themselves, each other one to sums of its own, which are put together in the end. As many threads take part
// as have kEntriesPerColumn entries for each column: their sums then take no more memory than a byte an entry.
class SharedSums {
public:
    SharedSums(int64_t* sums, int64_t columns) : sums_(sums), columns_(columns) {}

    // Calls body(columns, begin, end) for chunks of [0, entries).
    template <class Body>
    void add(int64_t entries, const Body& body) {
        const AtMostThreads threads(1 + entries / (kEntriesPerColumn * std::max<int64_t>(columns_, 1)));
        parallel_chunks(entries, kChunk, [&] { return begun(); }, body);
        for (Buffer<int64_t>& own : own_) add_all(own.data());
    }

private:
    Columns begun() {
        const std::lock_guard<std::mutex> lock(mutex_);
        const uint64_t count = static_cast<uint64_t>(columns_);
        if (!std::exchange(is_taken_, true)) return {sums_, count};
        own_.emplace_back(columns_);
        std::fill_n(own_.back().data(), columns_, int64_t{0});
        return {own_.back().data(), count};
    }

    void add_all(const int64_t* own) {
        parallel_chunks(columns_, kChunk, [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c) sums_[c] += own[c];
        });
    }

    int64_t* const sums_;
    const int64_t columns_;
    std::mutex mutex_;
    bool is_taken_ = false;
    std::vector<Buffer<int64_t>> own_;
};

// sums[columns[e]] += ceil(scale numbers[r]) for the entries e of each row r. indptr (rows + 1,), columns (entries,), numbers (rows,): times
// `scale` at least 0 and, summed over a column, below 2^62; sums (n,) is added to. O(rows + entries), in parallel; rows of 0 are not read.
template <class Index>
void add_rows(
    const In<int64_t>& indptr, const In<Index>& columns, const In<double>& numbers, double scale, const InOut<int64_t>& sums) {
    const CsrView<Index> A = csr_view(indptr, columns);
    require(static_cast<int64_t>(numbers.size()) == A.num_rows, "numbers", "needs one element per row");
    const nb::gil_scoped_release release;
    const double* const of_row = numbers.data();
    SharedSums(sums.data(), static_cast<int64_t>(sums.size())).add(A.num_entries, [&](const Columns& to, int64_t begin, int64_t end) {
        int64_t row = std::upper_bound(A.indptr, A.indptr + A.num_rows + 1, begin) - A.indptr - 1;
        for (int64_t e = begin; e < end; ++row) {
            const int64_t stop = std::min(A.indptr[row + 1], end), number = rounded_up(of_row[row] * scale);
            if (number == 0) e = stop;
            for (; e < stop; ++e) to.add(A.indices[e], number);
        }
    });
}

// sums[columns[e]] += ceil(scale numbers[e]) for each entry. As add_rows, numbers (entries,).
template <class Index>
void add_entries(const In<Index>& columns, const In<double>& numbers, double scale, const InOut<int64_t>& sums) {
    const int64_t entries = static_cast<int64_t>(columns.size());
    require(static_cast<int64_t>(numbers.size()) == entries, "numbers", "needs one element per entry");
    const nb::gil_scoped_release release;
    SharedSums(sums.data(), static_cast<int64_t>(sums.size())).add(entries, [&](const Columns& to, int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) to.add(columns.data()[e], rounded_up(numbers.data()[e] * scale));
    });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("add_rows", &add_rows<Index>, nb::arg("indptr"), nb::arg("columns").noconvert(), nb::arg("numbers"), nb::arg("scale"),
          nb::arg("sums"), "Each entry adds its row's number, times `scale` and rounded up, to the sum of its column.");
    m.def("add_entries", &add_entries<Index>, nb::arg("columns").noconvert(), nb::arg("numbers"), nb::arg("scale"), nb::arg("sums"),
          "Each entry adds its own number, times `scale` and rounded up, to the sum of its column.");
}

}  // namespace

void bind_feature_column_sums(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
