// DiskRows: rows of features by vertex id from a file, with the pages in memory that are wanted soonest, and no others.
//
// A gather of a batch finds the pages it wants, hands out rows of those in memory, and reads the others in the order of the file, several
// reads at a time. A read is of whole blocks, so it brings pages that were not asked for: they are candidates for memory like all others.
#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include <nanobind/stl/string.h>

#include "bindings.h"
#include "disk_file.h"
#include "disk_rows.h"
#include "features_decoders.h"
#include "page_choice.h"
#include "page_sets.h"

namespace spsample {
namespace {

// Memory that is taken from the system page by page, as it is written to, and given back at once.
class Mapping {
public:
    explicit Mapping(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
        if (bytes_ == 0) return;
        void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        memory_ = static_cast<char*>(mapped);
#if defined(MADV_HUGEPAGE)
        madvise(memory_, bytes_, MADV_HUGEPAGE);  // a hint
#endif
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (memory_) munmap(memory_, bytes_);
    }
    char* data() const { return memory_; }

    // Has the system give the pages from `begin` to `end` now. Threads that write to one huge page for the first time would each be given a
    // whole one, of which all but one are thrown away again: tens of megabytes for a moment.
    void touch(int64_t begin, int64_t end) const {
        for (int64_t b = begin / kPage * kPage; b < end; b += kPage) *static_cast<volatile char*>(memory_ + b) = memory_[b];
    }

private:
    static constexpr int64_t kPage = 4096;
    size_t bytes_;
    char* memory_ = nullptr;
};

// How rows are written: converted to float or as they are.
struct RowWriter {
    DecodeRow decode;
    const float* scale;
    int64_t dim, row_bytes, out_bytes;
    char* out;
    const int64_t* at;

    void write(const char* row, int64_t i) const { decode(row, dim, scale, out + (at ? at[i] : i) * out_bytes); }
};

// For each page that is not in memory, which ids of the batch want rows of it: lists, by the place of the page among those.
struct WantedRows {
    std::vector<int32_t> first, next;

