// What the files of this folder share: array types of the interface, owned output buffers, checks and type dispatch.
//
// Every kernel file follows one pattern: take arrays, check lengths, release the GIL, fill `Buffer`s, take the GIL again
// and hand the buffers to NumPy with `to_numpy`. Index types are dispatched by overloads (one template instance each for
// int32 and int64; arrays are never converted), weights by `with_weights`.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "arguments.h"
#include "arrays.h"
#include "memory.h"
#include "parallel.h"
#include "spsample/philox.h"
#include "spsample/views.h"

namespace nb = nanobind;

namespace spsample {

// Uninitialised memory of `size` elements that becomes a NumPy array in the end. std::bad_alloc becomes MemoryError.
template <class T>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(int64_t size) : block_(take_block(bytes(size))), size_(size) {}
    Buffer(Buffer&& other) noexcept : block_(other.release()), size_(std::exchange(other.size_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(block_, other.block_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Buffer() {
        if (block_.memory) give_block(block_);
    }

    T* data() { return static_cast<T*>(block_.memory); }
    const T* data() const { return static_cast<const T*>(block_.memory); }
    int64_t size() const { return size_; }
    T& operator[](int64_t i) { return data()[i]; }
    const T& operator[](int64_t i) const { return data()[i]; }

    // The memory, which is the caller's to give back from now on.
    Block release() { return std::exchange(block_, Block{nullptr, 0}); }

private:
    static size_t bytes(int64_t size) {
        if (size < 0 || static_cast<uint64_t>(size) > std::numeric_limits<size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
        return static_cast<size_t>(size) * sizeof(T);
    }
    Block block_{nullptr, 0};
    int64_t size_ = 0;
};

// What keeps the buffer's memory alive as long as a NumPy array of it lives. Needs the GIL.
template <class T>
nb::capsule to_owner(Buffer<T>&& buffer) {
    auto block = std::make_unique<Block>(buffer.release());
    nb::capsule owner(block.get(), [](void* p) noexcept {
        const std::unique_ptr<Block> owned(static_cast<Block*>(p));
        give_block(*owned);
    });
    (void)block.release();  // the capsule's now
    return owner;
}

// Gives the buffer's memory to a NumPy array. Needs the GIL.
template <class T>
nb::object to_numpy(Buffer<T>&& buffer, ElementType type, std::initializer_list<int64_t> shape) {
    if (!buffer.data()) buffer = Buffer<T>(0);
    T* memory = buffer.data();
    return make_array(memory, type, shape, to_owner(std::move(buffer)));
}

template <class T>
nb::object to_numpy(Buffer<T>&& buffer, std::initializer_list<int64_t> shape) {
    return to_numpy(std::move(buffer), ElementType::of<T>(), shape);
}

template <class T>
nb::object to_numpy(Buffer<T>&& buffer) {
    const int64_t size = buffer.size();
    return to_numpy(std::move(buffer), {size});
}

// --- sizes and checks -------------------------------------------------------------------------------------------------

inline int64_t checked_product(int64_t a, int64_t b) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) throw std::overflow_error("a product of sizes passes 2^63");
    return product;
}

inline int64_t checked_sum(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) throw std::overflow_error("a sum of sizes passes 2^63");
    return sum;
}

// ValueError "name: message" unless `condition`.
inline void require(bool condition, const char* name, const char* message) {
    if (!condition) throw std::invalid_argument(std::string(name) + ": " + message);
}

// `pointers` must start at 0, not descend, and end at `total`.
inline void require_pointers(const In<int64_t>& pointers, int64_t total, const char* name) {
    const int64_t size = static_cast<int64_t>(pointers.size());
    require(size >= 1, name, "needs at least one element");
    const int64_t* p = pointers.data();
    require(p[0] == 0, name, "must start at 0");
    require(p[size - 1] == total, name, "must end at the number of elements it points into");
    for (int64_t i = 1; i < size; ++i) require(p[i - 1] <= p[i], name, "must not descend");
}

// --- views of the arguments -------------------------------------------------------------------------------------------

// A square A. Checks lengths and the last pointer only (O(1)): A is validated where the graph is built.
template <class Index>
CsrView<Index> csr_view(const In<int64_t>& indptr, const In<Index>& indices) {
    require(indptr.size() >= 1, "indptr", "needs at least one element");
    const int64_t num_rows = static_cast<int64_t>(indptr.size()) - 1;
    const int64_t num_entries = static_cast<int64_t>(indices.size());
    require(indptr.data()[0] == 0 && indptr.data()[num_rows] == num_entries, "indptr", "must run from 0 to len(indices)");
    return {indptr.data(), indices.data(), num_rows, num_entries, num_rows, nullptr};
}

// The same of rows whose vertices are `ids` (num_rows), where given.
template <class Index>
CsrView<Index> csr_view_of(const In<int64_t>& indptr, const In<Index>& indices, const std::optional<In<Index>>& ids) {
    CsrView<Index> A = csr_view(indptr, indices);
    require(!ids || static_cast<int64_t>(ids->size()) == A.num_rows, "ids", "needs one element per row");
    if (ids) A.ids = ids->data();
    return A;
}

// The same of rows over `num_columns` columns, where given.
template <class Index>
CsrView<Index> csr_view_over(const In<int64_t>& indptr, const In<Index>& indices, const std::optional<int64_t>& num_columns) {
    CsrView<Index> A = csr_view(indptr, indices);
    require(!num_columns || *num_columns >= 0, "num_columns", "must not be negative");
    if (num_columns) A.num_columns = *num_columns;
    return A;
}

// Whether all ids lie in [0, limit). O(count), without a branch per id.
template <class Index>
bool in_range(const Index* ids, int64_t count, int64_t limit) {
    using Unsigned = std::make_unsigned_t<Index>;
    Unsigned outside = 0;
    for (int64_t i = 0; i < count; ++i) outside |= static_cast<uint64_t>(static_cast<Unsigned>(ids[i])) >= static_cast<uint64_t>(limit);
    return outside == 0;
}

// Whether columns ascend without repeats. Without a branch for each: most often they do.
template <class Index>
bool ascends(const Index* columns, int64_t count) {
    Index falls = 0;
    for (int64_t q = 1; q < count; ++q) falls |= static_cast<Index>(columns[q - 1] >= columns[q]);
    return falls == 0;
}

// As `in_range`, by all threads: not for use within a parallel loop.
template <class Index>
bool all_below(const Index* ids, int64_t count, int64_t limit) {
    constexpr int64_t kChunk = 1 << 16;
    std::atomic<bool> below{true};
    parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
        if (!in_range(ids + begin, end - begin, limit)) below = false;
    });
    return below;
}

