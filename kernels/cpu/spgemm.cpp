// C = A B, all CSR: Gustavson's algorithm row by row (ACM TOMS 4(3), 1978), each row by the accumulator that suits it.
//
// Rows are cut into tasks of equal work, not of equal numbers of rows, and a row of much work is cut into ranges of columns. A
// first pass computes every row once, into blocks of memory that threads fill one after the other, and so finds the sizes; then
// the rows are copied to their places in arrays of the right size. Rows of A with a single entry, as in a selector's product
// Q A, are scaled copies of rows of B and need no first pass where B's row ascends without repeats.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "spgemm_accumulators.h"
#include "bindings.h"
#include "parallel.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 1 << 12;
constexpr int64_t kLeastWork = 1 << 13;    // of a task, in products
constexpr int64_t kMostWork = 1 << 18;
constexpr int64_t kTasksPerThread = 16;
constexpr int64_t kLeastColumns = 1 << 12;  // of a part of a row
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kBytesAhead = 1 << 6;

// --- operands ---------------------------------------------------------------------------------------------------------

// Values null: every entry is 1.
template <class Index, class T>
struct Operand {
    CsrView<Index> pattern;
    const T* data;
};

// A B and what is known of it. `work` (rows of A + 1) are prefix sums of each row's products, entries of A and 1.
template <class Index, class T>
struct Factors {
    Operand<Index, T> A, B;
    int64_t num_columns;
    Buffer<int64_t> work;
    std::vector<T> ones;  // as many as B's longest row has entries, where B has no values

    int64_t num_rows() const { return A.pattern.num_rows; }
    int64_t products(int64_t row) const { return work[row + 1] - work[row] - A.pattern.degree(row) - 1; }
    T scale(int64_t p) const { return A.data ? A.data[p] : T(1); }
    const T* values(int64_t q) const { return B.data ? B.data + q : ones.data(); }
};

// Number of products a_ij b_jv of row i. Checks the columns of A and the pointers of the rows of B that are read.
template <class Index>
int64_t count_products(const CsrView<Index>& A, const CsrView<Index>& B, int64_t row, int64_t& longest) {
    int64_t products = 0;
    for (int64_t p = A.indptr[row]; p < A.indptr[row + 1]; ++p) {
        const int64_t j = A.indices[p], ahead = std::min(p + 4 * kRowsAhead, A.num_entries - 1);
        __builtin_prefetch(B.indptr + A.indices[ahead]);  // anywhere: not checked yet
        require(0 <= j && j < B.num_rows, "A", "a column is outside the matrix");
        const int64_t first = B.indptr[j], last = B.indptr[j + 1];
        require(0 <= first && first <= last && last <= B.num_entries, "B", "must not descend");
        longest = std::max(longest, last - first);
        products = checked_sum(products, last - first);
    }
    return products;
}

// Fills `work` and `ones`. O(entries of A).
template <class Index, class T>
void count_work(Factors<Index, T>& factors) {
    const CsrView<Index>& A = factors.A.pattern;
    const ThreadsFor threads(A.num_rows + A.num_entries);
    factors.work = Buffer<int64_t>(A.num_rows + 1);
    std::atomic<int64_t> longest_row{0};
    parallel_chunks(A.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        int64_t longest = 0;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t products = count_products(A, factors.B.pattern, i, longest);
            factors.work[i + 1] = checked_sum(products, A.degree(i) + 1);
        }
        int64_t known = longest_row;
        while (known < longest && !longest_row.compare_exchange_weak(known, longest)) continue;
    });
    factors.work[0] = 0;
    for (int64_t i = 0; i < A.num_rows; ++i) factors.work[i + 1] = checked_sum(factors.work[i], factors.work[i + 1]);
    if (!factors.B.data) factors.ones.assign(static_cast<size_t>(longest_row), T(1));
}

// Asks for the first `count` items; of many only the beginning, for the processor sees by itself how it goes on.
template <class Item>
void fetch(const Item* items, int64_t count) {
    const char* const from = reinterpret_cast<const char*>(items);
    const int64_t bytes = std::min(count * static_cast<int64_t>(sizeof(Item)), kBytesAhead);
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(from + b);
}

