// Lookahead: which items of the next batch a cache holds, and which of the others it keeps, where the items of some batches are known.
//
// Belady's rule at the grain of batches (docs/lookahead.md): of what was held and what a batch brings, that stays whose next use comes first;
// where no use is known, what scores more. O(1) for each use of an item, but for a sort of the few that score better than what is held.
#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <nanobind/stl/tuple.h>

#include "bindings.h"
#include "lookahead_future.h"
#include "lookahead_places.h"

namespace spsample {
namespace {

// Of an item of the batch: its next batch, or where no use is known itself or its rank; and its place, or its position in the batch.
struct Ranked {
    int32_t rank;
    int32_t where;
};

constexpr int64_t kAhead = 16;

class Lookahead {
public:
    // ranks (items): 0 for the largest score, then 1, ... held (up to num_places): what places 0, 1, ... hold, distinct.
    Lookahead(const In<int32_t>& ranks, const In<int64_t>& held, int64_t num_places)
        : future_(static_cast<int64_t>(ranks.size())), places_(checked(ranks), num_items(), num_places) {
        require(num_items() <= INT32_MAX && num_places <= num_items(), "num_places", "more than items");
        require(static_cast<int64_t>(held.size()) <= num_places, "held", "more than places");
        require(in_range(held.data(), static_cast<int64_t>(held.size()), num_items()), "held", "an item is out of range");
        for (size_t i = 0; i < held.size(); ++i) {
            const int32_t item = static_cast<int32_t>(held.data()[i]);
            require(places_.place_of(item) == PlacesByUse::kNone, "held", "an item comes twice");
            places_.put(item, places_.take_free());
            places_.set_unknown(item);
        }
    }

    int64_t num_items() const { return future_.num_items(); }
    int32_t known() const { return future_.num_batches(); }
    int64_t nbytes() const { return future_.item_bytes() + places_.nbytes(); }
    int64_t known_bytes() const { return future_.use_bytes(); }

    template <class Index>
    void announce(const In<Index>& ids) {
        nb::gil_scoped_release release;
        const int64_t size = static_cast<int64_t>(ids.size());
        require(in_range(ids.data(), size, num_items()), "batches", "an item is out of range");
        future_.reserve(size);
        grow(new_, size);
        const int64_t count = future_.announce(ids.data(), size, new_.data());
        const int32_t first = future_.first_batch(), batch = first + known() - 1;
        places_.begin_batch(first, known());
        const int64_t held = places_.only_held(new_.data(), count);
        for (int64_t i = 0; i < held; ++i) places_.set_known(new_[static_cast<size_t>(i)]);
        for (int64_t i = 0; i < held; ++i) places_.add_to_batch(places_.place_of(new_[static_cast<size_t>(i)]), batch);
    }

    // Whether these are the items of the first known batch.
    template <class Index>
    bool is_next(const In<Index>& ids) const {
        if (known() == 0 || ids.size() != future_.front().size) return false;
        nb::gil_scoped_release release;
        const auto [first, size] = future_.front();
        int64_t differences = 0;
        for (uint32_t i = 0; i < size; ++i) differences |= static_cast<int64_t>(ids.data()[i]) ^ future_.use(first + i).item;
        return differences == 0;
    }

    // Decides on the first known batch, which is then over.
    std::tuple<nb::object, nb::object, nb::object, nb::object, nb::object> step() {
        require(known() > 0, "batches", "none is known");
        const int64_t size = future_.front().size;
        Buffer<int64_t> hits(size), hit_places(size), misses(size), kept, kept_places;
        int64_t num_hits = 0, num_kept = 0;
        {
            nb::gil_scoped_release release;
            num_hits = split(hits.data(), hit_places.data(), misses.data());
            const int64_t most = std::min(size - num_hits, places_.num_places());
            kept = Buffer<int64_t>(most);
            kept_places = Buffer<int64_t>(most);
            num_kept = keep(kept.data(), kept_places.data());
        }
        return {to_numpy(std::move(hits), {num_hits}), to_numpy(std::move(hit_places), {num_hits}),
                to_numpy(std::move(misses), {size - num_hits}), to_numpy(std::move(kept), {num_kept}),
                to_numpy(std::move(kept_places), {num_kept})};
    }

