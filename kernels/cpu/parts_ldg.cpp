// ldg_parts: linear deterministic greedy. Vertices come in the order of their ids; each goes to the part that holds most of its neighbours,
// weighed by the room that is left there.
//
// Source: Stanton and Kliot, "Streaming graph partitioning for large distributed graphs", KDD 2012, section 4.
#include <vector>

#include "bindings.h"

namespace spsample {
namespace {

__extension__ typedef unsigned __int128 uint128_t;

uint128_t score(int64_t neighbours, int64_t room) { return static_cast<uint128_t>(neighbours) * static_cast<uint64_t>(room); }

// indptr (n + 1), indices: the neighbours of each vertex, both directions of each edge. A part takes n / num_parts vertices, rounded up. The score
// of a part is its neighbours times the places left in it; of equal scores the part with the most places wins, then the first one. Gives the part
// of each vertex. One thread, O(entries + vertices * parts).
nb::object ldg_parts(const In<int64_t>& indptr, const In<int64_t>& indices, int64_t num_parts) {
    const CsrView<int64_t> A = csr_view(indptr, indices);
    require(num_parts >= 1 && num_parts <= std::numeric_limits<int32_t>::max(), "num_parts", "must be positive, and below 2^31");
    Buffer<int32_t> part_of(A.num_rows);
    {
        nb::gil_scoped_release release;
        std::fill_n(part_of.data(), A.num_rows, -1);
        std::vector<int64_t> room(static_cast<size_t>(num_parts), (A.num_rows + num_parts - 1) / num_parts), neighbours(room.size(), 0);
        for (int64_t v = 0; v < A.num_rows; ++v) {
            std::fill(neighbours.begin(), neighbours.end(), 0);
            for (int64_t i = A.indptr[v]; i < A.indptr[v + 1]; ++i) {
                const int32_t part = part_of[A.indices[i]];
                if (part >= 0) ++neighbours[static_cast<size_t>(part)];
            }
            size_t best = 0;
            for (size_t part = 1; part < room.size(); ++part) {
                const uint128_t here = score(neighbours[part], room[part]), there = score(neighbours[best], room[best]);
                if (here > there || (here == there && room[part] > room[best])) best = part;
            }
            part_of[v] = static_cast<int32_t>(best);
            --room[best];
        }
    }
    return to_numpy(std::move(part_of));
}

}  // namespace

void bind_parts_ldg(nb::module_& m) {
    m.def("ldg_parts", &ldg_parts, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("num_parts"),
          "The part of each vertex (int32), by linear deterministic greedy.");
}

}  // namespace spsample