// Asks for the row of B that A's entry p + kRowsAhead names, and for the pointers of one as far again.
template <class Index, class T>
void fetch_ahead(const Factors<Index, T>& factors, int64_t p, bool with_values) {
    const CsrView<Index>& A = factors.A.pattern;
    const CsrView<Index>& B = factors.B.pattern;
    const auto row = [&](int64_t entry) { return A.indices[std::min(entry, A.num_entries - 1)]; };
    __builtin_prefetch(B.indptr + row(p + 2 * kRowsAhead));
    const int64_t j = row(p + kRowsAhead);
    fetch(B.indices + B.begin(j), B.degree(j));
    if (with_values) fetch(factors.values(B.begin(j)), B.degree(j));
}

// Calls body(ScaledRow) for each entry of A's row i, with the whole row of B. Checks the columns of B on the way.
template <class Index, class T, class Body>
void for_each_row(const Factors<Index, T>& factors, int64_t i, Body&& body) {
    const CsrView<Index>& A = factors.A.pattern;
    const CsrView<Index>& B = factors.B.pattern;
    for (int64_t p = A.indptr[i]; p < A.indptr[i + 1]; ++p) {
        fetch_ahead(factors, p, true);
        const int64_t begin = B.begin(A.indices[p]), count = B.degree(A.indices[p]);
        require(in_range(B.indices + begin, count, factors.num_columns), "B", "a column is outside the matrix");
        body(ScaledRow<Index, T>{B.indices + begin, factors.values(begin), count, factors.scale(p)});
    }
}

// --- method ---------------------------------------------------------------------------------------------------------------

enum class Method { kPairs, kRank, kMerge, kDense, kHash };

// How to add up the products of a row. Sums for all columns pay where they fit in a cache and
// there is work enough to make up for setting them; few products are merged faster.
template <class Index, class T>
Method method_for(const Factors<Index, T>& factors, int64_t row) {
    constexpr int64_t kMostBytes = int64_t{1} << 25;
    constexpr int64_t kMostMerged = 64;
    constexpr int64_t kMostMergedRows = 2;
    constexpr int64_t kMostMergedPairs = 1 << 12;  // products of so few rows: longer ones are merged outside of the nearest cache
    const int64_t products = factors.products(row), entries = factors.A.pattern.degree(row);
    if (products <= PairsAccumulator<Index, T>::kMost) return Method::kPairs;
    if (products <= RankAccumulator<Index, T>::kMost) return Method::kRank;
    const bool few_rows = entries <= kMostMergedRows;
    if (products <= kMostMerged || (few_rows && products <= kMostMergedPairs)) return Method::kMerge;
    const bool fits = factors.num_columns <= kMostBytes / static_cast<int64_t>(sizeof(T));
    const bool pays = factors.num_columns <= factors.work[factors.num_rows()];
    if (fits && pays) return Method::kDense;
    return few_rows ? Method::kMerge : Method::kHash;
}

// How many tasks should share a row.
template <class Index, class T>
int64_t num_parts(const Factors<Index, T>& factors, int64_t row, int64_t threads) {
    if (threads == 1 || method_for(factors, row) != Method::kDense) return 1;
    return factors.products(row) / kMostWork;
}

// --- tasks --------------------------------------------------------------------------------------------------------------

struct ColumnRange {
    int64_t begin, end;
};

// Rows of C, or (`part` set) some columns of one row; and where the first pass left the result: rows one after the other.
template <class Index, class T>
struct Task {
    int64_t row_begin, row_end;
    std::optional<ColumnRange> part;
    bool copies = true;  // rows with one entry of A are copied from B later on
    RowOutput<Index, T> rows{nullptr, nullptr};
    int64_t count = 0;  // entries of a part
    int64_t place = 0;  // of a part, within its row
};

