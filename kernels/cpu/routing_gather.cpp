// gather_rows: rows that came back sorted by part, stacked again in the order of their selector.
//
// A pass over the lengths tells where each row lies; a second one, in parallel over spans of rows, how many entries a span has; a third
// writes row pointers and copies the entries. Rows are short: what takes time is a move for each, and a line of memory or two.
#include <algorithm>
#include <vector>

#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "copy_runs.h"
#include "routing_spans.h"

namespace spsample {
namespace {

constexpr int64_t kLengthChunk = 1 << 14;
constexpr int64_t kStartsAhead = 32;  // rows whose beginnings are asked for; their entries come soon enough by themselves
constexpr int64_t kRowWork = 8;       // nanoseconds, about

// --- where rows lie -----------------------------------------------------------------------------------------------------------

template <class Length>
int64_t checked_total(const Length* lengths, int64_t count, int64_t most) {
    uint64_t sum = 0;
    bool outside = false;
    for (int64_t r = 0; r < count; ++r) {
        const uint64_t length = static_cast<uint64_t>(lengths[r]);
        outside |= length > static_cast<uint64_t>(most);
        sum += length;
    }
    require(!outside, "lengths", "must not be negative, nor more than there are entries");
    return static_cast<int64_t>(sum);
}

// Where each row begins, and where the last ends; the lengths must add up to num_entries. O(count), in parallel.
template <class Length>
Buffer<int64_t> row_starts(const Length* lengths, int64_t count, int64_t num_entries) {
    const int64_t num_chunks = (count + kLengthChunk - 1) / kLengthChunk;
    std::vector<int64_t> totals(static_cast<size_t>(num_chunks) + 1, 0);
    parallel_chunks(count, kLengthChunk, [&](int64_t begin, int64_t end) {
        totals[static_cast<size_t>(begin / kLengthChunk) + 1] = checked_total(lengths + begin, end - begin, num_entries);
    });
    for (size_t c = 1; c < totals.size(); ++c) totals[c] = checked_sum(totals[c], totals[c - 1]);
    require(totals.back() == num_entries, "lengths", "must add up to the number of entries");
    Buffer<int64_t> starts(count + 1);
    starts[count] = num_entries;
    parallel_chunks(count, kLengthChunk, [&](int64_t begin, int64_t end) {
        int64_t sum = totals[static_cast<size_t>(begin / kLengthChunk)];
        for (int64_t r = begin; r < end; ++r) {
            starts[r] = sum;
            sum += static_cast<int64_t>(lengths[r]);
        }
    });
    return starts;
}

// --- entries ------------------------------------------------------------------------------------------------------------------

// An array of entries, and what becomes of it.
struct Entries {
    const char* from;
    char* to;
    int64_t item;  // bytes
};

// --- all rows -----------------------------------------------------------------------------------------------------------------

struct Gathered {
    Buffer<int64_t> entry_ptr, indptr;
    std::vector<Buffer<uint8_t>> entries;
};

template <class Place, class Length>
class Gatherer {
public:
    Gatherer(const int64_t* batch_ptr, int64_t num_batches, const Place* places, const Length* lengths, int64_t num_entries)
        : batch_ptr_(batch_ptr), num_batches_(num_batches), places_(places), lengths_(lengths), num_entries_(num_entries),
          starts_(row_starts(lengths, batch_ptr[num_batches], num_entries)), spans_(row_spans(batch_ptr, num_batches)) {}

    // arrays: of num_entries entries each.
    Gathered gather(const std::vector<AnyIn>& arrays) {
        Gathered result = laid_out();
        std::vector<Entries> all;
        for (const AnyIn& array : arrays) {
            const int64_t item = static_cast<int64_t>(array.type().bytes);
            Buffer<uint8_t>& to = result.entries.emplace_back(checked_product(result.entry_ptr[num_batches_], item));
            all.push_back({static_cast<const char*>(array.data()), reinterpret_cast<char*>(to.data()), item});
        }
        parallel_spans(spans_, [&](int64_t number) { fill_span(number, all, result); });
        return result;
    }

private:
    const RowSpan& span(int64_t number) const { return spans_[static_cast<size_t>(number)]; }
    int64_t length(int64_t row) const { return static_cast<int64_t>(lengths_[places_[row]]); }
    int64_t start(int64_t row) const { return starts_[places_[row]]; }
    int64_t end(int64_t row) const { return starts_[static_cast<int64_t>(places_[row]) + 1]; }

