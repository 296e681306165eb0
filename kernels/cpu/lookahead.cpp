// Lookahead: which items of the next batch a cache holds, and which of the others it keeps, where the items of some batches are known.
//
// Belady's rule at the grain of batches (docs/lookahead.md): of what was held and what a batch brings, that stays whose next use comes first;
// where no use is known, what scores more. O(1) for each use of an item, but for a sort of the few that score better than what is held.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/tuple.h>

#include "bindings.h"
#include "lookahead_future.h"
#include "lookahead_places.h"

namespace spsample {
namespace {

// A miss: the next batch that uses the item, or where none is known its rank; and its position in the batch.
struct Miss {
    int32_t rank;
    int32_t position;
};

constexpr uint32_t kAhead = 32;

class Lookahead {
public:
    // ranks (items): 0 for the largest score, then 1, ... held (up to num_places): what places 0, 1, ... hold, distinct.
    Lookahead(const In<int32_t>& ranks, const In<int64_t>& held, int64_t num_places)
        : places_(checked(ranks), static_cast<int64_t>(ranks.size()), num_places) {
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

    int64_t num_items() const { return places_.num_items(); }
    int32_t known() const { return future_.num_batches(); }
    int64_t nbytes() const { return places_.nbytes(); }
    int64_t known_bytes() const { return future_.use_bytes(); }

    template <class Index>
    void announce(const In<Index>& ids) {
        nb::gil_scoped_release release;
        const int64_t size = static_cast<int64_t>(ids.size());
        require(in_range(ids.data(), size, num_items()), "batches", "an item is out of range");
        future_.reserve(size, places_.items());
        grow(new_, size);
        const int64_t held = future_.announce(ids.data(), size, places_.items().data(), new_.data());
        const int32_t first = future_.first_batch(), batch = first + known() - 1;
        places_.begin_batch(first, known());
        for (int64_t i = 0; i < held; ++i) places_.set_known(new_[static_cast<size_t>(i)]);
        for (int64_t i = 0; i < held; ++i) places_.add_to_batch(places_.place_of(new_[static_cast<size_t>(i)]), batch);
    }

    // Whether these are the items of the first known batch.
    template <class Index>
    bool is_next(const In<Index>& ids) const {
        if (known() == 0 || ids.size() != future_.front().size) return false;
        nb::gil_scoped_release release;
        return future_.is_front(ids.data());
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
    struct Misses {
        Miss *first = nullptr, *last = nullptr;
        Miss* begin() const { return first; }
        Miss* end() const { return last; }
    };

    int32_t item_of(int64_t position) const { return future_.item(future_.front().first + static_cast<uint32_t>(position)); }

    // Goes through the first batch: what is held gets its next use. Gives the number of hits.
    int64_t split(int64_t* hits, int64_t* hit_places, int64_t* misses) {
        const auto [first, size] = future_.front();
        grow(hit_next_, size);
        grow(miss_next_, size);
        int64_t num_hits = 0;
        for (uint32_t i = 0; i < size; ++i) {
            places_.prefetch(future_.item(first + i + kAhead));  // beyond the batch any item will do
            const int32_t next = future_.next(first + i), place = places_.place_of(future_.item(first + i));
            const int64_t j = i - num_hits;
            hits[num_hits] = misses[j] = i;
            hit_places[num_hits] = place;
            hit_next_[static_cast<size_t>(num_hits)] = miss_next_[static_cast<size_t>(j)] = next;
            num_hits += place != PlacesByUse::kNone;
        }
        for (int64_t h = 0; h < num_hits; ++h) {
            const int32_t next = hit_next_[static_cast<size_t>(h)];
            if (next == KnownFuture::kUnknown) {
                places_.set_unknown(item_of(hits[h]));
            } else if (next != future_.first_batch()) {  // an item that comes again is dealt with then
                places_.add_to_batch(static_cast<int32_t>(hit_places[h]), next);
            }
        }
        sort_by_use(misses, size - num_hits);
        return num_hits;
    }

    // Chooses among the misses, the best first, so that none is taken out again. Gives the number of those that stay.
    int64_t keep(int64_t* kept, int64_t* kept_places) {
        int64_t count = 0;
        const auto put = [&](const Miss& miss, int32_t place) {
            const int32_t item = item_of(miss.position);
            places_.put(item, place);
            kept[count] = miss.position;
            kept_places[count++] = place;
            return item;
        };
        const Miss* miss = known_.begin();
        const auto put_all = [&](auto&& place_for) {
            for (; miss != known_.end(); ++miss) {
                const int32_t place = place_for(miss->rank);
                if (place == PlacesByUse::kNone) return;
                put(*miss, place);
                places_.add_to_batch(place, miss->rank);
            }
        };
        put_all([&](int32_t) { return places_.has_free() ? places_.take_free() : PlacesByUse::kNone; });
        grow(emptied_, known_.end() - miss);
        const int64_t emptied = places_.take_unknown(known_.end() - miss, emptied_.data());
        put_all([&, i = int64_t{0}](int32_t) mutable { return i < emptied ? emptied_[static_cast<size_t>(i++)] : PlacesByUse::kNone; });
        places_.look_from(future_.first_batch() + known() - 1);
        put_all([&](int32_t next) { return places_.take_later_than(next); });
        for (const Miss& one : sorted_by_score()) {
            const int32_t place = place_above(one.rank);
            if (place == PlacesByUse::kNone) break;
            places_.set_unknown(put(one, place));
        }
        future_.pop();
        return count;
    }

    // A place for an item of which no use is known: an empty one, or that of such an item that scores less.
    int32_t place_above(int32_t rank) {
        if (places_.has_free()) return places_.take_free();
        const int32_t worst = places_.worst();
        return worst > rank ? places_.take_unknown(worst) : PlacesByUse::kNone;
    }

    // Sorts the misses that may stay: those with a known next use, the first one first, then those without. Counted, not compared: there are
    // few batches. Equal ones keep their order. An item that comes again in the batch is left out.
    void sort_by_use(const int64_t* misses, int64_t count) {
        const int32_t first = future_.first_batch(), unknown = known() - 1;
        const bool may_all = places_.has_free() || places_.worst() != PlacesByUse::kNone;
        const uint32_t later = may_all ? UINT32_MAX : static_cast<uint32_t>(places_.latest(first, first + unknown) - first - 1);
        grow(candidates_, count);
        int64_t left = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int32_t next = miss_next_[static_cast<size_t>(i)];
            candidates_[static_cast<size_t>(left)] = {next, static_cast<int32_t>(misses[i])};
            left += static_cast<uint32_t>(next - first - 1) < later;  // an unknown one is the latest
        }
        starts_.assign(static_cast<size_t>(known()), 0);  // of the batches after the first one, and of no batch
        const auto start = [&](const Miss& miss) -> int32_t& {
            return starts_[static_cast<size_t>(chosen(miss.rank == KnownFuture::kUnknown, unknown, miss.rank - first - 1))];
        };
        const Misses all{candidates_.data(), candidates_.data() + left};
        for (const Miss& miss : all) ++start(miss);
        int32_t before = 0;
        for (int32_t& one : starts_) before += std::exchange(one, before);
        grow(sorted_, left);
        known_ = {sorted_.data(), sorted_.data() + starts_[static_cast<size_t>(unknown)]};
        unknown_ = {known_.last, sorted_.data() + left};
        for (const Miss& miss : all) sorted_[static_cast<size_t>(start(miss)++)] = miss;
    }

    // Misses without a known use, by rank. Only those that may stay.
    Misses sorted_by_score() {
        const int32_t worst = places_.has_free() ? INT32_MAX : places_.worst();
        if (worst == PlacesByUse::kNone) return {};
        Miss* end = unknown_.first;
        for (const Miss& miss : unknown_) {
            *end = {places_.rank_of(item_of(miss.position)), miss.position};
            end += end->rank < worst;
        }
        std::sort(unknown_.first, end, [](const Miss& a, const Miss& b) { return a.rank < b.rank; });
        return {unknown_.first, end};
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
    Misses known_, unknown_;  // of the batch that is decided on: in sorted_
    std::vector<Miss> candidates_, sorted_;
    std::vector<int32_t> hit_next_, miss_next_, emptied_;
    std::vector<int32_t> new_;
    std::vector<int32_t> starts_;
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
