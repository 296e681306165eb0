// gather_cached_features: rows of vertices, of some from those kept near and of the others from where all of them lie, in one pass.
#include "cached_rows.h"
#include "features_moving.h"

#include <atomic>

namespace spsample {
namespace {

// Rows of one type by their addresses.
struct RowsAt {
    const DenseRows& like;
    int64_t num_rows, dim;

    int64_t ahead() const { return like.ahead(); }
    void fetch(intptr_t row) const { prefetch_bytes(reinterpret_cast<const char*>(row), std::min(like.row_bytes, DenseRows::kBytesAhead)); }
    void read(intptr_t row, char* out) const { like.decode(reinterpret_cast<const char*>(row), like.dim, like.scale, out); }
    const char* as_written(intptr_t row) const { return like.is_copied ? reinterpret_cast<const char*>(row) : nullptr; }
};

struct CachedScratch {
    Buffer<char> piece;
    Buffer<intptr_t> addresses;
};

// Finds of each id where its row lies, a chunk at a time, and moves the rows of the chunk in the order of the ids.
template <class Index>
class CachedGather {
public:
    CachedGather(const DenseRows& kept, const char* all, int64_t bytes, const uint64_t* words, const In<Index>& ids)
        : where_{words, reinterpret_cast<intptr_t>(kept.x), reinterpret_cast<intptr_t>(all), kept.row_bytes},
          rows_{kept, kept.num_rows, kept.dim}, mover_(rows_, bytes, static_cast<int64_t>(ids.size())), bytes_(bytes), ids_(ids.data()),
          count_(static_cast<int64_t>(ids.size())), chunk_(std::clamp<int64_t>(std::min(kMovedChunks * mover_.chunk(), count_ / kChunks), kFewest, kMost)) {}

    // Row of ids[i] to row i of `out`, or to row at[i]; gives how many of them are kept.
    int64_t to(char* out, const int64_t* at) const {
        const auto find = cached_row_finder<Index>();
        std::atomic<int64_t> hits{0};
        parallel_chunks(
            count_, chunk_, [&] { return CachedScratch{mover_.piece(), Buffer<intptr_t>(chunk_)}; },
            [&](CachedScratch& scratch, int64_t begin, int64_t end) {
                intptr_t* const addresses = scratch.addresses.data();
                hits.fetch_add(find(where_, ids_ + begin, end - begin, addresses), std::memory_order_relaxed);
                if (at) return mover_.at(addresses, at + begin, end - begin, out, scratch.piece);
                mover_.in_order(addresses, end - begin, out + begin * bytes_, scratch.piece);
            });
        return hits;
    }

private:
    // The map is looked up in all places of a chunk before other memory is read: the more of them, the more find its pages near.
    static constexpr int64_t kFewest = 1 << 6, kMost = 1 << 14, kMovedChunks = 8;
    static constexpr int64_t kChunks = 1 << 4;  // at least, for the threads to share

    const CachedRows where_;
    const RowsAt rows_;
    const RowMover<RowsAt> mover_;
    const int64_t bytes_;
    const Index* const ids_;
    const int64_t count_, chunk_;
};

// kept (flat, of `shape`): the rows of the vertices that have a bit in `words`, ascending; all (flat): those of all vertices, of that type. ids: in
// [0, num_vertices), in any order, repeats allowed. Writes row of ids[i] to row i or at[i] of `out` (flat), and gives how many are kept. O(ids + bytes of
// the rows), in parallel; `form` and `scale` as of gather_features.
template <class Index>
int64_t gather_cached_features(
    const AnyIn& kept, std::pair<int64_t, int64_t> shape, const AnyIn& all, const In<uint64_t>& words, int64_t num_vertices, const In<Index>& ids,
    const char* form, const std::optional<In<float>>& scale, const AnyInOut& out, const std::optional<In<int64_t>>& at) {
    const auto [rows, type] = dense_rows(kept, shape, form, scale);
    require_destination(type, rows.dim, static_cast<int64_t>(ids.size()), out, at);
    nb::gil_scoped_release release;
    require_kept_ids(words, num_vertices, ids);
    require_kept_rows(words, rows.num_rows);
    require(all.type() == kept.type() && static_cast<int64_t>(all.size()) == checked_product(num_vertices, rows.dim), "all",
            "must be of the type of `kept`, a row for each vertex");
    const int64_t bytes = checked_product(rows.dim, static_cast<int64_t>(type.bytes));
    return CachedGather<Index>(rows, static_cast<const char*>(all.data()), bytes, words.data(), ids)
        .to(static_cast<char*>(out.data()), at ? at->data() : nullptr);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("gather_cached_features", &gather_cached_features<Index>, nb::arg("kept"), nb::arg("shape"), nb::arg("all"), nb::arg("words"),
          nb::arg("num_vertices"), nb::arg("ids").noconvert(), nb::arg("form"), nb::arg("scale").none(), nb::arg("out"), nb::arg("at").none(),
          "Rows `ids`, of the vertices that have one in `kept` from there, of others from `all`, into `out`, at its rows `at`; gives how many are kept.");
}

}  // namespace

void bind_features_cached(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
