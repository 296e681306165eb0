// cut_layer, entries_of_rows: one layer of a minibatch, cut into the rows of the ranks that own its targets.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "scratch.h"

namespace spsample {
namespace {

constexpr int64_t kEntryWork = 4;  // nanoseconds, about

using Rank = uint16_t;
constexpr int64_t kMostRanks = int64_t(1) << 16;

template <class Index>
struct LayerView {
    const int64_t* indptr;
    const Index* indices;
    const Rank* owner;     // of each source, the targets first
    const int32_t* place;  // of each source among those of its owner
    int64_t num_dst, num_src, num_ranks;
};

// The rows of each rank, in their order: rows[ptr[r]] up to rows[ptr[r + 1] - 1].
struct OwnedRows {
    Buffer<int32_t> rows;
    std::vector<int64_t> ptr, entry_ptr;
};

template <class Index>
OwnedRows owned_rows(const LayerView<Index>& A) {
    const size_t ranks = static_cast<size_t>(A.num_ranks);
    OwnedRows owned{Buffer<int32_t>(A.num_dst), std::vector<int64_t>(ranks + 1, 0), std::vector<int64_t>(ranks + 1, 0)};
    for (int64_t row = 0; row < A.num_dst; ++row) {
        ++owned.ptr[A.owner[row] + size_t(1)];
        owned.entry_ptr[A.owner[row] + size_t(1)] += A.indptr[row + 1] - A.indptr[row];
    }
    for (size_t r = 0; r < ranks; ++r) {
        owned.ptr[r + 1] += owned.ptr[r];
        owned.entry_ptr[r + 1] += owned.entry_ptr[r];
    }
    std::vector<int64_t> next(owned.ptr.begin(), owned.ptr.end() - 1);
    for (int64_t row = 0; row < A.num_dst; ++row) owned.rows[next[A.owner[row]]++] = static_cast<int32_t>(row);
    return owned;
}

// What a rank needs of the sources.
struct Columns {
    std::vector<int32_t> own;            // places of those it owns
    std::vector<int32_t> others;         // sources that others own, rank by rank
    std::vector<int64_t> others_counts;  // of each rank
};

struct Scratch {
    std::vector<int32_t> number;
    std::vector<std::vector<int32_t>> others;
};

// The columns of rank r's rows, numbered: those it owns first, in their order, then those of the other ranks in turn. Writes the entries'
// numbers. O(sources + entries of the rows).
template <class Index>
Columns cut_rank(const LayerView<Index>& A, const OwnedRows& owned, int64_t r, Scratch& scratch, int32_t* numbers) {
    constexpr int32_t kUnused = -1, kNeeded = 0;
    int32_t* const number = grown(scratch.number, A.num_src);
    std::fill_n(number, A.num_src, kUnused);
    const int32_t* const begin = owned.rows.data() + owned.ptr[static_cast<size_t>(r)];
    const int32_t* const end = owned.rows.data() + owned.ptr[static_cast<size_t>(r) + 1];
    for (const int32_t* row = begin; row < end; ++row) {
        number[*row] = kNeeded;
        for (int64_t e = A.indptr[*row]; e < A.indptr[*row + 1]; ++e) number[A.indices[e]] = kNeeded;
    }
    Columns columns;
    scratch.others.resize(static_cast<size_t>(A.num_ranks));
    for (auto& some : scratch.others) some.clear();
    for (int64_t v = 0; v < A.num_src; ++v) {
        if (number[v] == kUnused) continue;
        if (A.owner[v] != r) {
            scratch.others[A.owner[v]].push_back(static_cast<int32_t>(v));
            continue;
        }
        number[v] = static_cast<int32_t>(columns.own.size());
        columns.own.push_back(A.place[v]);
    }
    int32_t next = static_cast<int32_t>(columns.own.size());
    for (const auto& some : scratch.others) {
        for (const int32_t v : some) number[v] = next++;
        columns.others.insert(columns.others.end(), some.begin(), some.end());
        columns.others_counts.push_back(static_cast<int64_t>(some.size()));
    }
    for (const int32_t* row = begin; row < end; ++row) {
        for (int64_t e = A.indptr[*row]; e < A.indptr[*row + 1]; ++e) *numbers++ = number[A.indices[e]];
    }
    return columns;
}

Buffer<int64_t> as_buffer(const std::vector<int64_t>& values) {
    Buffer<int64_t> buffer(static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), buffer.data());
    return buffer;
}

// One after the other, with where each begins.
nb::tuple joined(const std::vector<Columns>& columns, std::vector<int32_t> Columns::*part) {
    std::vector<int64_t> ptr(1, 0);
    for (const Columns& one : columns) ptr.push_back(ptr.back() + static_cast<int64_t>((one.*part).size()));
    Buffer<int32_t> all(ptr.back());
    for (size_t r = 0; r < columns.size(); ++r) std::copy((columns[r].*part).begin(), (columns[r].*part).end(), all.data() + ptr[r]);
    return nb::make_tuple(to_numpy(std::move(all)), to_numpy(as_buffer(ptr)));
}

template <class Index>
LayerView<Index> checked(const In<int64_t>& indptr, const In<Index>& indices, const In<Rank>& owner, const In<int32_t>& place, int64_t ranks) {
    const int64_t entries = static_cast<int64_t>(indices.size()), num_src = static_cast<int64_t>(owner.size());
    require(ranks >= 1 && ranks <= kMostRanks, "ranks", "needs 1 to 65536 ranks");
    require_pointers(indptr, entries, "indptr");
    const int64_t num_dst = static_cast<int64_t>(indptr.size()) - 1;
    require(num_src <= std::numeric_limits<int32_t>::max(), "owner", "has more sources than 32 bits can number");
    require(num_dst <= num_src, "owner", "needs one element per source, the targets first");
    require(place.size() == owner.size(), "place", "needs one element per source");
    require(in_range(indices.data(), entries, num_src), "indices", "an entry is not one of the sources");
    const bool are_ranks = std::all_of(owner.data(), owner.data() + num_src, [&](Rank one) { return one < ranks; });
    require(are_ranks, "owner", "an owner is not one of the ranks");
    return {indptr.data(), indices.data(), owner.data(), place.data(), num_dst, num_src, ranks};
}

// (rows, row_ptr, entry_ptr, numbers, (own, own_ptr), (others, others_ptr), others_counts). O(ranks x sources + entries), in parallel over
// the ranks. Memory beside the result: 4 bytes for each source and thread.
template <class Index>
nb::tuple cut_layer(const In<int64_t>& indptr, const In<Index>& indices, const In<Rank>& owner, const In<int32_t>& place, int64_t ranks) {
    OwnedRows owned;
    Buffer<int32_t> numbers;
    std::vector<Columns> columns;
    {
        nb::gil_scoped_release release;
        const LayerView<Index> A = checked(indptr, indices, owner, place, ranks);
        owned = owned_rows(A);
        numbers = Buffer<int32_t>(static_cast<int64_t>(indices.size()));
        columns.resize(static_cast<size_t>(ranks));
        const ThreadsFor threads(checked_product(kEntryWork, static_cast<int64_t>(indices.size())));
        parallel_chunks(ranks, 1, [] { return Scratch(); }, [&](Scratch& scratch, int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                columns[static_cast<size_t>(r)] = cut_rank(A, owned, r, scratch, numbers.data() + owned.entry_ptr[static_cast<size_t>(r)]);
            }
        });
    }
    Buffer<int64_t> counts(checked_product(ranks, ranks));
    for (int64_t r = 0; r < ranks; ++r) {
        const auto& of_rank = columns[static_cast<size_t>(r)].others_counts;
        std::copy(of_rank.begin(), of_rank.end(), counts.data() + r * ranks);
    }
    return nb::make_tuple(
        to_numpy(std::move(owned.rows)), to_numpy(as_buffer(owned.ptr)), to_numpy(as_buffer(owned.entry_ptr)), to_numpy(std::move(numbers)),
        joined(columns, &Columns::own), joined(columns, &Columns::others), to_numpy(std::move(counts), {ranks, ranks}));
}

