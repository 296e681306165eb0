// One bucket of edges in memory: sorted by (target, source, position), and written where the store wants it.
#include <vector>

#include "bindings.h"
#include "edge_records.h"

namespace spsample {
namespace {

constexpr int kDigit = 11;           // bits; 2048 counters and write positions stay in the first cache
constexpr int64_t kSmall = 1 << 10;  // fewer words are sorted by comparisons

int bits_of(uint64_t value) {
    int bits = 0;
    for (; value > 0; value >>= 1) ++bits;
    return bits;
}

// Sorts words, distinct in their low `low` bits and ascending in those, by their next `bits` bits: least significant digit first, which is
// stable; a digit that all words share costs nothing. Returns where the result is, `words` or `other`. O(count * bits / kDigit).
template <class Word>
Word* radix_sort(Word* words, Word* other, int64_t count, int low, int bits) {
    if (count < kSmall) {
        std::sort(words, words + count);
        return words;
    }
    const int passes = (bits + kDigit - 1) / kDigit;
    const int width = passes == 0 ? 0 : (bits + passes - 1) / passes;
    const int64_t radix = int64_t(1) << width;
    const uint64_t mask = low_bits(width);
    std::vector<int64_t> counts(static_cast<size_t>(passes * radix), 0);
    for (int64_t i = 0; i < count; ++i) {
        Word rest = words[i] >> low;
        for (int p = 0; p < passes; ++p, rest >>= width) ++counts[static_cast<size_t>(p * radix) + static_cast<size_t>(rest & mask)];
    }
    for (int p = 0; p < passes; ++p) {
        int64_t* const at = counts.data() + p * radix;
        const int shift = low + p * width;
        if (at[static_cast<uint64_t>(words[0] >> shift) & mask] == count) continue;
        int64_t sum = 0;
        for (int64_t d = 0; d < radix; ++d) sum += std::exchange(at[d], sum);
        for (int64_t i = 0; i < count; ++i) {
            const Word word = words[i];
            other[at[static_cast<uint64_t>(word >> shift) & mask]++] = word;
        }
        std::swap(words, other);
    }
    return words;
}

// How edges that are the same pair of vertices become one.
enum class Merge { none, first, sum, max };

// The edges of a bucket, sorted when it is made. A word is (key - base_key) << ordinal_bits | ordinal, the ordinal being the place of the
// record in the bucket, so that ascending words are the order of the store.
template <class Word>
class SortedEdges {
public:
    SortedEdges(int64_t count, int key_bits, int ordinal_bits) : count_(count), key_bits_(key_bits), ordinal_bits_(ordinal_bits) {}

    // Reads the records and sorts. O(count * key_bits / kDigit).
    template <class H>
    void fill(H, const uint8_t* records, int64_t record_bytes, int position_bits, uint64_t base_key) {
        Buffer<Word> words(count_), other(count_);
        uint64_t outside = 0;
        for (int64_t i = 0; i < count_; ++i) {
            const uint64_t key = static_cast<uint64_t>(H::load(records + i * record_bytes) >> position_bits) - base_key;
            outside |= key & ~low_bits(key_bits_);
            words[i] = (Word(key) << ordinal_bits_) | static_cast<Word>(i);
        }
        require(outside == 0, "records", "a key is beyond the bucket");
        if (radix_sort(words.data(), other.data(), count_, ordinal_bits_, key_bits_) != words.data()) std::swap(words, other);
        words_ = std::move(words);
    }

    uint64_t key(int64_t i) const { return static_cast<uint64_t>(words_[i] >> ordinal_bits_); }
    int64_t ordinal(int64_t i) const { return static_cast<int64_t>(static_cast<uint64_t>(words_[i]) & low_bits(ordinal_bits_)); }
    int64_t count() const { return count_; }