    template <class Index>
    WantedRows(const PlacedSet& missing, const PageLayout& layout, const Index* ids, int64_t count)
        : first(static_cast<size_t>(missing.size()), -1), next(missing.size() > 0 ? static_cast<size_t>(count) : 0) {
        if (missing.size() == 0) return;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t page = layout.page_of(ids[i]);
            if (!missing.has(page)) continue;
            int32_t& head = first[missing.place_of(page)];
            next[static_cast<size_t>(i)] = head;
            head = static_cast<int32_t>(i);
        }
    }
};

// Opens once; threads wait until it has.
class Gate {
public:
    void open() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_open_ = true;
        }
        opened_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        opened_.wait(lock, [&] { return is_open_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool is_open_ = false;
};

// Threads that wait for the disk most of their time: those of workers.h are for computing. None outlives the object; where the system
// refuses one, fewer work.
class ReadingThreads {
public:
    template <class Work>
    ReadingThreads(int64_t count, Work&& work) {
        threads_.reserve(static_cast<size_t>(std::max<int64_t>(count, 0)));
        try {
            for (int64_t t = 0; t < count; ++t) threads_.emplace_back(work, t);
        } catch (...) {
        }
    }
    ReadingThreads(const ReadingThreads&) = delete;
    ReadingThreads& operator=(const ReadingThreads&) = delete;
    ~ReadingThreads() {
        for (std::thread& thread : threads_) thread.join();
    }

private:
    std::vector<std::thread> threads_;
};

// What may be held in memory.
struct DiskLimits {
    int64_t frames;         // pages in memory
    int64_t readers;        // reads at a time
    int64_t buffer_blocks;  // of a read
    int64_t known_batches;  // whose pages are remembered
};

struct DiskCounts {
    int64_t hits = 0, misses = 0, reads = 0, read_bytes = 0;
};

class DiskRows {
public:
    DiskRows(const std::string& path, bool direct, FileState opened, const PageLayout& layout, ElementType type, const DiskLimits& limits)
        : file_(path, direct, opened), layout_(layout), type_(type), limits_(limits), frames_(checked_product(limits.frames, layout.page_bytes())),
          buffers_(checked_product(limits.readers, limits.buffer_blocks * DiskFile::kBlock)), known_(limits.known_batches),
          uses_(layout.num_pages()), wanted_(layout.num_pages()), reach_(layout.num_pages()), missing_(layout.num_pages()),
          resident_(layout.num_pages()), kept_(layout.num_pages()), frame_of_(static_cast<size_t>(limits.frames)),
          next_frame_of_(static_cast<size_t>(limits.frames)) {
        buffers_.touch(0, limits.readers * buffer_bytes());
    }

    bool direct() const { return file_.direct(); }
    int64_t known() const { return known_.size(); }

    DiskCounts counts() const {
        const std::lock_guard<std::mutex> lock(gathering_);
        return counts_;
    }
    void reset_counts() {
        const std::lock_guard<std::mutex> lock(gathering_);
        counts_ = {};
    }

    template <class Index>
    bool announce(const In<Index>& ids) {
        nb::gil_scoped_release release;
        if (!known_.has_room()) return false;
        PageSet pages(layout_.num_pages());
        add_pages(ids, pages);
        return known_.announce(std::move(pages));
    }

    void forget() { known_.forget(); }

    template <class Index>
    void gather(const In<Index>& ids, const char* form, const std::optional<In<float>>& scale, const AnyInOut& out, const std::optional<In<int64_t>>& at) {
        const int64_t count = static_cast<int64_t>(ids.size()), dim = layout_.row_bytes / static_cast<int64_t>(type_.bytes);
        const auto [decode, type] = row_decoder(form, type_, dim, scale ? scale->size() : 0);
        require(out.type() == type, "out", "has another type");
        require(count <= std::numeric_limits<int32_t>::max(), "ids", "are more than 2^31");
        const int64_t places = dim > 0 ? static_cast<int64_t>(out.size()) / dim : 0;
        require(at ? static_cast<int64_t>(at->size()) == count : places == count, "out", "needs one row per id");
        const RowWriter writer{decode, scale ? scale->data() : nullptr, dim, layout_.row_bytes, dim * static_cast<int64_t>(type.bytes),
                               static_cast<char*>(out.data()), at ? at->data() : nullptr};
        nb::gil_scoped_release release;
        require(!at || all_below(at->data(), count, places), "at", "a place is outside `out`");
        const std::lock_guard<std::mutex> lock(gathering_);
        gather_now(ids, count, writer);
    }

private:
    template <class Index>
    void add_pages(const In<Index>& ids, PageSet& pages) const {
        const int64_t count = static_cast<int64_t>(ids.size());
        if (!all_below(ids.data(), count, layout_.num_rows)) throw std::out_of_range("ids: outside the rows");
        for (int64_t i = 0; i < count; ++i) pages.add(layout_.page_of(ids.data()[i]));
    }

    template <class Index>
    void gather_now(const In<Index>& ids, int64_t count, const RowWriter& writer) {
        file_.require_unchanged();
        wanted_.clear();
        add_pages(ids, wanted_);
        known_.reach(wanted_);
        uses_.add(wanted_);
        for (size_t i = 0; i < wanted_.num_words(); ++i) missing_.set_word(i, wanted_.word(i) & ~resident_.word(i));
        missing_.place();
        const std::vector<BlockRun> runs = runs_of(missing_, layout_, limits_.buffer_blocks);
        const WantedRows rows(missing_, layout_, ids.data(), count);
        if (!runs.empty()) choose(runs);
        int64_t hits = 0;
        try {
            hits = read_and_write(runs, rows, ids, count, writer);
            file_.require_unchanged();
        } catch (...) {  // frames may hold anything
            resident_.clear();
            resident_.place();
            throw;
        }
        if (!runs.empty()) {
            resident_.swap(kept_);
            frame_of_.swap(next_frame_of_);
        }
        count_reads(runs);
        counts_.hits += hits;
        counts_.misses += count - hits;
    }

    // Which pages are kept after this batch, and in which frames: kept_ and next_frame_of_.
    void choose(const std::vector<BlockRun>& runs) {
        for (size_t i = 0; i < reach_.num_words(); ++i) reach_.set_word(i, resident_.word(i));
        for (const BlockRun& run : runs) {
            for (int64_t page = run.first_page; page < run.end_page; ++page) reach_.add(page);
        }
        PageChoice(reach_, resident_, limits_.frames, kept_).run(known_, uses_);
        kept_.place();
        place_frames();
    }

    // Pages that stay keep their frames; those that come get the frames of those that go, then new ones. Both sets are gone through in
    // order, so no list of free frames is needed.
    void place_frames() {
        PageSet& going = wanted_;  // not needed any more
        for (size_t i = 0; i < going.num_words(); ++i) going.set_word(i, resident_.word(i) & ~kept_.word(i));
        size_t word = 0;
        uint64_t rest = going.num_words() > 0 ? going.word(0) : 0;
        const auto free_frame = [&]() -> int32_t {
            while (rest == 0 && word + 1 < going.num_words()) rest = going.word(++word);
            if (rest == 0) return num_frames_++;
            const int64_t page = static_cast<int64_t>(word) * 64 + __builtin_ctzll(rest);
            rest &= rest - 1;
            return frame_of_[resident_.place_of(page)];
        };
        size_t place = 0;
        num_frames_ = static_cast<int32_t>(resident_.size());
        kept_.for_each([&](int64_t page) {
            next_frame_of_[place++] = resident_.has(page) ? frame_of_[resident_.place_of(page)] : free_frame();
        });
        frames_.touch(resident_.size() * layout_.page_bytes(), num_frames_ * layout_.page_bytes());
    }

    // Hands out all rows: those in memory by this thread's team, the others as they are read. Returns how many were in memory.
    template <class Index>
    int64_t read_and_write(
        const std::vector<BlockRun>& runs, const WantedRows& rows, const In<Index>& ids, int64_t count, const RowWriter& writer) {
        std::atomic<size_t> next{0};
        std::mutex failing;
        std::exception_ptr failure;
        Gate frames_free;
        const auto fail = [&] {
            const std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
            next = runs.size();
        };
        const auto read_all = [&](int64_t reader, bool is_caller) {
            const DefaultFloatEnvironment environment;
            try {
                SignalWatch signals;
                for (size_t r; (r = next.fetch_add(1)) < runs.size();) {
                    if (is_caller) signals.poll();
                    read_run(runs[r], rows, ids.data(), writer, buffers_.data() + reader * buffer_bytes(), frames_free);
                }
            } catch (...) {
                fail();
            }
        };
        int64_t hits = 0;
        {
            const int64_t others = in_forked_child ? 0 : std::min<int64_t>(limits_.readers, static_cast<int64_t>(runs.size())) - 1;
            const ReadingThreads threads(others, [&](int64_t t) { read_all(t + 1, false); });
            try {
                hits = write_resident(ids, count, writer);
            } catch (...) {
                fail();
            }
            frames_free.open();
            read_all(0, true);
        }
        if (failure) std::rethrow_exception(failure);
        return hits;
    }

    int64_t buffer_bytes() const { return limits_.buffer_blocks * DiskFile::kBlock; }

    // Rows of pages that are in memory.
    template <class Index>
    int64_t write_resident(const In<Index>& ids, int64_t count, const RowWriter& writer) const {
        if (resident_.size() == 0) return 0;
        constexpr int64_t kChunk = 256, kAhead = 8;
        std::atomic<int64_t> hits{0};
        parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
            const char* rows[kChunk];
            int64_t positions[kChunk], found = 0;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t row = ids.data()[i], page = layout_.page_of(row);
                if (!resident_.has(page)) continue;
                rows[found] = frame(frame_of_[resident_.place_of(page)]) + layout_.row_in_page(row) * layout_.row_bytes;
                positions[found++] = i;
            }
            for (int64_t k = 0; k < found; ++k) {
                const char* const ahead = rows[std::min(k + kAhead, found - 1)];
                for (int64_t b = 0; b < std::min<int64_t>(layout_.row_bytes, 1024); b += 64) __builtin_prefetch(ahead + b);
                writer.write(rows[k], positions[k]);
            }
            hits += found;
        });
        return hits;
    }

    char* frame(int32_t number) const { return frames_.data() + number * layout_.page_bytes(); }

    template <class Index>
    void read_run(const BlockRun& run, const WantedRows& rows, const Index* ids, const RowWriter& writer, char* buffer, Gate& frames_free) {
        const int64_t begin = run.first_block * DiskFile::kBlock, end = run.end_block * DiskFile::kBlock;
        file_.read(buffer, begin, end - begin, std::min(end, layout_.first_byte(layout_.num_pages())) - begin);
        frames_free.wait();
        for (int64_t page = run.first_page; page < run.end_page; ++page) {
            const char* const memory = buffer + layout_.first_byte(page) - begin;
            if (missing_.has(page)) {
                for (int32_t i = rows.first[missing_.place_of(page)]; i >= 0; i = rows.next[static_cast<size_t>(i)]) {
                    writer.write(memory + layout_.row_in_page(ids[i]) * layout_.row_bytes, i);
                }
            }
            if (kept_.has(page) && !resident_.has(page)) {
                const int64_t bytes = layout_.first_byte(page + 1) - layout_.first_byte(page);
                std::memcpy(frame(next_frame_of_[kept_.place_of(page)]), memory, static_cast<size_t>(bytes));
            }
        }
    }

    void count_reads(const std::vector<BlockRun>& runs) {
        counts_.reads += static_cast<int64_t>(runs.size());
        for (const BlockRun& run : runs) counts_.read_bytes += (run.end_block - run.first_block) * DiskFile::kBlock;
    }

    const DiskFile file_;
    const PageLayout layout_;
    const ElementType type_;
    const DiskLimits limits_;
    const Mapping frames_, buffers_;
    KnownBatches known_;

    // All that follows is changed under this lock, by one gather at a time.
    mutable std::mutex gathering_;
    PageUses uses_;
    PageSet wanted_, reach_;
    PlacedSet missing_, resident_, kept_;
    std::vector<int32_t> frame_of_, next_frame_of_;  // of the pages in resident_ and kept_, in their order
    int32_t num_frames_ = 0;
    DiskCounts counts_;
};