    // Positions of items that are held, their places, and positions of the others. Nothing changes.
    template <class Index>
    std::tuple<nb::object, nb::object, nb::object> find(const In<Index>& ids) const {
        const int64_t size = static_cast<int64_t>(ids.size());
        Buffer<int64_t> hits(size), hit_places(size), misses(size);
        int64_t num_hits = 0;
        {
            nb::gil_scoped_release release;
            if (!in_range(ids.data(), size, num_items())) throw std::out_of_range("ids: outside the items");
            for (int64_t i = 0; i < size; ++i) {
                const int32_t place = places_.place_of(static_cast<int32_t>(ids.data()[i]));
                hits[num_hits] = misses[i - num_hits] = i;
                hit_places[num_hits] = place;
                num_hits += place != PlacesByUse::kNone;
            }
        }
        return {to_numpy(std::move(hits), {num_hits}), to_numpy(std::move(hit_places), {num_hits}),
                to_numpy(std::move(misses), {size - num_hits})};
    }

    // Forgets all known batches, and what these places hold.
    void forget(const In<int64_t>& emptied) {
        require(in_range(emptied.data(), static_cast<int64_t>(emptied.size()), places_.num_places()), "emptied", "no place");
        future_.clear([&](int32_t item) {
            if (places_.place_of(item) != PlacesByUse::kNone) places_.set_unknown(item);
        });
        for (size_t i = 0; i < emptied.size(); ++i) places_.free(static_cast<int32_t>(emptied.data()[i]));
    }

    // (items) the rank of each item.
    nb::object ranks() const {
        Buffer<int32_t> ranks(num_items());
        for (int64_t id = 0; id < num_items(); ++id) ranks[id] = places_.rank_of(static_cast<int32_t>(id));
        return to_numpy(std::move(ranks));
    }

    // (places) the item of each place; -1 where it holds none.
    nb::object items() const {
        Buffer<int64_t> items(places_.num_places());
        for (int64_t p = 0; p < items.size(); ++p) items[p] = places_.item_at(p);
        return to_numpy(std::move(items));
    }

private:
    enum : size_t { kMissKnown, kMissUnknown, kHitKnown, kHitUnknown, kGroups };
    struct Group {
        Ranked *first = nullptr, *last = nullptr;
        Ranked* begin() const { return first; }
        Ranked* end() const { return last; }
    };

    // Goes through the first batch: what is held gets its next use, what is not becomes a candidate. Gives the number of hits.
    int64_t split(int64_t* hits, int64_t* hit_places, int64_t* misses) {
        const auto [first, size] = future_.front();
        std::array<Ranked*, kGroups> ends;
        for (size_t g = 0; g < kGroups; ++g) {
            grow(memory_[g], size);
            ends[g] = memory_[g].data();
        }
        const int32_t batch = future_.first_batch();
        int64_t num_hits = 0;
        for (uint32_t i = 0; i < size; ++i) {
            places_.prefetch(future_.use(first + i + kAhead).item);  // beyond the batch any item will do
            const auto [item, next] = future_.use(first + i);
            const int32_t place = places_.place_of(item);
            const bool is_hit = place != PlacesByUse::kNone, is_unknown = next == KnownFuture::kUnknown;
            hits[num_hits] = misses[i - num_hits] = i;
            hit_places[num_hits] = place;
            num_hits += is_hit;
            Ranked*& end = ends[size_t{is_hit} * 2 + is_unknown];
            *end = {chosen(is_unknown, item, next), chosen(is_hit, place, static_cast<int32_t>(i))};
            end += next != batch;  // an item that comes again is dealt with then
        }
        for (size_t g = 0; g < kGroups; ++g) groups_[g] = {memory_[g].data(), ends[g]};
        for (const auto& [next, place] : groups_[kHitKnown]) places_.add_to_batch(place, next);
        for (const auto& [item, place] : groups_[kHitUnknown]) places_.set_unknown(item);
        return num_hits;
    }

    // Chooses among the misses, the best first, so that none is taken out again. Gives the number of those that stay.
    int64_t keep(int64_t* kept, int64_t* kept_places) {
        int64_t count = 0;
        const uint32_t first = future_.front().first;
        places_.look_from(future_.first_batch() + known() - 1);
        const auto put = [&](int32_t position, int32_t item, int32_t place) {
            places_.put(item, place);
            kept[count] = position;
            kept_places[count++] = place;
        };
        for (const auto& [next, position] : sorted_by_use()) {
            const int32_t place = place_before(next);
            if (place == PlacesByUse::kNone) break;
            put(position, future_.use(first + static_cast<uint32_t>(position)).item, place);
            places_.add_to_batch(place, next);
        }
        for (const auto& [rank, position] : sorted_by_score()) {
            const int32_t place = place_above(rank), item = future_.use(first + static_cast<uint32_t>(position)).item;
            if (place == PlacesByUse::kNone) break;
            put(position, item, place);
            places_.set_unknown(item);
        }
        future_.pop();
        return count;
    }

