// Edges into buckets: how many there are, where each goes, and the records of a chunk grouped by bucket.
//
// One call does one chunk on the thread that calls it, without the GIL: chunks are what threads share. Source: the distribution
// sweep of external bucket sort (D. Knuth, TAOCP 3, 5.4.8), with exact counts in place of samples.
#include <vector>

#include "bindings.h"
#include "edge_records.h"

namespace spsample {
namespace {

// The edges of a chunk: source i at sources[i * step], target i likewise.
template <class Index>
struct Edges {
    const Index* sources;
    const Index* targets;
    int64_t step;
    int64_t count;

    Edges(const In<Index>& from, const In<Index>& to, int64_t stride, int64_t size)
        : sources(from.data()), targets(to.data()), step(stride), count(size) {
        require(stride >= 1 && size >= 0, "step", "must be at least 1");
        const int64_t needed = size == 0 ? 0 : checked_sum(checked_product(size - 1, stride), 1);
        require(static_cast<int64_t>(from.size()) >= needed && static_cast<int64_t>(to.size()) >= needed, "sources",
                "fewer ids than edges");
    }

    // body(source, target, i) for each edge that is kept, and for its reverse where `mirror`.
    template <class Body>
    void visit(bool mirror, bool drop_loops, Body&& body) const {
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t s = static_cast<uint64_t>(sources[i * step]), t = static_cast<uint64_t>(targets[i * step]);
            if (s == t && drop_loops) continue;
            body(s, t, static_cast<uint64_t>(i));
            if (mirror && s != t) body(t, s, static_cast<uint64_t>(i));
        }
    }
};

// (smallest, largest) of all ids; (0, -1) without any. O(count).
template <class Index>
std::pair<int64_t, int64_t> edge_limits(const In<Index>& sources, const In<Index>& targets, int64_t step, int64_t count) {
    const Edges<Index> edges(sources, targets, step, count);
    if (count == 0) return {0, -1};
    const nb::gil_scoped_release release;
    Index least = edges.sources[0], most = least;
    for (int64_t i = 0; i < count; ++i) {
        const Index s = edges.sources[i * step], t = edges.targets[i * step];
        least = std::min(least, std::min(s, t));
        most = std::max(most, std::max(s, t));
    }
    return {least, most};
}

// Adds to bins[target >> shift]. Every id must be in [0, len(bins) << shift). O(count).
template <class Index>
void edge_histogram(const In<Index>& sources, const In<Index>& targets, int64_t step, int64_t count, InOut<int64_t> bins, int shift,
                    bool mirror, bool drop_loops) {
    const Edges<Index> edges(sources, targets, step, count);
    int64_t* const counts = bins.data();
    const uint64_t num_bins = bins.size();
    require(shift >= 0 && shift < 64, "shift", "must be in [0, 64)");
    bool inside = true;
    {
        const nb::gil_scoped_release release;
        edges.visit(mirror, drop_loops, [&](uint64_t, uint64_t t, uint64_t) {
            const uint64_t bin = t >> shift;
            if (bin < num_bins) {
                ++counts[bin];
            } else {
                inside = false;
            }
        });
    }
    require(inside, "targets", "an id is beyond the bins");
}

void check_table(const In<uint32_t>& bucket_of, int64_t num_buckets) {
    uint32_t most = 0;
    for (size_t i = 0; i < bucket_of.size(); ++i) most = std::max(most, bucket_of.data()[i]);
    require(bucket_of.size() > 0 && int64_t(most) < num_buckets, "bucket_of", "names a bucket that is none");
}

// Prefix sums of `counts`, one element more than there are buckets.
Buffer<int64_t> offsets_of(const std::vector<int64_t>& counts) {
    Buffer<int64_t> offsets(static_cast<int64_t>(counts.size()) + 1);
    offsets[0] = 0;
    for (size_t b = 0; b < counts.size(); ++b) offsets[static_cast<int64_t>(b) + 1] = offsets[static_cast<int64_t>(b)] + counts[b];
    return offsets;
}

std::vector<uint8_t*> places(uint8_t* records, const Buffer<int64_t>& offsets, int64_t size) {
    std::vector<uint8_t*> at(static_cast<size_t>(offsets.size() - 1));
    for (size_t b = 0; b < at.size(); ++b) at[b] = records + offsets[static_cast<int64_t>(b)] * size;
    return at;
}

// (records, offsets): the records of a chunk by bucket, in the order of the edges within each; bucket b has those from offsets[b] to
// offsets[b + 1]. The bucket of a target is bucket_of[target >> shift] and starts at first_target[bucket]. An edge is followed by its
// reverse where `mirror` (a loop is not). Sources must be below 2^source_bits and positions below 2^position_bits (0: none are kept).
// O(count + buckets).
template <class Index>
nb::tuple edge_partition(const In<Index>& sources, const In<Index>& targets, int64_t step, int64_t count, const std::optional<AnyIn>& weights,
                         const In<uint32_t>& bucket_of, const In<int64_t>& first_target, int shift, int source_bits, int position_bits,
                         int head_bytes, bool mirror, bool drop_loops) {
    const Edges<Index> edges(sources, targets, step, count);
    require(shift >= 0 && shift < 64 && source_bits >= 0 && source_bits < 64, "shift", "must be in [0, 64), source_bits too");
    require(position_bits >= 0 && position_bits <= 32, "position_bits", "must be in [0, 32]");
    require(position_bits == 0 || count <= (int64_t(1) << position_bits), "position_bits", "too few for the edges");
    check_table(bucket_of, static_cast<int64_t>(first_target.size()));
    if (weights) require(static_cast<int64_t>(weights->size()) == count, "weights", "needs one element per edge");
    const int64_t weight_bytes = weights ? static_cast<int64_t>(weights->type().bytes) : 0;
    require(weight_bytes == 0 || weight_bytes == 4 || weight_bytes == 8, "weights", "must be float32 or float64");
    const uint8_t* const weight = weights ? static_cast<const uint8_t*>(weights->data()) : nullptr;
    const uint32_t* const table = bucket_of.data();
    const int64_t* const first = first_target.data();
    const uint64_t kept = position_bits == 0 ? 0 : low_bits(position_bits), limit = bucket_of.size();

    Buffer<int64_t> offsets;
    Buffer<uint8_t> records;
    {
        const nb::gil_scoped_release release;
        std::vector<int64_t> counts(first_target.size(), 0);
        bool inside = true;
        edges.visit(mirror, drop_loops, [&](uint64_t s, uint64_t t, uint64_t) {
            const uint64_t bin = t >> shift;
            inside &= bin < limit && (s >> source_bits) == 0;
            ++counts[table[bin < limit ? bin : 0]];
        });
        require(inside, "edges", "an id is out of range");
        offsets = offsets_of(counts);
        const int64_t size = head_bytes + weight_bytes, total = offsets[offsets.size() - 1];
        records = Buffer<uint8_t>(checked_product(total, size));
        std::vector<uint8_t*> at = places(records.data(), offsets, size);
        with_head(head_bytes, [&](auto head) {
            using H = decltype(head);
            const auto put = [&](uint64_t s, uint64_t t, uint64_t i) {
                const uint32_t b = table[t >> shift];
                uint8_t* const to = at[b];
                at[b] = to + size;
                const uint64_t key = ((t - static_cast<uint64_t>(first[b])) << source_bits) | s;
                H::store(to, (typename H::Word(key) << position_bits) | (i & kept));
                return to + H::bytes;
            };
            if (weight_bytes == 0) {
                edges.visit(mirror, drop_loops, put);
            } else if (weight_bytes == 4) {
                edges.visit(mirror, drop_loops, [&](uint64_t s, uint64_t t, uint64_t i) { std::memcpy(put(s, t, i), weight + 4 * i, 4); });
            } else {
                edges.visit(mirror, drop_loops, [&](uint64_t s, uint64_t t, uint64_t i) { std::memcpy(put(s, t, i), weight + 8 * i, 8); });
            }
        });
    }
    return nb::make_tuple(to_numpy(std::move(records)), to_numpy(std::move(offsets)));
}

// The records of one bucket, whose keys are looked at again.
struct Records {
    const uint8_t* data;
    int64_t size;
    int64_t count;
    int position_bits;
    uint64_t base;