using Layout = std::tuple<int64_t, int64_t, int64_t, int>;
using Limits = std::tuple<int64_t, int64_t, int64_t, int64_t>;

void make_disk_rows(DiskRows* self, const std::string& path, bool direct, const Layout& layout, const std::string& type, const Limits& limits,
                    std::pair<int64_t, int64_t> written) {
    const auto [begin, num_rows, row_bytes, shift] = layout;
    const auto [frames, readers, buffer_blocks, known_batches] = limits;
    require(type.size() == 2 && type[1] > '0' && type[1] <= '8', "type", "must be a kind and a number of bytes");
    const ElementType element{type[0], static_cast<size_t>(type[1] - '0')};
    require(begin >= 0 && num_rows >= 1 && shift >= 0 && shift < 32, "layout", "must be of rows");
    require(row_bytes >= 1 && row_bytes % static_cast<int64_t>(element.bytes) == 0, "layout", "must be of whole numbers");
    checked_sum(begin, checked_product(num_rows, row_bytes));
    const PageLayout pages{begin, num_rows, row_bytes, shift};
    require(frames >= 0 && frames < std::numeric_limits<int32_t>::max(), "limits", "must be of less than 2^31 frames");
    require(readers >= 1 && known_batches >= 0, "limits", "must be of a reader");
    require(buffer_blocks * DiskFile::kBlock >= checked_sum(checked_product(row_bytes, int64_t{1} << shift), 2 * DiskFile::kBlock - 2), "limits", "must hold a page");
    new (self) DiskRows(path, direct, {written.first, written.second}, pages, element, {frames, readers, buffer_blocks, known_batches});
}

