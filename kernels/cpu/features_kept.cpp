// gather_kept_features: rows of the vertices that have one among those kept near, and which vertices have none, in one pass over the ids.
#include "feature_places.h"
#include "features_moving.h"

namespace spsample {
namespace {

// What a thread needs: for the hits of a chunk their rows in x and in the result.
struct KeptScratch {
    Buffer<char> piece;
    Buffer<int64_t> places, positions;
};

// Moves the rows that are kept, and leaves the positions of the other ids.
template <class Index>
class KeptGather {
public:
    KeptGather(const DenseRows& rows, int64_t bytes, const uint64_t* words, const In<Index>& ids)
        : mover_(rows, bytes, static_cast<int64_t>(ids.size())), bytes_(bytes), words_(words), ids_(ids.data()),
          count_(static_cast<int64_t>(ids.size())), chunk_(std::clamp<int64_t>(mover_.chunk(), kFewest, kMost)) {}

    // Row of ids[i] to row i of `out`, or to row at[i]; gives the positions of ids that have none, ascending.
    Buffer<int64_t> to(char* out, const int64_t* at) const {
        Buffer<int64_t> missed(count_);  // of each chunk, where the chunk begins, the last one first
        JoinedParts parts(count_, chunk_);
        parallel_chunks(
            count_, chunk_, [&] { return KeptScratch{mover_.piece(), Buffer<int64_t>(chunk_), Buffer<int64_t>(chunk_)}; },
            [&](KeptScratch& scratch, int64_t begin, int64_t end) {
                const int64_t size = end - begin;
                const int64_t hits = SplitChunk{scratch.positions.data(), scratch.places.data(), size}.split(words_, ids_ + begin, begin);
                parts.set(begin, size - hits);
                std::copy_n(scratch.positions.data() + hits, size - hits, missed.data() + begin);
                move(scratch, begin, size, hits, out, at);
            });
        parts.join();
        Buffer<int64_t> misses(parts.total());
        parallel_chunks(parts.total() ? count_ : 0, chunk_, [&](int64_t begin, int64_t) {
            std::reverse_copy(missed.data() + begin, missed.data() + begin + parts.size(begin), misses.data() + parts.first(begin));
        });
        return misses;
    }

private:
    static constexpr int64_t kFewest = 1 << 6, kMost = 1 << 12;

    void move(KeptScratch& scratch, int64_t begin, int64_t size, int64_t hits, char* out, const int64_t* at) const {
        int64_t* const targets = scratch.positions.data();
        if (hits == size && !at) return mover_.in_order(scratch.places.data(), hits, out + begin * bytes_, scratch.piece);
        if (at) std::transform(targets, targets + hits, targets, [&](int64_t position) { return at[position]; });
        mover_.at(scratch.places.data(), targets, hits, out, scratch.piece);
    }

    const RowMover<DenseRows> mover_;
    const int64_t bytes_;
    const uint64_t* const words_;
    const Index* const ids_;
    const int64_t count_, chunk_;
};

// x (flat, of `shape`): the rows of the vertices that have a bit in `words`, ascending. ids: in [0, num_vertices), in any order, repeats allowed.
// Writes their rows to `out` (flat), to row i or at[i] for the id at i; the rows of other ids are left as they are. Gives their positions. O(ids +
// bytes of the rows), in parallel; `form` and `scale` as of gather_features.
template <class Index>
nb::object gather_kept_features(
    const AnyIn& x, std::pair<int64_t, int64_t> shape, const In<uint64_t>& words, int64_t num_vertices, const In<Index>& ids, const char* form,
    const std::optional<In<float>>& scale, const AnyInOut& out, const std::optional<In<int64_t>>& at) {
    const auto [rows, type] = dense_rows(x, shape, form, scale);
    require_destination(type, rows.dim, static_cast<int64_t>(ids.size()), out, at);
    Buffer<int64_t> misses;
    {
        nb::gil_scoped_release release;
        require_kept_ids(words, num_vertices, ids);
        require_kept_rows(words, rows.num_rows);
        const int64_t bytes = checked_product(rows.dim, static_cast<int64_t>(type.bytes));
        misses = KeptGather<Index>(rows, bytes, words.data(), ids).to(static_cast<char*>(out.data()), at ? at->data() : nullptr);
    }
    return to_numpy(std::move(misses));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("gather_kept_features", &gather_kept_features<Index>, nb::arg("x"), nb::arg("shape"), nb::arg("words"), nb::arg("num_vertices"),
          nb::arg("ids").noconvert(), nb::arg("form"), nb::arg("scale").none(), nb::arg("out"), nb::arg("at").none(),
          "Rows of the ids that have one in x, into `out`, at its rows `at`; gives the positions of the other ids.");
}

}  // namespace

void bind_features_kept(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