    int64_t distinct() const {
        int64_t result = count_ > 0;
        for (int64_t i = 1; i < count_; ++i) result += key(i) != key(i - 1);
        return result;
    }

private:
    int64_t count_;
    int key_bits_, ordinal_bits_;
    Buffer<Word> words_;
};

template <class T>
T load_weight(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

class EdgeBucket {
public:
    // `records`: those of segments of chunks, one after the other: segment j from segment_ptr[j] on, its positions counted from
    // segment_first[j]. The keys lie in [base_key, base_key + 2^key_bits). The array of records must live as long as the bucket.
    EdgeBucket(const In<uint8_t>& records, int head_bytes, int weight_bytes, int position_bits, const In<int64_t>& segment_ptr,
               const In<int64_t>& segment_first, uint64_t base_key, int key_bits)
        : records_(records), record_bytes_(head_bytes + weight_bytes), head_bytes_(head_bytes), weight_bytes_(weight_bytes),
          base_key_(base_key) {
        require(weight_bytes == 0 || weight_bytes == 4 || weight_bytes == 8, "weight_bytes", "must be 0, 4 or 8");
        require(head_bytes >= 4 && head_bytes <= 12, "head_bytes", "must be from 4 to 12");
        require(position_bits >= 0 && position_bits <= 32 && key_bits >= 0 && key_bits <= 64, "key_bits", "must be at most 64");
        const int64_t count = static_cast<int64_t>(records.size()) / record_bytes_;
        require(count * record_bytes_ == static_cast<int64_t>(records.size()), "records", "no whole number of records");
        require(count < (int64_t(1) << 32), "records", "must be fewer than 2^32");
        require_pointers(segment_ptr, count, "segment_ptr");
        require(segment_first.size() + 1 == segment_ptr.size(), "segment_first", "needs one element per segment");
        const int ordinal_bits = bits_of(static_cast<uint64_t>(std::max<int64_t>(count - 1, 0)));
        const nb::gil_scoped_release release;
        with_head(head_bytes, [&](auto head) {
            if (position_bits > 0) take_positions(head, segment_ptr, segment_first, position_bits);
            const auto fill = [&](auto& edges) { edges.emplace(count, key_bits, ordinal_bits).fill(head, records.data(), record_bytes_, position_bits, base_key); };
            if (key_bits + ordinal_bits <= 64) {
                fill(narrow_);
            } else {
                fill(wide_);
            }
        });
    }

    int64_t count() const { return static_cast<int64_t>(records_.size()) / record_bytes_; }

    // Pairs of vertices. O(count).
    int64_t distinct() const {
        const nb::gil_scoped_release release;
        return narrow_ ? narrow_->distinct() : wide_->distinct();
    }

    // Writes indices, edge ids and weights (each where it is wanted) in order; returns how many edges there are after merging. For the
    // rows from first_row on, row_ends[row - first_row] becomes offset + the edges up to the end of the row. O(count + rows).
    template <class Index>
    int64_t write(InOut<Index> indices, std::optional<InOut<int64_t>> edge_ids, nb::handle data, InOut<int64_t> row_ends,
                  int64_t first_row, int64_t offset, int source_bits, int merge) {
        require(merge >= 0 && merge <= 3, "merge", "must be in [0, 3]");
        require(source_bits >= 0 && source_bits < 64, "source_bits", "must be in [0, 64)");
        Targets<Index> to{indices.data(), edge_ids ? edge_ids->data() : nullptr, static_cast<int64_t>(indices.size()),
                          row_ends.data(), static_cast<int64_t>(row_ends.size()), first_row, offset, source_bits};
        if (edge_ids) require(edge_ids->size() == indices.size(), "edge_ids", "needs one element per entry of indices");
        require(!edge_ids || positions_.size() == count(), "edge_ids", "the records hold no positions");
        require(data.is_none() == (weight_bytes_ == 0), "data", "must be given where the records have weights, and only there");
        if (weight_bytes_ == 0) return run<Index, float>(to, nullptr, merge);
        return weight_bytes_ == 4 ? run_weighted<Index, float>(to, data, merge) : run_weighted<Index, double>(to, data, merge);
    }

private:
    template <class Index>
    struct Targets {
        Index* indices;
        int64_t* edge_ids;
        int64_t room;
        int64_t* row_ends;
        int64_t num_rows;
        int64_t first_row;
        int64_t offset;
        int source_bits;
    };

    template <class H>
    void take_positions(H, const In<int64_t>& segment_ptr, const In<int64_t>& segment_first, int position_bits) {
        positions_ = Buffer<int64_t>(count());
        const uint64_t mask = low_bits(position_bits);
        for (size_t j = 0; j + 1 < segment_ptr.size(); ++j) {
            for (int64_t i = segment_ptr.data()[j]; i < segment_ptr.data()[j + 1]; ++i) {
                const uint64_t low = static_cast<uint64_t>(H::load(records_.data() + i * record_bytes_)) & mask;
                positions_[i] = segment_first.data()[j] + static_cast<int64_t>(low);
            }
        }
    }

    template <class Index, class T>
    int64_t run_weighted(const Targets<Index>& to, nb::handle data, int merge) {
        InOut<T> values;
        require(values.look_at(data.ptr(), false) && static_cast<int64_t>(values.size()) == to.room, "data",
                "needs one element of the weights' type per entry of indices");
        return run<Index, T>(to, values.data(), merge);
    }

    template <class Index, class T>
    int64_t run(const Targets<Index>& to, T* data, int merge) {
        const nb::gil_scoped_release release;
        const auto with = [&](const auto& edges) {
            return merge == 0 ? copy<Index, T>(edges, to, data) : merged<Index, T>(edges, to, data, static_cast<Merge>(merge));
        };
        return narrow_ ? with(*narrow_) : with(*wide_);
    }

    // Where each row ends, as the entries go by.
    template <class Index>
    class RowEnds {
    public:
        explicit RowEnds(const Targets<Index>& to) : to_(to) {}
        void reach(int64_t row, int64_t written) {
            for (; row_ < row && row_ < to_.num_rows; ++row_) to_.row_ends[row_] = to_.offset + written;
        }

    private:
        const Targets<Index>& to_;
        int64_t row_ = 0;
    };

    template <class Index, class T, class Edges>
    int64_t copy(const Edges& edges, const Targets<Index>& to, T* data) const {
        require(edges.count() <= to.room, "indices", "too short");
        const DefaultFloatEnvironment environment;
        const uint64_t mask = low_bits(to.source_bits);
        RowEnds<Index> ends(to);
        for (int64_t i = 0; i < edges.count(); ++i) {
            const uint64_t key = edges.key(i) + base_key_;
            ends.reach(static_cast<int64_t>(key >> to.source_bits) - to.first_row, i);
            to.indices[i] = static_cast<Index>(key & mask);
            if (to.edge_ids || data) {
                const int64_t ordinal = edges.ordinal(i);
                if (to.edge_ids) to.edge_ids[i] = positions_[ordinal];
                if (data) data[i] = load_weight<T>(weight_at(ordinal));
            }
        }
        ends.reach(to.num_rows, edges.count());
        return edges.count();
    }

    // Edges of one key become one, with the id of the first. Sums are made in double, in the order of the input.
    template <class Index, class T, class Edges>
    int64_t merged(const Edges& edges, const Targets<Index>& to, T* data, Merge merge) const {
        const DefaultFloatEnvironment environment;
        const uint64_t mask = low_bits(to.source_bits);
        RowEnds<Index> ends(to);
        int64_t written = 0;
        for (int64_t i = 0; i < edges.count(); ++written) {
            require(written < to.room, "indices", "too short");
            const uint64_t own = edges.key(i), key = own + base_key_;
            ends.reach(static_cast<int64_t>(key >> to.source_bits) - to.first_row, written);
            to.indices[written] = static_cast<Index>(key & mask);
            if (to.edge_ids) to.edge_ids[written] = positions_[edges.ordinal(i)];
            double weight = data ? load_weight<T>(weight_at(edges.ordinal(i))) : 0.0;
            for (++i; i < edges.count() && edges.key(i) == own; ++i) {
                if (!data || merge == Merge::first) continue;
                const double next = load_weight<T>(weight_at(edges.ordinal(i)));
                weight = merge == Merge::sum ? weight + next : std::max(weight, next);
            }
            if (data) data[written] = static_cast<T>(weight);
        }
        ends.reach(to.num_rows, written);
        return written;
    }

    const uint8_t* weight_at(int64_t ordinal) const { return records_.data() + ordinal * record_bytes_ + head_bytes_; }

    In<uint8_t> records_;
    int64_t record_bytes_;
    int head_bytes_, weight_bytes_;
    uint64_t base_key_;
    Buffer<int64_t> positions_;
    std::optional<SortedEdges<uint64_t>> narrow_;
    std::optional<SortedEdges<uint128_t>> wide_;
};

}  // namespace

void bind_edge_bucket(nb::module_& m) {
    nb::class_<EdgeBucket>(m, "EdgeBucket", "Records of edges, sorted by (target, source, position).")
        .def(nb::init<const In<uint8_t>&, int, int, int, const In<int64_t>&, const In<int64_t>&, uint64_t, int>(),
             nb::arg("records").noconvert(), nb::arg("head_bytes"), nb::arg("weight_bytes"), nb::arg("position_bits"),
             nb::arg("segment_ptr"), nb::arg("segment_first"), nb::arg("base_key"), nb::arg("key_bits"), nb::keep_alive<1, 2>())
        .def("count", &EdgeBucket::count, "Records.")
        .def("distinct", &EdgeBucket::distinct, "Pairs of vertices.")
        .def("write", &EdgeBucket::write<int32_t>, nb::arg("indices").noconvert(), nb::arg("edge_ids").none(), nb::arg("data").none(),
             nb::arg("row_ends"), nb::arg("first_row"), nb::arg("offset"), nb::arg("source_bits"), nb::arg("merge"),
             "Write the entries in order and the ends of the rows; returns the number of entries.")
        .def("write", &EdgeBucket::write<int64_t>, nb::arg("indices").noconvert(), nb::arg("edge_ids").none(), nb::arg("data").none(),
             nb::arg("row_ends"), nb::arg("first_row"), nb::arg("offset"), nb::arg("source_bits"), nb::arg("merge"));
}

}  // namespace spsample