    // Counts the entries of each span, and gives it its place.
    Gathered laid_out() {
        const int64_t num_rows = batch_ptr_[num_batches_];
        offsets_.resize(spans_.size());
        parallel_spans(spans_, [&](int64_t number) {
            const RowSpan& rows = span(number);
            require(in_range(places_ + rows.begin, rows.end - rows.begin, num_rows), "places", "a place is not below the number of rows");
            int64_t sum = 0;
            for (int64_t r = rows.begin; r < rows.end; ++r) sum += length(r);
            offsets_[static_cast<size_t>(number)] = sum;
        });
        Gathered result{Buffer<int64_t>(num_batches_ + 1), Buffer<int64_t>(checked_sum(num_rows, num_batches_)), {}};
        std::fill_n(result.entry_ptr.data(), num_batches_ + 1, int64_t(0));
        for (size_t number = 0; number < spans_.size(); ++number) {
            int64_t& entries = result.entry_ptr[spans_[number].batch + 1];
            const int64_t before = entries;
            entries = checked_sum(entries, std::exchange(offsets_[number], before));
        }
        for (int64_t i = 0; i < num_batches_; ++i) {
            result.indptr[batch_ptr_[i] + i] = 0;
            result.entry_ptr[i + 1] = checked_sum(result.entry_ptr[i], result.entry_ptr[i + 1]);
        }
        return result;
    }

    // Row pointers and entries of a span.
    void fill_span(int64_t number, const std::vector<Entries>& all, Gathered& result) const {
        const RowSpan& rows = span(number);
        int64_t* const pointers = result.indptr.data() + rows.batch + 1;
        const int64_t base = result.entry_ptr[rows.batch];
        const RunFunctions& functions = run_functions();
        int64_t offset = offsets_[static_cast<size_t>(number)];
        for (int64_t r = rows.begin; r < rows.end; ++r) {
            if (r + kStartsAhead < rows.end) SPSAMPLE_PREFETCH(starts_.data() + places_[r + kStartsAhead]);
            const int64_t from = start(r), count = end(r) - from, to = base + offset;
            for (const Entries& a : all) functions.copy(a.to + to * a.item, a.from + from * a.item, count * a.item);
            pointers[r] = offset += count;
        }
    }

    const int64_t* batch_ptr_;
    int64_t num_batches_;
    const Place* places_;
    const Length* lengths_;
    int64_t num_entries_;
    Buffer<int64_t> starts_;
    std::vector<RowSpan> spans_;
    std::vector<int64_t> offsets_;  // of each span's entries in its batch
};

// --- binding ------------------------------------------------------------------------------------------------------------------

// Calls body(lengths) with the array's own type.
template <class Body>
decltype(auto) with_lengths(const AnyIn& lengths, Body&& body) {
    if (lengths.is<uint8_t>()) return body(static_cast<const uint8_t*>(lengths.data()));
    if (lengths.is<uint16_t>()) return body(static_cast<const uint16_t*>(lengths.data()));
    if (lengths.is<int32_t>()) return body(static_cast<const int32_t*>(lengths.data()));
    require(lengths.is<int64_t>(), "lengths", "must be uint8, uint16, int32 or int64");
    return body(static_cast<const int64_t*>(lengths.data()));
}

// (entry_ptr, indptr, [each array of entries]). places: m, lengths: m, entries: arrays of as many elements as the lengths add up to.
// O(m + bytes of the entries). Memory beside the result: 8 bytes for each row.
template <class Place>
nb::tuple gather_rows(
    const In<int64_t>& batch_ptr, const In<Place>& places, const AnyIn& lengths, const std::vector<AnyIn>& entries) {
    const int64_t num_rows = static_cast<int64_t>(places.size()), num_batches = static_cast<int64_t>(batch_ptr.size()) - 1;
    require_pointers(batch_ptr, num_rows, "batch_ptr");
    require(lengths.size() == places.size(), "lengths", "needs one element per row");
    require(!entries.empty(), "entries", "needs at least one array");
    for (const AnyIn& array : entries) require(array.size() == entries[0].size(), "entries", "must be of one length");
    const int64_t num_entries = static_cast<int64_t>(entries[0].size());
    Gathered gathered = with_lengths(lengths, [&](const auto* of_rows) {
        nb::gil_scoped_release release;
        const ThreadsFor threads(checked_sum(checked_product(kRowWork, num_rows), num_entries));
        using Length = std::decay_t<decltype(*of_rows)>;
        return Gatherer<Place, Length>(batch_ptr.data(), num_batches, places.data(), of_rows, num_entries).gather(entries);
    });
    nb::list arrays;
    const int64_t count = gathered.entry_ptr[num_batches];
    for (size_t a = 0; a < entries.size(); ++a) arrays.append(to_numpy(std::move(gathered.entries[a]), entries[a].type(), {count}));
    return nb::make_tuple(to_numpy(std::move(gathered.entry_ptr)), to_numpy(std::move(gathered.indptr)), arrays);
}

template <class Place>
void bind_for(nb::module_& m) {
    m.def("gather_rows", &gather_rows<Place>, nb::arg("batch_ptr"), nb::arg("places").noconvert(), nb::arg("lengths"),
          nb::arg("entries"), "(entry_ptr, indptr, entries) of rows that lie in another order.");
}

}  // namespace

void bind_routing_gather(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
