// route_rows: the stacked rows of k batches, sorted by the part of a partitioned A that owns them.
//
// A stable counting sort by part. Two passes over the rows, in parallel over spans of them: find each row's part and count the parts
// of each span; place the rows. Rows mostly come in runs of one part, which are found and placed 16 at a time.
#include <algorithm>
#include <vector>

#include "bindings.h"
#include "routing_spans.h"

namespace spsample {
namespace {

constexpr int64_t kTogether = 16;     // rows that are looked at as a run of one part
constexpr int64_t kLookedUp = 256;    // rows whose positions are looked up before their parts are
constexpr int64_t kCountersRows = 4;  // rows of a span for each of its counters, at least
constexpr int64_t kSpansAtOnce = 16;  // whose counters are turned at once: those of a span lie side by side, the counts of a part do
constexpr int64_t kRowWork = 4;       // nanoseconds, about

using Part = uint16_t;
constexpr int64_t kMostParts = int64_t(1) << 16;

// --- parts ------------------------------------------------------------------------------------------------------------------

// Which part owns a position: part p those from bounds[p] up to bounds[p + 1]. A guide leads from slices of positions to parts.
class Owners {
public:
    // bounds: checked by require_bounds. O(parts + slices).
    explicit Owners(const In<int64_t>& bounds) : bounds_(bounds.data()), num_parts_(static_cast<int64_t>(bounds.size()) - 1) {
        const int64_t slices = std::max<int64_t>(kSlices, 8 * num_parts_);
        while (count() >> shift_ >= slices) ++shift_;
        guide_.resize(static_cast<size_t>((count() >> shift_) + 2));
        int64_t part = 0;
        for (size_t slice = 0; slice < guide_.size(); ++slice) {
            while (part < num_parts_ - 1 && bounds_[part + 1] <= static_cast<int64_t>(slice) << shift_) ++part;
            guide_[slice] = static_cast<Part>(part);
        }
    }

    int64_t num_parts() const { return num_parts_; }
    int64_t count() const { return bounds_[num_parts_]; }
    int64_t begin(int64_t part) const { return bounds_[part]; }
    int64_t size(int64_t part) const { return bounds_[part + 1] - bounds_[part]; }

    // The owner of a position in [0, count()).
    int64_t of(int64_t position) const {
        const size_t slice = static_cast<size_t>(position >> shift_);
        const int64_t first = guide_[slice], last = guide_[slice + 1];
        if (first == last) return first;
        return std::upper_bound(bounds_ + first + 1, bounds_ + last + 1, position) - bounds_ - 1;
    }

private:
    static constexpr int64_t kSlices = 4096;

    const int64_t* bounds_;
    int64_t num_parts_;
    int shift_ = 0;
    std::vector<Part> guide_;  // of each slice the part that owns its first position; and one more
};

void require_bounds(const In<int64_t>& bounds) {
    const int64_t size = static_cast<int64_t>(bounds.size());
    require(size >= 2 && size - 1 <= kMostParts, "bounds", "needs one element per part, of 1 to 65536, and one more");
    require_pointers(bounds, bounds.data()[size - 1], "bounds");
}

// --- the sort ---------------------------------------------------------------------------------------------------------------

template <class Index>
struct Routed {
    Buffer<int64_t> counts;  // parts x k
    Buffer<Index> vertices, places;
};

// A sort in progress.
template <class Index>
class Router {
public:
    // position: of each of the owners' count() vertices, or null for the vertex itself.
    Router(const SelectorView<Index>& Q, const Owners& owners, const Index* position)
        : Q_(Q), owners_(owners), position_(position),
          spans_(row_spans(Q.batch_ptr, Q.num_batches, std::max(kSpanRows, kCountersRows * owners.num_parts()))), parts_(Q.num_rows),
          next_(checked_product(static_cast<int64_t>(spans_.size()), owners.num_parts())) {}