// Blocks of memory for results whose sizes are not known beforehand. Thread-safe.
template <class Index, class T>
class BlockStore {
public:
    // Room for `entries` entries; it lives as long as the store.
    RowOutput<Index, T> take(int64_t entries) {
        auto columns = std::make_unique<Buffer<Index>>(entries);
        auto values = std::make_unique<Buffer<T>>(entries);
        const std::lock_guard<std::mutex> lock(mutex_);
        columns_.push_back(std::move(columns));
        values_.push_back(std::move(values));
        return {columns_.back()->data(), values_.back()->data()};
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Buffer<Index>>> columns_;
    std::vector<std::unique_ptr<Buffer<T>>> values_;
};

// Memory of one thread: the rest of its current block, and the accumulators.
template <class Index, class T>
class RowWriter {
public:
    explicit RowWriter(BlockStore<Index, T>& store) : store_(&store) {}

    // Room for a task's rows, at most `entries` in all.
    RowOutput<Index, T> room(int64_t entries) {
        if (left_ < entries) {
            left_ = std::max(entries, kBlock);
            next_ = store_->take(left_);
        }
        return next_;
    }

    void written(int64_t entries) {
        next_.columns += entries;
        next_.values += entries;
        left_ -= entries;
    }

    DenseAccumulator<Index, T> dense;
    PairsAccumulator<Index, T> pairs;
    RankAccumulator<Index, T> ranked;
    MergeAccumulator<Index, T> merged;
    HashAccumulator<Index, T> hashed;

private:
    static constexpr int64_t kBlock = int64_t{1} << 19;  // entries
    BlockStore<Index, T>* store_;
    RowOutput<Index, T> next_{nullptr, nullptr};
    int64_t left_ = 0;
};

// Whether all rows of B that row i of A names ascend, their columns checked. In parallel, for rows of much work.
template <class Index, class T>
bool ascending_rows(const Factors<Index, T>& factors, int64_t i) {
    const CsrView<Index>& A = factors.A.pattern;
    const CsrView<Index>& B = factors.B.pattern;
    std::atomic<bool> all{true};
    parallel_chunks(A.degree(i), 64, [&](int64_t begin, int64_t end) {
        for (int64_t p = A.begin(i) + begin; p < A.begin(i) + end; ++p) {
            const Index* const columns = B.indices + B.begin(A.indices[p]);
            const int64_t count = B.degree(A.indices[p]);
            require(in_range(columns, count, factors.num_columns), "B", "a column is outside the matrix");
            if (!std::is_sorted(columns, columns + count)) all = false;
        }
    });
    return all;
}

// Bounds of `parts` ranges of columns with about as many products of row i each, from a sample of them; ends included.
template <class Index, class T>
std::vector<int64_t> column_bounds(const Factors<Index, T>& factors, int64_t i, int64_t parts) {
    const CsrView<Index>& A = factors.A.pattern;
    const CsrView<Index>& B = factors.B.pattern;
    const int64_t step = std::max<int64_t>(1, factors.products(i) / (parts * 64));
    std::vector<int64_t> sample;
    int64_t next = 0;  // the next product of the sample, counted from the begin of the row of B
    for (int64_t p = A.indptr[i]; p < A.indptr[i + 1]; ++p) {
        const int64_t begin = B.begin(A.indices[p]), count = B.degree(A.indices[p]);
        for (; next < count; next += step) sample.push_back(B.indices[begin + next]);
        next -= count;
    }
    std::sort(sample.begin(), sample.end());
    std::vector<int64_t> bounds{0};
    for (int64_t k = 1; k < parts; ++k) {
        const int64_t bound = sample[static_cast<size_t>(k) * sample.size() / static_cast<size_t>(parts)];
        if (bound >= bounds.back() + kLeastColumns) bounds.push_back(bound);
    }
    bounds.push_back(factors.num_columns);
    return bounds;
}

// Cuts [0, rows) into tasks of about equal work, rows of much work into ranges of columns.
template <class Index, class T>
std::vector<Task<Index, T>> make_tasks(const Factors<Index, T>& factors) {
    const int64_t num_rows = factors.num_rows(), threads = thread_limit();
    const Buffer<int64_t>& work = factors.work;
    const int64_t target = std::clamp(work[num_rows] / (kTasksPerThread * threads), kLeastWork, kMostWork);
    std::vector<Task<Index, T>> tasks;
    for (int64_t row = 0; row < num_rows;) {
        const int64_t* const after = std::upper_bound(work.data() + row + 1, work.data() + num_rows + 1, work[row] + target);
        const int64_t end = std::max(row + 1, after - work.data() - 1);
        const int64_t parts = num_parts(factors, row, threads);
        if (end == row + 1 && parts > 1 && ascending_rows(factors, row)) {
            const std::vector<int64_t> bounds = column_bounds(factors, row, parts);
            for (size_t k = 1; k < bounds.size(); ++k) tasks.push_back({row, end, ColumnRange{bounds[k - 1], bounds[k]}});
        } else {
            tasks.push_back({row, end, std::nullopt});
        }
        row = end;
    }
    return tasks;
}

// --- first pass: rows that are computed -----------------------------------------------------------------------------------

// Row i into `out`, which has room for min(products, columns) entries. Returns how many there are.
template <class Index, class T>
int64_t compute_row(const Factors<Index, T>& factors, int64_t i, RowWriter<Index, T>& writer, const RowOutput<Index, T>& out) {
    const auto compute = [&](auto& accumulator) {
        for_each_row(factors, i, [&](const ScaledRow<Index, T>& row) { accumulator.add_row(row); });
        return accumulator.take(out);
    };
    switch (method_for(factors, i)) {
        case Method::kPairs: writer.pairs.begin(); return compute(writer.pairs);
        case Method::kRank: writer.ranked.begin(); return compute(writer.ranked);
        case Method::kMerge: writer.merged.begin(); return compute(writer.merged);
        case Method::kDense: writer.dense.begin(0, factors.num_columns); return compute(writer.dense);
        default: writer.hashed.begin(std::min<int64_t>(factors.products(i), 1 << 16)); return compute(writer.hashed);
    }
}

// Whether row i of C is a scaled copy of a row of B, once that is known to ascend.
template <class Index, class T>
bool is_copy(const Factors<Index, T>& factors, int64_t i) {
    return factors.A.pattern.degree(i) == 1;
}

// Whether there are rows to copy in the task, and every row of B that they copy ascends without repeats. Checks their columns.
template <class Index, class T>
bool can_copy(const Factors<Index, T>& factors, const Task<Index, T>& task) {
    const CsrView<Index>& A = factors.A.pattern;
    const CsrView<Index>& B = factors.B.pattern;
    bool any = false;
    for (int64_t i = task.row_begin; i < task.row_end; ++i) {
        if (!is_copy(factors, i)) continue;
        any = true;
        fetch_ahead(factors, A.begin(i), false);
        const Index* const columns = B.indices + B.begin(A.indices[A.begin(i)]);
        const int64_t count = factors.products(i);
        if (count == 0) continue;
        if (!ascends(columns, count)) return false;
        require(columns[0] >= 0 && columns[count - 1] < factors.num_columns, "B", "a column is outside the matrix");
    }
    return any;
}

// Computes the task's rows, but for those that are copied later on, and writes the lengths of all.
template <class Index, class T>
void compute_rows(const Factors<Index, T>& factors, Task<Index, T>& task, RowWriter<Index, T>& writer, int64_t* lengths) {
    task.copies = can_copy(factors, task);
    const auto copied = [&](int64_t i) { return task.copies && is_copy(factors, i); };
    int64_t most = 0;
    for (int64_t i = task.row_begin; i < task.row_end; ++i) {
        if (!copied(i)) most = checked_sum(most, std::min(factors.products(i), factors.num_columns));
    }
    if (most > 0) task.rows = writer.room(most);
    int64_t count = 0;
    for (int64_t i = task.row_begin; i < task.row_end; ++i) {
        const int64_t products = factors.products(i);
        if (copied(i) || products == 0) {
            lengths[i] = products;
        } else {
            lengths[i] = compute_row(factors, i, writer, {task.rows.columns + count, task.rows.values + count});
            count += lengths[i];
        }
    }
    writer.written(count);
}

// The same for some columns of a row whose rows of B ascend.
template <class Index, class T>
void compute_part(const Factors<Index, T>& factors, Task<Index, T>& task, RowWriter<Index, T>& writer) {
    const auto [begin, end] = *task.part;
    task.rows = writer.room(std::min(factors.products(task.row_begin), end - begin));
    writer.dense.begin(begin, end - begin);
    for_each_row(factors, task.row_begin, [&](const ScaledRow<Index, T>& row) {
        const Index* const last = row.columns + row.count;
        const Index* const from = std::lower_bound(row.columns, last, begin);
        const Index* const to = std::lower_bound(from, last, end);
        writer.dense.add_row({from, row.values + (from - row.columns), to - from, row.scale});
    });
    task.count = writer.dense.take(task.rows);
    writer.written(task.count);
}

// --- second pass: every row at its place ----------------------------------------------------------------------------------

template <class Index, class T>
struct Product {
    Buffer<int64_t> indptr;
    Buffer<Index> indices;
    Buffer<T> data;
};

// From the lengths in indptr[1], indptr[2], ... to row pointers; parts of rows get their places. O(rows + tasks).
template <class Index, class T>
void fill_pointers(std::vector<Task<Index, T>>& tasks, Buffer<int64_t>& indptr) {
    for (Task<Index, T>& task : tasks) {
        if (!task.part) continue;
        int64_t& length = indptr[task.row_begin + 1];
        if (task.part->begin == 0) length = 0;
        task.place = length;
        length = checked_sum(length, task.count);
    }
    indptr[0] = 0;
    for (int64_t i = 1; i < indptr.size(); ++i) indptr[i] = checked_sum(indptr[i - 1], indptr[i]);
}

template <class Index, class T>
void copy_row(const RowOutput<Index, T>& from, int64_t count, const RowOutput<Index, T>& to) {
    std::copy(from.columns, from.columns + count, to.columns);
    std::copy(from.values, from.values + count, to.values);
}

template <class Index, class T>
void copy_scaled(const Factors<Index, T>& factors, int64_t i, int64_t count, const RowOutput<Index, T>& to) {
    const int64_t p = factors.A.pattern.begin(i);
    fetch_ahead(factors, p, true);
    const int64_t begin = factors.B.pattern.begin(factors.A.pattern.indices[p]);
    const T scale = factors.scale(p);
    const T* const values = factors.values(begin);
    std::copy(factors.B.pattern.indices + begin, factors.B.pattern.indices + begin + count, to.columns);
    for (int64_t q = 0; q < count; ++q) to.values[q] = multiply(scale, values[q]);
}

template <class Index, class T>
void write_rows(const Factors<Index, T>& factors, const Task<Index, T>& task, Product<Index, T>& C) {
    const auto place = [&](int64_t at) { return RowOutput<Index, T>{C.indices.data() + at, C.data.data() + at}; };
    if (task.part) return copy_row(task.rows, task.count, place(C.indptr[task.row_begin] + task.place));
    RowOutput<Index, T> from = task.rows;
    int64_t pending = C.indptr[task.row_begin];  // computed rows from here on lie side by side in both places
    const auto copy_pending = [&](int64_t end) {
        const int64_t count = end - pending;
        if (count > 0) copy_row(from, count, place(pending));
        from = {from.columns + count, from.values + count};
    };
    for (int64_t i = task.row_begin; task.copies && i < task.row_end; ++i) {
        if (!is_copy(factors, i)) continue;
        copy_pending(C.indptr[i]);
        copy_scaled(factors, i, C.indptr[i + 1] - C.indptr[i], place(C.indptr[i]));
        pending = C.indptr[i + 1];
    }
    copy_pending(C.indptr[task.row_end]);
}

// A: m x p, B: p x num_columns, entries of both in any order, with repeats. Columns of C ascend in each row. O(products log
// (entries of a row of A)) at most where rows are merged, O(products + C's entries) otherwise; memory beside the result: the
// computed rows once more, and O(num_columns) (at most 32 MB and an eighth) per thread.
template <class Index, class T>
Product<Index, T> multiply_matrices(Factors<Index, T>& factors) {
    count_work(factors);
    const ThreadsFor threads(factors.work[factors.num_rows()]);
    std::vector<Task<Index, T>> tasks = make_tasks(factors);
    const int64_t num_tasks = static_cast<int64_t>(tasks.size());
    Product<Index, T> C{Buffer<int64_t>(factors.num_rows() + 1), {}, {}};
    BlockStore<Index, T> store;
    const auto make_writer = [&] { return RowWriter<Index, T>(store); };
    parallel_chunks(num_tasks, 1, make_writer, [&](RowWriter<Index, T>& writer, int64_t t, int64_t) {
        Task<Index, T>& task = tasks[static_cast<size_t>(t)];
        if (task.part) {
            compute_part(factors, task, writer);
        } else {
            compute_rows(factors, task, writer, C.indptr.data() + 1);
        }
    });
    fill_pointers(tasks, C.indptr);
    C.indices = Buffer<Index>(C.indptr[factors.num_rows()]);
    C.data = Buffer<T>(C.indptr[factors.num_rows()]);
    parallel_chunks(num_tasks, 1, [&](int64_t t, int64_t) { write_rows(factors, tasks[static_cast<size_t>(t)], C); });
    return C;
}

// --- bindings -------------------------------------------------------------------------------------------------------------

template <class Index, class T>
Operand<Index, T> operand(
    const In<int64_t>& indptr, const In<Index>& indices, const std::optional<In<T>>& data, const char* name) {
    require(!data || data->size() == indices.size(), name, "needs one value per entry");
    require(indptr.size() >= 1 && indptr.data()[0] == 0, name, "must start at 0");
    const bool ends = indptr.data()[indptr.size() - 1] == static_cast<int64_t>(indices.size());
    require(ends, name, "must end at the number of elements it points into");
    return {csr_view<Index>(indptr, indices), data ? data->data() : nullptr};
}

template <class Index, class T>
nb::tuple spgemm(
    const In<int64_t>& a_indptr, const In<Index>& a_indices, const std::optional<In<T>>& a_data,
    const In<int64_t>& b_indptr, const In<Index>& b_indices, const std::optional<In<T>>& b_data, int64_t num_columns) {
    const Operand<Index, T> A = operand<Index, T>(a_indptr, a_indices, a_data, "A");
    const Operand<Index, T> B = operand<Index, T>(b_indptr, b_indices, b_data, "B");
    require_pointers(a_indptr, static_cast<int64_t>(a_indices.size()), "A");
    require(num_columns >= 0, "num_columns", "must not be negative");
    Product<Index, T> C;
    {
        nb::gil_scoped_release release;
        Factors<Index, T> factors{A, B, num_columns, {}, {}};
        C = multiply_matrices(factors);
    }
    return nb::make_tuple(to_numpy(std::move(C.indptr)), to_numpy(std::move(C.indices)), to_numpy(std::move(C.data)));
}

template <class Index, class T>
void bind_spgemm_for(nb::module_& m) {
    m.def("spgemm", &spgemm<Index, T>, nb::arg("a_indptr"), nb::arg("a_indices").noconvert(),
          nb::arg("a_data").noconvert().none(), nb::arg("b_indptr"), nb::arg("b_indices").noconvert(),
          nb::arg("b_data").noconvert().none(), nb::arg("num_columns"),
          "(indptr, indices, data) of A B. Values that are None are ones, of the other matrix's type or else float32.");
}

template <class Index>
void bind_spgemm_types(nb::module_& m) {
    bind_spgemm_for<Index, float>(m);
    bind_spgemm_for<Index, double>(m);
    bind_spgemm_for<Index, uint64_t>(m);  // of int64 too: both wrap around
}

}  // namespace

void bind_spgemm(nb::module_& m) {
    bind_spgemm_types<int32_t>(m);
    bind_spgemm_types<int64_t>(m);
}

}  // namespace spsample
