// Lookahead: which items of the next batch a cache holds, and which of the others it keeps, where the items of some batches are known.
//
// Belady's rule at the grain of batches (docs/lookahead.md): of what was held and what a batch brings, that stays whose next use comes first;
// where no use is known, what scores more. O(1) for each use of an item, but for a sort of the few that score better than what is held.
#include <algorithm>
#include <array>
#include <stdexcept>
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
constexpr size_t kTables = 4;

// Calls body(ids, size) with an array of int32 or int64.
template <class Body>
auto with_ids(const AnyIn& ids, const Body& body) {
    const int64_t size = static_cast<int64_t>(ids.size());
    return ids.is<int32_t>() ? body(static_cast<const int32_t*>(ids.data()), size) : body(static_cast<const int64_t*>(ids.data()), size);
}

class Lookahead {
public:
    // memory (ceil(5 / 4 * items) + 4 * num_places): first the rank of each item, 0 for the largest score, then 1, ...; num_places for all that have
    // none. The rest is 0. It is written to as long as this lives. At first places hold the items that have a rank, in their order.
    Lookahead(const InOut<int32_t>& memory, int64_t num_items, int64_t num_places)
        : future_(checked(memory, num_items, num_places)), places_(memory.data(), num_items, memory.data() + num_items, num_places) {}

    int64_t num_items() const { return places_.num_items(); }
    int32_t known() const { return future_.num_batches(); }
    int64_t nbytes() const { return places_.nbytes() + (num_items() + 3) / 4 * 4; }
    int64_t known_bytes() const { return future_.use_bytes(); }