// Checks the pointers of k batches (O(k)), but no vertex: for kernels that look at all of them anyway.
template <class Index>
SelectorView<Index> unchecked_selector_view(
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& batch_ids) {
    const int64_t num_rows = static_cast<int64_t>(vertices.size());
    require_pointers(batch_ptr, num_rows, "batch_ptr");
    require(batch_ids.size() + 1 == batch_ptr.size(), "batch_ids", "needs one element per batch");
    return {batch_ptr.data(), vertices.data(), batch_ids.data(), static_cast<int64_t>(batch_ids.size()), num_rows};
}

// `inside`: whether the selected vertices are rows of A.
inline void require_vertices(bool inside) { require(inside, "vertices", "a vertex is not a row of the matrix"); }

// The same, checked: every selected vertex is a row of A. O(m).
template <class Index>
SelectorView<Index> selector_view(
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& batch_ids, int64_t num_graph_rows) {
    const SelectorView<Index> Q = unchecked_selector_view(batch_ptr, vertices, batch_ids);
    require_vertices(all_below(Q.vertices, Q.num_rows, num_graph_rows));
    return Q;
}

template <class Index>
SelectorView<Index> selector_view(const SelectorIn<Index>& Q, int64_t num_graph_rows) {
    return selector_view(Q.batch_ptr, Q.vertices, Q.batch_ids, num_graph_rows);
}