    // A place for an item that batch `next` uses: an empty one, or that of an item which is used later, or not for all that is known.
    int32_t place_before(int32_t next) {
        if (places_.has_free()) return places_.take_free();
        const int32_t worst = places_.worst();
        return worst == PlacesByUse::kNone ? places_.take_later_than(next) : places_.take_unknown(worst);
    }

    // The same for an item of which no use is known.
    int32_t place_above(int32_t rank) {
        if (places_.has_free()) return places_.take_free();
        const int32_t worst = places_.worst();
        return worst > rank ? places_.take_unknown(worst) : PlacesByUse::kNone;
    }

    // Misses with a known next use. Counted, not compared: there are few batches. Equal ones keep their order.
    Group sorted_by_use() {
        const Group all = groups_[kMissKnown];
        const int32_t first = future_.first_batch();
        starts_.assign(static_cast<size_t>(known()) + 1, 0);
        for (const Ranked& one : all) ++starts_[static_cast<size_t>(one.rank - first) + 1];
        for (size_t b = 1; b < starts_.size(); ++b) starts_[b] += starts_[b - 1];
        grow(sorted_, all.last - all.first);
        for (const Ranked& one : all) sorted_[static_cast<size_t>(starts_[static_cast<size_t>(one.rank - first)]++)] = one;
        return {sorted_.data(), sorted_.data() + (all.last - all.first)};
    }

    // Misses without one, by rank. Only those that may stay.
    Group sorted_by_score() {
        Group all = groups_[kMissUnknown];
        const int32_t worst = places_.has_free() ? INT32_MAX : places_.worst();
        if (worst == PlacesByUse::kNone) return {};
        Ranked* end = all.first;
        for (const auto& [item, position] : all) {
            *end = {places_.rank_of(item), position};
            end += end->rank < worst;
        }
        std::sort(all.first, end, [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
        return {all.first, end};
    }

    static const int32_t* checked(const In<int32_t>& ranks) {
        const int64_t count = static_cast<int64_t>(ranks.size());
        require(in_range(ranks.data(), count, count), "ranks", "out of range");
        return ranks.data();
    }

    // Makes room, and never less: what is there is overwritten.
    template <class T>
    static void grow(std::vector<T>& memory, int64_t size) {
        if (memory.size() < static_cast<size_t>(size)) memory.resize(static_cast<size_t>(size));
    }

    KnownFuture future_;
    PlacesByUse places_;
    std::array<Group, kGroups> groups_;  // of the batch that is decided on
    std::array<std::vector<Ranked>, kGroups> memory_;
    std::vector<Ranked> sorted_;
    std::vector<int32_t> new_;
    std::vector<int64_t> starts_;
};

template <class Index>
void bind_for(nb::class_<Lookahead>& c) {
    c.def("announce", &Lookahead::announce<Index>, nb::arg("ids").noconvert(), "Append a batch to what is known.");
    c.def("is_next", &Lookahead::is_next<Index>, nb::arg("ids").noconvert(), "Whether these are the items of the first known batch.");
    c.def("find", &Lookahead::find<Index>, nb::arg("ids").noconvert(),
          "Positions of the items that are held, their places, and positions of the others.");
}

}  // namespace

void bind_lookahead(nb::module_& m) {
    nb::class_<Lookahead> c(m, "Lookahead", "Which items of the next batch are held, and which others are kept.");
    c.def(nb::init<const In<int32_t>&, const In<int64_t>&, int64_t>(), nb::arg("ranks"), nb::arg("held"), nb::arg("num_places"));
    bind_for<int32_t>(c);
    bind_for<int64_t>(c);
    c.def("step", &Lookahead::step,
          "Positions in the first known batch of what is held, its places, positions of the others, of those that are kept,\n"
          "and their places. The batch is then over.");
    c.def("forget", &Lookahead::forget, nb::arg("emptied"), "Forget all known batches, and what these places hold.");
    c.def("ranks", &Lookahead::ranks, "The rank of each item.");
    c.def("items", &Lookahead::items, "The item of each place; -1 where it holds none.");
    c.def_prop_ro("known", &Lookahead::known, "Number of known batches.");
    c.def_prop_ro("nbytes", &Lookahead::nbytes, "Bytes, but for those of the known batches.");
    c.def_prop_ro("known_bytes", &Lookahead::known_bytes, "Bytes of the known batches.");
}

}  // namespace spsample