template <class T>
nb::object moved_entries(const int64_t* indptr, const In<int32_t>& rows, const void* array, int64_t entries) {
    Buffer<T> moved(entries);
    {
        nb::gil_scoped_release release;
        T* to = moved.data();
        for (size_t i = 0; i < rows.size(); ++i) {
            const int64_t row = rows.data()[i];
            to = std::copy(static_cast<const T*>(array) + indptr[row], static_cast<const T*>(array) + indptr[row + 1], to);
        }
    }
    return to_numpy(std::move(moved));
}

// The entries of an array over the rows' entries, in the order of these rows, each row once.
template <class T>
nb::object entries_of_rows(const In<int64_t>& indptr, const In<int32_t>& rows, const In<T>& array) {
    const int64_t num_rows = static_cast<int64_t>(indptr.size()) - 1, entries = static_cast<int64_t>(array.size());
    require_pointers(indptr, entries, "indptr");
    require(in_range(rows.data(), static_cast<int64_t>(rows.size()), num_rows), "rows", "a row is not one of the matrix");
    int64_t total = 0;
    for (size_t i = 0; i < rows.size(); ++i) total += indptr.data()[rows.data()[i] + 1] - indptr.data()[rows.data()[i]];
    return moved_entries<T>(indptr.data(), rows, array.data(), total);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("cut_layer", &cut_layer<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("owner"), nb::arg("place"),
          nb::arg("ranks"), "(rows, row_ptr, entry_ptr, numbers, (own, own_ptr), (others, others_ptr), others_counts), rank by rank.");
}

template <class T>
void bind_entries(nb::module_& m) {
    m.def("entries_of_rows", &entries_of_rows<T>, nb::arg("indptr"), nb::arg("rows"), nb::arg("array").noconvert(),
          "The entries of some rows, in the order of these.");
}

}  // namespace

void bind_cooperative(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    bind_entries<float>(m);
    bind_entries<double>(m);
    bind_entries<int64_t>(m);
}

}  // namespace spsample
