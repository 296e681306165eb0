// compact: src vertices of k batches in their order, and drawn columns as indices into them (docs/law.md, section 4).
#include "compaction.h"

namespace spsample {
namespace {

template <class Index>
void require_entries(const In<int64_t>& batch_ptr, const In<int64_t>& entry_ptr, size_t num_entries) {
    require(entry_ptr.size() == batch_ptr.size(), "entry_ptr", "needs one element per batch and one more");
    require_pointers(entry_ptr, static_cast<int64_t>(num_entries), "entry_ptr");
}

// (src_ptr, src); `columns` become places in their batch's src. After an error they are neither.
template <class Index>
nb::tuple compact(
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& entry_ptr, const InOut<Index>& columns,
    bool include_targets) {
    const SelectorView<Index> Q = batches_view<Index>(batch_ptr, vertices);
    require_entries<Index>(batch_ptr, entry_ptr, columns.size());
    Sources<Index> sources;
    {
        nb::gil_scoped_release release;
        sources = number_columns<Index>(Q, entry_ptr.data(), columns.data(), include_targets);
    }
    return nb::make_tuple(to_numpy(std::move(sources.src_ptr)), to_numpy(std::move(sources.src)));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("compact", &compact<Index>, nb::arg("batch_ptr"), nb::arg("vertices"),
          nb::arg("entry_ptr"), nb::arg("columns").noconvert(), nb::arg("include_targets"),
          "(src_ptr, src) of the columns of k batches, which are written over by their places in src.");
}

}  // namespace

void bind_compaction(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