    Routed<Index> route() {
        parallel_spans(spans_, [&](int64_t number) { count_span(number); });
        Routed<Index> routed{placed_counters(), Buffer<Index>(Q_.num_rows), Buffer<Index>(Q_.num_rows)};
        parallel_spans(spans_, [&](int64_t number) { place_span(number, routed); });
        return routed;
    }

private:
    const RowSpan& span(int64_t number) const { return spans_[static_cast<size_t>(number)]; }
    int64_t* counters(int64_t number) { return next_.data() + number * owners_.num_parts(); }

    // Finds the parts of a span's rows and how many each part has.
    void count_span(int64_t number) {
        int64_t* const counts = counters(number);
        std::fill_n(counts, owners_.num_parts(), int64_t(0));
        int64_t part = 0;
        Index looked_up[kLookedUp];
        for (int64_t r = span(number).begin; r < span(number).end; r += kLookedUp) {
            const int64_t count = std::min(kLookedUp, span(number).end - r);
            part = find_parts(positions_of(Q_.vertices + r, count, looked_up), count, part, parts_.data() + r, counts);
        }
    }

    // The positions of checked vertices, which may be looked up.
    const Index* positions_of(const Index* vertices, int64_t count, Index* looked_up) const {
        require(in_range(vertices, count, owners_.count()), "vertices", "a vertex is not below the last of the bounds");
        if (!position_) return vertices;
        for (int64_t j = 0; j < count; ++j) looked_up[j] = position_[vertices[j]];
        require(in_range(looked_up, count, owners_.count()), "position", "a position is not below the last of the bounds");
        return looked_up;
    }

    // The parts of rows at the given positions; `part` is tried first. Returns the last row's.
    int64_t find_parts(const Index* positions, int64_t count, int64_t part, Part* parts, int64_t* counts) const {
        for (int64_t j = 0; j < count; j += kTogether) {
            const int64_t rows = std::min(kTogether, count - j);
            if (rows == kTogether && all_in(positions + j, part)) {
                std::fill_n(parts + j, kTogether, static_cast<Part>(part));
                counts[part] += kTogether;
                continue;
            }
            for (int64_t r = j; r < j + rows; ++r) {
                part = owners_.of(positions[r]);
                parts[r] = static_cast<Part>(part);
                ++counts[part];
            }
        }
        return part;
    }

    // Whether kTogether positions are all the part's.
    bool all_in(const Index* positions, int64_t part) const {
        return in_range_from(positions, static_cast<Index>(owners_.begin(part)), owners_.size(part));
    }

    static bool in_range_from(const Index* positions, Index first, int64_t size) {
        using Unsigned = std::make_unsigned_t<Index>;
        Unsigned outside = 0;
        for (int64_t j = 0; j < kTogether; ++j) {
            const Unsigned offset = static_cast<Unsigned>(static_cast<Unsigned>(positions[j]) - static_cast<Unsigned>(first));
            outside |= static_cast<Unsigned>(static_cast<uint64_t>(offset) >= static_cast<uint64_t>(size));
        }
        return outside == 0;
    }

    // Turns the counters into the place of each span's next row of each part. Returns the counts. O((k + spans) parts).
    Buffer<int64_t> placed_counters() {
        const int64_t num_parts = owners_.num_parts(), num_spans = static_cast<int64_t>(spans_.size());
        Buffer<int64_t> counts(checked_product(num_parts, Q_.num_batches));
        std::fill_n(counts.data(), counts.size(), int64_t(0));
        std::vector<int64_t> before(static_cast<size_t>(num_parts) + 1, 0);
        for (int64_t number = 0; number < num_spans; ++number) {
            for (int64_t p = 0; p < num_parts; ++p) before[static_cast<size_t>(p) + 1] += counters(number)[p];
        }
        for (int64_t p = 0; p < num_parts; ++p) before[static_cast<size_t>(p) + 1] += before[static_cast<size_t>(p)];
        for (int64_t first = 0; first < num_spans; first += kSpansAtOnce) {
            const int64_t end = std::min(num_spans, first + kSpansAtOnce);
            for (int64_t p = 0; p < num_parts; ++p) {
                int64_t place = before[static_cast<size_t>(p)];
                for (int64_t number = first; number < end; ++number) {
                    const int64_t rows = std::exchange(counters(number)[p], place);
                    counts[p * Q_.num_batches + span(number).batch] += rows;
                    place += rows;
                }
                before[static_cast<size_t>(p)] = place;
            }
        }
        return counts;
    }