    Records(const In<uint8_t>& bytes, int record_bytes, int head_bytes, int bits, uint64_t base_key)
        : data(bytes.data()), size(record_bytes), count(0), position_bits(bits), base(base_key) {
        require(record_bytes >= head_bytes && head_bytes > 0, "record_bytes", "must be at least head_bytes");
        require(bits >= 0 && bits <= 32, "position_bits", "must be in [0, 32]");
        require(bytes.size() % static_cast<size_t>(record_bytes) == 0, "records", "no whole number of records");
        count = static_cast<int64_t>(bytes.size()) / size;
    }

    // body(key - base, record) for each.
    template <class H, class Body>
    void visit(H, Body&& body) const {
        for (int64_t i = 0; i < count; ++i) {
            const uint8_t* const record = data + i * size;
            body(static_cast<uint64_t>(H::load(record) >> position_bits) - base, record);
        }
    }
};

// Adds to bins[(key - base_key) >> shift]. O(records).
void record_histogram(const In<uint8_t>& bytes, int record_bytes, int head_bytes, int position_bits, uint64_t base_key, int shift,
                      InOut<int64_t> bins) {
    const Records records(bytes, record_bytes, head_bytes, position_bits, base_key);
    int64_t* const counts = bins.data();
    const uint64_t num_bins = bins.size();
    require(shift >= 0 && shift < 64, "shift", "must be in [0, 64)");
    bool inside = true;
    {
        const nb::gil_scoped_release release;
        with_head(head_bytes, [&](auto head) {
            records.visit(head, [&](uint64_t key, const uint8_t*) {
                const uint64_t bin = key >> shift;
                inside &= bin < num_bins;
                ++counts[bin < num_bins ? bin : 0];
            });
        });
    }
    require(inside, "records", "a key is beyond the bins");
}

// (records, offsets): the same records by sub-bucket, bucket_of[(key - base_key) >> shift], in their order within each.
// O(records + buckets).
nb::tuple record_partition(const In<uint8_t>& bytes, int record_bytes, int head_bytes, int position_bits, uint64_t base_key, int shift,
                           const In<uint32_t>& bucket_of, int64_t num_buckets) {
    const Records from(bytes, record_bytes, head_bytes, position_bits, base_key);
    require(shift >= 0 && shift < 64, "shift", "must be in [0, 64)");
    check_table(bucket_of, num_buckets);
    const uint32_t* const table = bucket_of.data();
    const uint64_t limit = bucket_of.size();
    Buffer<int64_t> offsets;
    Buffer<uint8_t> records;
    {
        const nb::gil_scoped_release release;
        std::vector<int64_t> counts(static_cast<size_t>(num_buckets), 0);
        bool inside = true;
        with_head(head_bytes, [&](auto head) {
            from.visit(head, [&](uint64_t key, const uint8_t*) {
                inside &= (key >> shift) < limit;
                ++counts[table[(key >> shift) < limit ? key >> shift : 0]];
            });
            require(inside, "records", "a key is beyond the table");
            offsets = offsets_of(counts);
            records = Buffer<uint8_t>(from.count * from.size);
            std::vector<uint8_t*> at = places(records.data(), offsets, from.size);
            from.visit(head, [&](uint64_t key, const uint8_t* record) {
                uint8_t*& to = at[table[key >> shift]];
                std::memcpy(to, record, static_cast<size_t>(from.size));
                to += from.size;
            });
        });
    }
    return nb::make_tuple(to_numpy(std::move(records)), to_numpy(std::move(offsets)));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("edge_limits", &edge_limits<Index>, nb::arg("sources").noconvert(), nb::arg("targets").noconvert(), nb::arg("step"),
          nb::arg("count"), "Smallest and largest id of a chunk of edges.");
    m.def("edge_histogram", &edge_histogram<Index>, nb::arg("sources").noconvert(), nb::arg("targets").noconvert(), nb::arg("step"),
          nb::arg("count"), nb::arg("bins"), nb::arg("shift"), nb::arg("mirror"), nb::arg("drop_loops"),
          "Counts edges by ranges of targets.");
    m.def("edge_partition", &edge_partition<Index>, nb::arg("sources").noconvert(), nb::arg("targets").noconvert(), nb::arg("step"),
          nb::arg("count"), nb::arg("weights").none(), nb::arg("bucket_of"), nb::arg("first_target"), nb::arg("shift"),
          nb::arg("source_bits"), nb::arg("position_bits"), nb::arg("head_bytes"), nb::arg("mirror"), nb::arg("drop_loops"),
          "Records of a chunk of edges, grouped by bucket, and where each bucket's begin.");
}

}  // namespace

void bind_edge_partition(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    m.def("record_histogram", &record_histogram, nb::arg("records"), nb::arg("record_bytes"), nb::arg("head_bytes"),
          nb::arg("position_bits"), nb::arg("base_key"), nb::arg("shift"), nb::arg("bins"), "Counts records by ranges of keys.");
    m.def("record_partition", &record_partition, nb::arg("records"), nb::arg("record_bytes"), nb::arg("head_bytes"),
          nb::arg("position_bits"), nb::arg("base_key"), nb::arg("shift"), nb::arg("bucket_of"), nb::arg("num_buckets"),
          "The same records grouped by ranges of keys, and where each group begins.");
}

}  // namespace spsample
