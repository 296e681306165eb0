// A file that is read past the system's cache of pages, where its file system allows that.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace spsample {

// What the system or the file did not give. In Python an OSError(code, what); code 0: no error of the system, but too few bytes, or another file.
struct DiskError : std::runtime_error {
    DiskError(int code, const std::string& what) : std::runtime_error(what), code(code) {}
    int code;
};

// What tells a file's contents from what is written to it later: its size and when it was last written.
struct FileState {
    int64_t bytes, written;  // nanoseconds since 1970
    bool operator==(const FileState& other) const { return bytes == other.bytes && written == other.written; }
};

class DiskFile {
public:
    // Where reads begin and end, in the file and in memory.
    static constexpr int64_t kBlock = 4096;

    // Opens it for reading: past the cache if `direct` and the file system can, else through it, and what was read is dropped from it at once.
    // Throws DiskError if it cannot, or the file is in another state.
    DiskFile(const std::string& path, bool direct, FileState opened);
    DiskFile(const DiskFile&) = delete;
    DiskFile& operator=(const DiskFile&) = delete;
    ~DiskFile();

    bool direct() const { return direct_; }

    // Reads `bytes` bytes at `begin`, or as many as there are, to memory that has room for all of them. `begin`, `bytes` and the memory's
    // address are multiples of kBlock. Throws DiskError where there are fewer than `needed`. For any number of threads.
    void read(char* to, int64_t begin, int64_t bytes, int64_t needed) const;

    // Throws DiskError if the file is no longer in that state.
    void require_unchanged() const;

private:
    FileState state() const;

    int descriptor_;
    bool direct_;
    FileState opened_;
};

}  // namespace spsample