    void place_span(int64_t number, Routed<Index>& routed) {
        int64_t* const next = counters(number);
        const int64_t end = span(number).end;
        for (int64_t r = span(number).begin; r < end; r += kTogether) {
            const int64_t rows = std::min(kTogether, end - r);
            if (rows == kTogether && all_equal(parts_.data() + r)) {
                const int64_t place = std::exchange(next[parts_[r]], next[parts_[r]] + kTogether);
                place_run(r, place, routed);
                continue;
            }
            for (int64_t row = r; row < r + rows; ++row) {
                const int64_t place = next[parts_[row]]++;
                routed.vertices[place] = Q_.vertices[row];
                routed.places[row] = static_cast<Index>(place);
            }
        }
    }

    static bool all_equal(const Part* parts) {
        Part other = 0;
        for (int64_t j = 1; j < kTogether; ++j) other = static_cast<Part>(other | (parts[j] ^ parts[0]));
        return other == 0;
    }

    // kTogether rows of one part.
    void place_run(int64_t row, int64_t place, Routed<Index>& routed) const {
        std::copy_n(Q_.vertices + row, kTogether, routed.vertices.data() + place);
        Index* const places = routed.places.data() + row;
        for (int64_t j = 0; j < kTogether; ++j) places[j] = static_cast<Index>(place + j);
    }

    const SelectorView<Index>& Q_;
    const Owners& owners_;
    const Index* position_;
    const std::vector<RowSpan> spans_;
    Buffer<Part> parts_;     // of each row
    Buffer<int64_t> next_;  // spans x parts: counts, then places
};

// --- binding ----------------------------------------------------------------------------------------------------------------

// (counts, vertices, places). bounds: parts + 1, ascending from 0. position: bounds[parts] elements, or None. O(m + parts (k + m /
// kSpanRows)). Memory beside the result: 2 bytes for each row, and 8 for each span and part.
template <class Index>
nb::tuple route_rows(
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& bounds, const std::optional<In<Index>>& position) {
    const int64_t num_rows = static_cast<int64_t>(vertices.size()), num_batches = static_cast<int64_t>(batch_ptr.size()) - 1;
    require_pointers(batch_ptr, num_rows, "batch_ptr");
    require(num_rows <= int64_t(std::numeric_limits<Index>::max()), "vertices", "more rows in a bulk than the index type can number");
    require_bounds(bounds);
    const int64_t num_parts = static_cast<int64_t>(bounds.size()) - 1;
    const bool fits = !position || static_cast<int64_t>(position->size()) == bounds.data()[num_parts];
    require(fits, "position", "needs as many elements as the last of the bounds says");
    Routed<Index> routed;
    {
        nb::gil_scoped_release release;
        const SelectorView<Index> Q{batch_ptr.data(), vertices.data(), nullptr, num_batches, num_rows};
        const ThreadsFor threads(checked_product(kRowWork, num_rows));
        routed = Router<Index>(Q, Owners(bounds), position ? position->data() : nullptr).route();
    }
    return nb::make_tuple(
        to_numpy(std::move(routed.counts), {num_parts, num_batches}), to_numpy(std::move(routed.vertices)),
        to_numpy(std::move(routed.places)));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("route_rows", &route_rows<Index>, nb::arg("batch_ptr"), nb::arg("vertices").noconvert(), nb::arg("bounds"),
          nb::arg("position").noconvert() = nb::none(), "(counts, vertices, places) of stacked rows sorted by their parts.");
}

}  // namespace

void bind_routing(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
