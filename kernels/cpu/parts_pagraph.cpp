// pagraph_parts: train vertices to the parts whose in-neighbourhoods hold most of theirs already, and every other vertex to a part that needs it.
//
// Source: Lin et al., "PaGraph: Scaling GNN Training on Large Graphs via Computation-aware Caching", SoCC 2020, section 3.3, with its score made
// right where a part is empty: (train vertices found + 1) * (mean - train vertices) / (vertices + 1). Scores are compared as fractions of whole
// numbers, without rounding.
#include <vector>

#include "bindings.h"

namespace spsample {
namespace {

__extension__ typedef unsigned __int128 uint128_t;

constexpr int64_t kMostVertices = int64_t{1} << 42;  // products of three numbers of vertices stay below 2^127

// A set of vertices, a bit each.
class VertexSet {
public:
    explicit VertexSet(int64_t num_vertices) : num_vertices_(num_vertices), words_(static_cast<size_t>((num_vertices + 63) / 64), 0) {}

    // Whether it was new.
    bool add(uint64_t vertex) {
        uint64_t& word = words_[vertex / 64];
        const uint64_t bit = uint64_t{1} << (vertex % 64);
        const bool is_new = !(word & bit);
        word |= bit;
        return is_new;
    }
    bool has(uint64_t vertex) const { return (words_[vertex / 64] >> (vertex % 64)) & 1; }
    // Takes the vertex out, and those that share its word: for a set that is emptied vertex by vertex.
    void clear_word_of(uint64_t vertex) { words_[vertex / 64] = 0; }

    // body(vertex) of every vertex that is not in the set, ascending.
    template <class Body>
    void for_each_outside(Body&& body) const {
        for (size_t w = 0; w < words_.size(); ++w)
            for (uint64_t outside = ~words_[w]; outside; outside &= outside - 1) {
                const int64_t vertex = static_cast<int64_t>(w) * 64 + __builtin_ctzll(outside);
                if (vertex < num_vertices_) body(vertex);
            }
    }

private:
    int64_t num_vertices_;
    std::vector<uint64_t> words_;
};

// The rows of A turned round: for each vertex the rows that have it as a column.
template <class Index>
class Targets {
public:
    explicit Targets(const CsrView<Index>& A) : begins_(static_cast<size_t>(A.num_rows) + 1, 0), rows_(static_cast<size_t>(A.num_entries)) {
        for (int64_t i = 0; i < A.num_entries; ++i) ++begins_[static_cast<size_t>(A.indices[i]) + 1];
        for (size_t v = 1; v < begins_.size(); ++v) begins_[v] += begins_[v - 1];
        std::vector<int64_t> next(begins_.begin(), begins_.end() - 1);
        for (int64_t row = 0; row < A.num_rows; ++row)
            for (int64_t i = A.indptr[row]; i < A.indptr[row + 1]; ++i) rows_[static_cast<size_t>(next[static_cast<size_t>(A.indices[i])]++)] = static_cast<Index>(row);
    }
    const Index* begin(int64_t vertex) const { return rows_.data() + begins_[static_cast<size_t>(vertex)]; }
    const Index* end(int64_t vertex) const { return rows_.data() + begins_[static_cast<size_t>(vertex) + 1]; }
    int64_t count(int64_t vertex) const { return end(vertex) - begin(vertex); }

private:
    std::vector<int64_t> begins_;
    std::vector<Index> rows_;
};

// Finds the vertices that lead to a vertex by at most `hops` edges, itself among them. A hop is taken forwards or backwards, whichever looks at
// fewer entries at most (Beamer, Asanovic and Patterson, "Direction-optimizing breadth-first search", SC 2012).
template <class Index>
class InNeighbourhood {
public:
    InNeighbourhood(const CsrView<Index>& A, int64_t hops) : A_(A), hops_(hops), targets_(A), seen_(A.num_rows) {}

    // The set is the next call's to overwrite.
    const std::vector<Index>& of(Index vertex) {
        found_.clear();
        row_entries_ = 0;
        outside_entries_ = A_.num_entries;
        add(vertex);
        size_t next = 0;
        for (int64_t hop = 0; hop < hops_ && next < found_.size() && outside_entries_ > 0; ++hop) {
            const size_t end = found_.size();
            const bool is_cheaper_backwards = outside_entries_ < row_entries_;
            row_entries_ = 0;
            if (is_cheaper_backwards) add_those_that_lead_in();
            else for (size_t i = next; i < end; ++i) add_row(found_[i]);
            next = end;
        }
        for (const Index one : found_) seen_.clear_word_of(static_cast<uint64_t>(one));
        return found_;
    }

private:
    void add(Index vertex) {
        if (!seen_.add(static_cast<uint64_t>(vertex))) return;
        found_.push_back(vertex);
        row_entries_ += A_.indptr[vertex + 1] - A_.indptr[vertex];
        outside_entries_ -= targets_.count(vertex);
    }
    void add_row(int64_t row) {
        for (int64_t i = A_.indptr[row]; i < A_.indptr[row + 1]; ++i) add(A_.indices[i]);
    }
    // Every vertex outside that is in a row of one within.
    void add_those_that_lead_in() {
        leading_in_.clear();
        seen_.for_each_outside([&](int64_t vertex) {
            const auto is_seen = [&](Index row) { return seen_.has(static_cast<uint64_t>(row)); };
            if (std::any_of(targets_.begin(vertex), targets_.end(vertex), is_seen)) leading_in_.push_back(static_cast<Index>(vertex));
        });
        for (const Index vertex : leading_in_) add(vertex);
    }