// --- type dispatch ----------------------------------------------------------------------------------------------------

// Calls body(weights) with the weight functor (views.h) that `data` and `row_normalized` stand for.
template <class Body>
decltype(auto) with_weights(const std::optional<AnyIn>& data, bool row_normalized, int64_t num_entries, Body&& body) {
    if (!data) {
        if (row_normalized) return body(RowNormalizedWeights{});
        return body(UnitWeights{});
    }
    require(static_cast<int64_t>(data->size()) == num_entries, "data", "needs one element per entry");
    if (data->is<float>()) return body(ArrayWeights<float>{static_cast<const float*>(data->data())});
    require(data->is<double>(), "data", "must be float32 or float64");
    return body(ArrayWeights<double>{static_cast<const double*>(data->data())});
}

// --- how to draw ------------------------------------------------------------------------------------------------------

struct DrawArguments {
    PhiloxKey key;
    uint32_t hop;
    int64_t size;
    bool replace;
};

inline DrawArguments draw_arguments(uint32_t key0, uint32_t key1, int64_t hop, int64_t size, bool replace) {
    require(hop >= 0 && hop < 256, "hop", "must be in [0, 256)");
    require(size >= 0, "size", "must not be negative");
    return {{key0, key1}, static_cast<uint32_t>(hop), size, replace};
}

inline DrawArguments draw_arguments(const DrawIn& draw) {
    return draw_arguments(draw.key.first, draw.key.second, draw.hop, draw.size, draw.replace);
}

// No draw numbers are left (docs/law.md, section 1). In Python `_core.DrawLimitReached`, an OverflowError.
struct DrawLimitReached : std::overflow_error {
    DrawLimitReached() : std::overflow_error("the next round of draws would pass the last draw number") {}
};

inline void require_draws(bool enough) {
    if (!enough) throw DrawLimitReached();
}

// --- one function per file --------------------------------------------------------------------------------------------

void bind_random(nb::module_& m);
void bind_quantisation(nb::module_& m);
void bind_row_law(nb::module_& m);
void bind_row_law_weighted(nb::module_& m);
void bind_row_law_whole(nb::module_& m);
void bind_row_law_hops(nb::module_& m);
void bind_entry_law(nb::module_& m);
void bind_column_law(nb::module_& m);
void bind_column_law_added(nb::module_& m);
void bind_column_law_merged(nb::module_& m);
void bind_column_law_shared(nb::module_& m);
void bind_compaction(nb::module_& m);
void bind_extraction(nb::module_& m);
void bind_extraction_unbiased(nb::module_& m);
void bind_values(nb::module_& m);
void bind_values_expansion(nb::module_& m);
void bind_values_sources(nb::module_& m);
void bind_values_unbiased(nb::module_& m);
void bind_stacking(nb::module_& m);
void bind_seeds(nb::module_& m);
void bind_ascending(nb::module_& m);
void bind_edge_order(nb::module_& m);
void bind_cooperative(nb::module_& m);
void bind_routing(nb::module_& m);
void bind_routing_gather(nb::module_& m);
void bind_spgemm(nb::module_& m);
void bind_spgemm_select_rows(nb::module_& m);
void bind_features(nb::module_& m);
void bind_features_cached(nb::module_& m);
void bind_features_kept(nb::module_& m);
void bind_feature_places(nb::module_& m);
void bind_disk_rows(nb::module_& m);
void bind_lookahead(nb::module_& m);
void bind_feature_column_sums(nb::module_& m);
void bind_feature_symmetric(nb::module_& m);
void bind_edge_partition(nb::module_& m);
void bind_edge_bucket(nb::module_& m);
void bind_edge_text(nb::module_& m);
void bind_content_sum(nb::module_& m);
void bind_parts_pagraph(nb::module_& m);
void bind_parts_ldg(nb::module_& m);
void bind_aggregate(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_dropout(nb::module_& m);
void bind_sparse_products(nb::module_& m);
void bind_keep_freed(nb::module_& m);

}  // namespace spsample
