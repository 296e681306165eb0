// The hops of the subgraph layout in one call, drawn uniformly: each vertex is drawn once, at the hop that found it (docs/law.md,
// sections 3 and 4). Every step is what `sample_rows_uniform`, `compact`, `appended`, `interleave` and `interleave_pointers` do; a small
// call spends more time between them than in them. The last hop, which has most entries, is drawn into its places in the result: what is
// not copied is not held twice, and a call asks for memory of few sizes.
#include <nanobind/stl/vector.h>

#include <vector>

#include "compaction.h"
#include "row_law_uniform.h"
#include "stacking_hops.h"

namespace spsample {
namespace {

// One CSR per batch over the rows of all hops, columns as places in `known`.
template <class Index>
struct UnitedHops {
    Buffer<int64_t> known_ptr;  // (hops + 1) (k + 1): of the vertices known before each hop, and after the last
    Buffer<int64_t> entry_ptr;  // hops (k + 1): of the entries of the first hops
    Buffer<Index> known;
    Buffer<int64_t> indptr;
    Buffer<Index> indices;
    Buffer<int64_t> positions;  // empty where not asked for
};

template <class Index>
class HopByHop {
public:
    HopByHop(const CsrView<Index>& A, const SelectorView<Index>& Q, int64_t num_hops, bool positions)
        : A_(A), fresh_(Q), known_(Q), num_hops_(num_hops), positions_(positions) {
        const int64_t size = Q.num_batches + 1;
        result_.known_ptr = Buffer<int64_t>(checked_product(num_hops + 1, size));
        result_.entry_ptr = Buffer<int64_t>(checked_product(num_hops, size));
        std::copy_n(Q.batch_ptr, size, result_.known_ptr.data());
    }

    // Draws from the vertices found last. O(rows size) expected time.
    void draw(const DrawArguments& how) {
        const int64_t hop = static_cast<int64_t>(rows_.size()), size = fresh_.num_batches + 1;
        const bool is_last = hop + 1 == num_hops_;
        const MakeRoom<Index> make_room = [&](RowsResult<Index>& rows) { is_last ? make_room_beside_others(rows) : make_stacked_room(rows); };
        RowsResult<Index> rows = sampled_rows<Index>({A_, fresh_, how}, positions_, make_room);
        const auto begin = [&](int64_t i) { return rows.begin(i); };
        Sources<Index> sources = number_columns_at(known_, rows.entry_ptr.data(), begin, rows.columns.data(), true);
        int64_t* const known_ptr = result_.known_ptr.data() + (hop + 1) * size;
        int64_t* const entry_ptr = result_.entry_ptr.data() + hop * size;
        std::copy_n(sources.src_ptr.data(), size, known_ptr);
        std::copy_n(rows.entry_ptr.data(), size, entry_ptr);
        for (int64_t i = 0; hop > 0 && i < size; ++i) entry_ptr[i] = checked_sum(entry_ptr[i], entry_ptr[i - size]);
        rows_.push_back(std::move(rows));
        row_ptr_.push_back(fresh_.batch_ptr);
        result_.known = std::move(sources.src);
        known_ = {known_ptr, result_.known.data(), fresh_.batch_ids, fresh_.num_batches, known_ptr[size - 1]};
        if (!is_last) go_on_with(appended_ids(known_ptr - size, known_ptr, known_.vertices, known_.num_batches));
    }

    UnitedHops<Index> united() {
        const Places of_rows(row_ptr_, known_.num_batches, 1);
        result_.positions = std::move(rows_.back().positions);
        result_.indices = std::move(rows_.back().columns);
        std::vector<const int64_t*> pointers;
        for (const RowsResult<Index>& hop : rows_) pointers.push_back(hop.indptr.data());
        result_.indptr = Buffer<int64_t>(of_rows.total());
        interleave_row_pointers(of_rows, pointers, result_.indptr.data());
        return std::move(result_);
    }

private:
    // The ids are let go of once they are drawn from; the pointers are needed until the end.
    void go_on_with(StackedIds<Index>&& found) {
        fresh_ids_ = std::move(found.ids);
        fresh_ptr_.push_back(std::move(found.ptr));
        const int64_t* const ptr = fresh_ptr_.back().data();
        fresh_ = {ptr, fresh_ids_.data(), fresh_.batch_ids, fresh_.num_batches, ptr[fresh_.num_batches]};
    }

    // The last hop's entries get the arrays of all hops, in which those of the others lie already. One kind of array after the other, the
    // longest first: beside these there is that of the other hops at most.
    void make_room_beside_others(RowsResult<Index>& last) {
        std::vector<const int64_t*> entries;
        for (const RowsResult<Index>& hop : rows_) entries.push_back(hop.entry_ptr.data());
        entries.push_back(last.entry_ptr.data());
        const Places places(std::move(entries), known_.num_batches, 0);
        if (positions_) last.positions = with_others(places, &RowsResult<Index>::positions);
        last.columns = with_others(places, &RowsResult<Index>::columns);
        last.batch_begin = Buffer<int64_t>(places.num_batches);
        for (int64_t i = 0; i < places.num_batches; ++i) last.batch_begin[i] = places.place(i, num_hops_ - 1);
    }

    // An array of all hops, in which the last one's parts are still to be written; the others let go of theirs.
    template <class T>
    Buffer<T> with_others(const Places& places, Buffer<T> RowsResult<Index>::*array) {
        Buffer<T> all(places.total());
        std::vector<const void*> parts;
        for (const RowsResult<Index>& hop : rows_) parts.push_back((hop.*array).data());
        parts.push_back(nullptr);
        interleave_parts(places, parts, sizeof(T), all.data());
        for (RowsResult<Index>& hop : rows_) hop.*array = Buffer<T>();
        return all;
    }

    const CsrView<Index>& A_;
    SelectorView<Index> fresh_, known_;  // found last; all that were found
    const int64_t num_hops_;
    const bool positions_;
    std::vector<RowsResult<Index>> rows_;
    std::vector<const int64_t*> row_ptr_;  // of the rows of each hop
    std::vector<Buffer<int64_t>> fresh_ptr_;
    Buffer<Index> fresh_ids_;
    UnitedHops<Index> result_;
};

// (known_ptr, entry_ptr, known, indptr, indices, positions or None); the vertices of Q and the columns of A are checked.
template <class Index>
nb::tuple sample_hops(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const std::vector<DrawIn>& draws, bool positions) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = unchecked_selector_view(selector.batch_ptr, selector.vertices, selector.batch_ids);
    require(!matrix.ids, "A", "must have a row for every vertex, in their order");
    require(!draws.empty(), "draws", "needs one for every hop, of which there is one at least");
    const int64_t hops = static_cast<int64_t>(draws.size()), size = Q.num_batches + 1;
    UnitedHops<Index> all;
    {
        nb::gil_scoped_release release;
        HopByHop<Index> by_hop(A, Q, hops, positions);
        for (const DrawIn& draw : draws) by_hop.draw(draw_arguments(draw));
        all = by_hop.united();
    }
    nb::object where = nb::none();
    if (positions) where = to_numpy(std::move(all.positions));
    return nb::make_tuple(
        to_numpy(std::move(all.known_ptr), {hops + 1, size}), to_numpy(std::move(all.entry_ptr), {hops, size}),
        to_numpy(std::move(all.known)), to_numpy(std::move(all.indptr)), to_numpy(std::move(all.indices)), where);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("sample_hops", &sample_hops<Index>, "(known_ptr, entry_ptr, known, indptr, indices, positions) of all hops.");
}

}  // namespace

void bind_row_law_hops(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