    CsrView<Index> A_;
    int64_t hops_;
    Targets<Index> targets_;
    VertexSet seen_;
    int64_t row_entries_ = 0, outside_entries_ = 0;  // of the rows of the last hop; of vertices that are not found
    std::vector<Index> found_, leading_in_;
};

struct Part {
    explicit Part(int64_t num_vertices) : needed(num_vertices) {}
    VertexSet needed;          // its train vertices and their in-neighbourhoods
    int64_t num_needed = 0, num_train = 0;
    int64_t found = 0;         // of its train vertices in the in-neighbourhood of the vertex looked at
    int64_t load = 0;          // rows and entries of its own vertices
};

// Puts vertices to parts, one after the other.
template <class Index>
class Assignment {
public:
    Assignment(const CsrView<Index>& A, int64_t num_train, int64_t num_parts, int32_t* part_of)
        : A_(A), num_train_(num_train), least_(num_train / num_parts), larger_(num_train % num_parts), part_of_(part_of) {
        std::fill_n(part_of, A.num_rows, -1);
        for (int64_t i = 0; i < num_parts; ++i) parts_.emplace_back(A.num_rows);
    }

    // O(in-neighbourhood + parts).
    void put_train(Index vertex, const std::vector<Index>& in_neighbourhood) {
        for (Part& part : parts_) part.found = 0;
        for (const Index one : in_neighbourhood)
            if (part_of_[one] >= 0) ++parts_[static_cast<size_t>(part_of_[one])].found;
        Part* best = nullptr;
        for (Part& part : parts_)
            if (has_room(part) && (!best || is_better(part, *best))) best = &part;
        put(vertex, *best);
        larger_ -= ++best->num_train > least_;
        for (const Index one : in_neighbourhood) best->num_needed += best->needed.add(static_cast<uint64_t>(one));
    }

    // To the part with the fewest rows and entries of those that need it, or of all where none does. O(parts).
    void put_other(Index vertex) {
        Part* best = nullptr;
        bool best_needs = false;
        for (Part& part : parts_) {
            const bool needs = part.needed.has(static_cast<uint64_t>(vertex));
            if (!best || needs > best_needs || (needs == best_needs && part.load < best->load)) best = &part, best_needs = needs;
        }
        put(vertex, *best);
    }

private:
    // The cap: all parts get num_train / num_parts train vertices, rounded down, and as many as the remainder says one more.
    bool has_room(const Part& part) const { return part.num_train < least_ || (part.num_train == least_ && larger_ > 0); }

    // found + 1 times what the part lacks to the mean, times the number of parts; positive where there is room.
    uint128_t gain(const Part& part) const {
        const int64_t lacks = num_train_ - static_cast<int64_t>(parts_.size()) * part.num_train;
        return static_cast<uint128_t>(part.found + 1) * static_cast<uint64_t>(lacks);
    }

    bool is_better(const Part& a, const Part& b) const {
        const uint128_t left = gain(a) * static_cast<uint64_t>(b.num_needed + 1), right = gain(b) * static_cast<uint64_t>(a.num_needed + 1);
        return left != right ? left > right : a.num_train < b.num_train;
    }

    void put(Index vertex, Part& part) {
        part_of_[vertex] = static_cast<int32_t>(&part - parts_.data());
        part.load += 1 + A_.indptr[vertex + 1] - A_.indptr[vertex];
    }

    CsrView<Index> A_;
    int64_t num_train_, least_, larger_;  // larger: parts that may still get one more than least
    std::vector<Part> parts_;
    int32_t* part_of_;
};

// train: distinct rows of A, in the order in which they are put; at least as many as parts. Gives the part of each vertex. One thread.
// O(sum of the entries that in-neighbourhoods take, + vertices * parts). Memory: A's rows once more, and a bit for each vertex and part.
template <class Index>
nb::object pagraph_parts(const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& train, int64_t num_parts, int64_t hops) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const int64_t num_train = static_cast<int64_t>(train.size());
    require(A.num_rows <= kMostVertices, "indptr", "has more than 2^42 rows");
    require(num_parts >= 1 && num_parts <= num_train && num_parts <= std::numeric_limits<int32_t>::max(), "num_parts", "must be from 1 to the number of train vertices");
    require(hops >= 1, "hops", "must be at least 1");
    Buffer<int32_t> part_of(A.num_rows);
    {
        nb::gil_scoped_release release;
        if (!all_below(train.data(), num_train, A.num_rows)) throw std::out_of_range("train: outside the vertices");
        InNeighbourhood<Index> in_neighbourhood(A, hops);
        Assignment<Index> assignment(A, num_train, num_parts, part_of.data());
        for (int64_t i = 0; i < num_train; ++i) {
            const Index vertex = static_cast<Index>(train.data()[i]);
            require(part_of[vertex] < 0, "train", "must be distinct");
            assignment.put_train(vertex, in_neighbourhood.of(vertex));
        }
        for (int64_t v = 0; v < A.num_rows; ++v)
            if (part_of[v] < 0) assignment.put_other(static_cast<Index>(v));
    }
    return to_numpy(std::move(part_of));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("pagraph_parts", &pagraph_parts<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("train").noconvert(),
          nb::arg("num_parts"), nb::arg("hops"), "The part of each vertex (int32), by PaGraph's score.");
}

}  // namespace

void bind_parts_pagraph(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