template <class Index>
void bind_for(nb::class_<DiskRows>& rows) {
    rows.def("announce", &DiskRows::announce<Index>, nb::arg("ids").noconvert(), "The rows of a batch that will be gathered; False where no more batches can be known.");
    rows.def("gather", &DiskRows::gather<Index>, nb::arg("ids").noconvert(), nb::arg("form"), nb::arg("scale").none(), nb::arg("out"),
             nb::arg("at").none(), "Rows `ids` to `out` (flat), or to its rows `at`.");
}

}  // namespace

void bind_disk_rows(nb::module_& m) {
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const DiskError& error) {
            const nb::object arguments = nb::make_tuple(error.code, error.what());
            PyErr_SetObject(PyExc_OSError, arguments.ptr());
        }
    });
    nb::class_<DiskRows> rows(m, "DiskRows");
    rows.def("__init__", &make_disk_rows, nb::arg("path"), nb::arg("direct"), nb::arg("layout"), nb::arg("type"), nb::arg("limits"), nb::arg("written"),
             "Rows of a file: (begin, rows, bytes of a row, log2 of the rows of a page), kind and bytes of a number,\n"
             "(pages in memory, reads at a time, blocks of a read, batches that are known ahead),\n"
             "(bytes of the file, nanoseconds when it was last written).");
    rows.def_prop_ro("direct", &DiskRows::direct, "Whether the file is read past the system's cache.");
    rows.def_prop_ro("known", &DiskRows::known, "Batches that were announced and not gathered.");
    rows.def("forget", &DiskRows::forget, "What was announced will not come.");
    rows.def("counts", [](const DiskRows& self) {
        const DiskCounts c = self.counts();
        return std::make_tuple(c.hits, c.misses, c.reads, c.read_bytes);
    }, nb::call_guard<nb::gil_scoped_release>(), "(rows from memory, rows from the disk, reads, bytes read).");
    rows.def("reset_counts", &DiskRows::reset_counts, nb::call_guard<nb::gil_scoped_release>());
    bind_for<int32_t>(rows);
    bind_for<int64_t>(rows);
    m.attr("DISK_BLOCK") = DiskFile::kBlock;
}

}  // namespace spsample