    // Appends batches; whether all are arrays of items. Else none is appended.
    bool announce(const nb::list& batches) {
        std::vector<AnyIn> each(nb::len(batches));
        for (size_t i = 0; i < each.size(); ++i) {
            if (!each[i].look_at(batches[i].ptr(), false) || !(each[i].is<int32_t>() || each[i].is<int64_t>())) return false;
        }
        nb::gil_scoped_release release;
        const auto are_items = [&](const auto* ids, int64_t size) { return in_range(ids, size, num_items()); };
        for (const AnyIn& ids : each) {
            if (!with_ids(ids, are_items)) return false;
        }
        int32_t together = 0;
        for (const AnyIn& ids : each) {
            with_ids(ids, [&](const auto* items, int64_t size) { future_.append(items, size); });
            places_.begin_batch(future_.first_batch(), known());
            if (++together == KnownFuture::kMostTogether) link(std::exchange(together, 0));
        }
        link(together);
        return true;
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
        if (known() == 0) throw std::out_of_range("no batch is known");
        const int64_t size = future_.front().size;
        Buffer<int64_t> hits(size), hit_places(size), misses(size), kept, kept_places;
        int64_t num_hits = 0, num_kept = 0;
        {
            nb::gil_scoped_release release;
            num_hits = split(hits.data(), hit_places.data(), misses.data());
            const int64_t most = std::min(size - num_hits, places_.num_places());
            kept = Buffer<int64_t>(most + 1);  // and one that is written and not kept
            kept_places = Buffer<int64_t>(most);
            num_kept = keep(misses.data(), kept.data(), kept_places.data());
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
                num_hits += place >= 0;
            }
        }
        return {to_numpy(std::move(hits), {num_hits}), to_numpy(std::move(hit_places), {num_hits}),
                to_numpy(std::move(misses), {size - num_hits})};
    }

    // Forgets all known batches, and what these places hold.
    void forget(const In<int64_t>& emptied) {
        require(in_range(emptied.data(), static_cast<int64_t>(emptied.size()), places_.num_places()), "emptied", "no place");
        future_.clear([&](int32_t item) {
            if (places_.has_place(item)) places_.set_unknown(places_.place_of(item));
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

    // Of the last batches, which were appended.
    void link(int32_t count) {
        if (count > 0) future_.link(count, [&](int32_t item) { return places_.has_place(item); }, [&](int32_t item, int32_t batch) {
            places_.set_known(places_.place_of(item));
            places_.add_to_batch(places_.place_of(item), batch);
        });
    }

    int32_t next_of(int64_t position) const { return future_.next(future_.front().first + static_cast<uint32_t>(position)); }
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
            num_hits += place >= 0;
        }
        go_on(hit_places, num_hits);
        num_misses_ = size - num_hits;
        return num_hits;
    }

    // Each hit waits for its next use from now on, or is one of unknown use. Those first that do not, so that no branch is taken by chance.
    void go_on(const int64_t* places, int64_t count) {
        const int32_t batch = future_.first_batch();
        int64_t num_known = 0, num_unknown = 0;
        grow(unknown_, count);
        grow(known_places_, count);
        for (int64_t h = 0; h < count; ++h) {
            const int32_t next = hit_next_[static_cast<size_t>(h)];
            unknown_[static_cast<size_t>(num_unknown)] = static_cast<int32_t>(places[h]);
            num_unknown += next == KnownFuture::kUnknown;
            hit_next_[static_cast<size_t>(num_known)] = next;
            known_places_[static_cast<size_t>(num_known)] = static_cast<int32_t>(places[h]);
            places_.prefetch_place(static_cast<int32_t>(places[h]));
            num_known += next > batch;  // an item that comes again is dealt with then
        }
        for (int64_t i = 0; i < num_known; ++i) places_.add_to_batch(known_places_[static_cast<size_t>(i)], hit_next_[static_cast<size_t>(i)]);
        for (int64_t i = 0; i < num_unknown; ++i) places_.set_unknown(unknown_[static_cast<size_t>(i)]);
    }

    // Chooses among the misses. Gives the number of those that stay.
    int64_t keep(const int64_t* misses, int64_t* kept, int64_t* kept_places) {
        const int64_t count = choose_known(misses, kept);
        places_.take(count, future_.first_batch() + known() - 1, kept_places);
        for (int64_t i = 0; i < count; ++i) places_.prefetch_place(static_cast<int32_t>(kept_places[i]));
        for (int64_t i = 0; i < count; ++i) {
            const int32_t place = static_cast<int32_t>(kept_places[i]);
            places_.put(item_of(kept[i]), place);
            places_.add_to_batch(place, next_of(kept[i]));
        }
        const int64_t all = count + keep_unknown(misses, kept + count, kept_places + count);
        future_.pop();
        return all;
    }

    // Of misses with a known next use, those that stay: with places that are spare, or whose items are used later. Equal ones in their order.
    int64_t choose_known(const int64_t* misses, int64_t* kept) {
        const int32_t first = future_.first_batch() + 1;  // that may use an item again
        const auto [limit, num_at_limit] = limits(first);
        int64_t count = 0, left = num_at_limit;
        for (int64_t i = 0; limit > first && i < num_misses_; ++i) {
            kept[count] = misses[i];
            count += static_cast<uint32_t>(miss_next_[static_cast<size_t>(i)] - first) < static_cast<uint32_t>(limit - first);
        }
        for (int64_t i = 0; left > 0; ++i) {
            kept[count] = misses[i];
            const bool is_kept = miss_next_[static_cast<size_t>(i)] == limit;
            count += is_kept;
            left -= is_kept;
        }
        return count;
    }

    // The batch before which all misses stay that are used again from `first` on, and how many stay that are used in it.
    std::pair<int32_t, int64_t> limits(int32_t first) {
        const int32_t end = future_.first_batch() + known();
        int64_t places = places_.num_spare();  // for misses that are used in `first`
        for (int32_t b = first + 1; b < end; ++b) places += places_.num_in_batch(b);
        if (places < num_misses_ / 4 && are_used_in(first, places)) return {first, places};  // so it is where a batch needs most items
        count_misses(first, end - first);
        int64_t before = 0;
        for (int32_t b = first; b < end; ++b) {
            const int64_t wanted = counts_[static_cast<size_t>(b - first)];
            if (before + wanted > places) return {b, std::max<int64_t>(places - before, 0)};
            before += wanted;
            if (b + 1 < end) places -= places_.num_in_batch(b + 1);
        }
        return {end, 0};
    }

    // Whether a batch uses at least so many of the misses.
    bool are_used_in(int32_t batch, int64_t count) const {
        for (int64_t i = 0; count > 0 && i < num_misses_; ++i) count -= miss_next_[static_cast<size_t>(i)] == batch;
        return count == 0;
    }

    // Counts the misses by the batch of their next use. In turns in several tables, as many in a row have the same one.
    void count_misses(int32_t first, int32_t batches) {
        const size_t width = static_cast<size_t>(batches) + 1;  // others in the last one
        counts_.assign(kTables * width, 0);
        for (int64_t i = 0; i < num_misses_; ++i) {
            const uint32_t behind = static_cast<uint32_t>(miss_next_[static_cast<size_t>(i)] - first);
            ++counts_[static_cast<size_t>(i) % kTables * width + std::min(behind, static_cast<uint32_t>(batches))];
        }
        for (size_t i = width; i < counts_.size(); ++i) counts_[i % width] += counts_[i];
    }

    // Of misses of which no use is known, those stay that score more than such items that are held: the best first, so that none is taken out again.
    int64_t keep_unknown(const int64_t* misses, int64_t* kept, int64_t* kept_places) {
        int64_t count = 0;
        for (const Miss& one : sorted_by_score(misses)) {
            const int32_t place = places_.take_above(one.rank);
            if (place == PlacesByUse::kNone) break;
            places_.put(item_of(one.position), place);
            places_.set_unknown(place);
            kept[count] = one.position;
            kept_places[count++] = place;
        }
        return count;
    }

    // Misses without a known use that have a rank, by it.
    Misses sorted_by_score(const int64_t* misses) {
        grow(sorted_, num_misses_);
        Miss* const first = sorted_.data();
        Miss* last = first;
        for (int64_t i = 0; i < num_misses_; ++i) {
            *last = {0, static_cast<int32_t>(misses[i])};
            last += miss_next_[static_cast<size_t>(i)] == KnownFuture::kUnknown;
        }
        Miss* end = first;
        for (const Miss* miss = first; miss != last; ++miss) {
            *end = {places_.rank_of(item_of(miss->position)), miss->position};
            end += places_.is_ranked(end->rank);
        }
        std::sort(first, end, [](const Miss& a, const Miss& b) { return a.rank < b.rank; });
        return {first, end};
    }

    // Where a byte for each item lies in the memory.
    static uint8_t* checked(const InOut<int32_t>& memory, int64_t num_items, int64_t num_places) {
        require(num_items >= 0 && num_items < INT32_MAX, "num_items", "too many items");
        require(num_places >= 0 && num_places <= num_items, "num_places", "more than items");
        require(static_cast<int64_t>(memory.size()) == num_items + (num_items + 3) / 4 + 4 * num_places, "memory", "is of another size");
        return reinterpret_cast<uint8_t*>(memory.data() + num_items + 4 * num_places);
    }

    // Makes room, and never less: what is there is overwritten.
    template <class T>
    static void grow(std::vector<T>& memory, int64_t size) {
        if (memory.size() < static_cast<size_t>(size)) memory.resize(static_cast<size_t>(size));
    }

    KnownFuture future_;
    PlacesByUse places_;
    int64_t num_misses_ = 0;  // of the batch that is decided on
    std::vector<int32_t> hit_next_, miss_next_;
    std::vector<int32_t> unknown_, known_places_;  // of hits
    std::vector<int32_t> counts_;  // of misses, by the batch of their next use
    std::vector<Miss> sorted_;
};

template <class Index>
void bind_for(nb::class_<Lookahead>& c) {
    c.def("is_next", &Lookahead::is_next<Index>, nb::arg("ids").noconvert(), "Whether these are the items of the first known batch.");
    c.def("find", &Lookahead::find<Index>, nb::arg("ids").noconvert(),
          "Positions of the items that are held, their places, and positions of the others.");
}

}  // namespace

void bind_lookahead(nb::module_& m) {
    nb::class_<Lookahead> c(m, "Lookahead", "Which items of the next batch are held, and which others are kept.");
    c.def(nb::init<const InOut<int32_t>&, int64_t, int64_t>(), nb::arg("memory"), nb::arg("num_items"), nb::arg("num_places"), nb::keep_alive<1, 2>());
    bind_for<int32_t>(c);
    bind_for<int64_t>(c);
    c.def("announce", &Lookahead::announce, nb::arg("batches"),
          "Append batches to what is known, unless one is no array of items; gives whether all are.");
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
