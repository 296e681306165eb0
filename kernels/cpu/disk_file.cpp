// A file by pread and O_DIRECT; without O_DIRECT by pread, and posix_fadvise for what was read.
#include "disk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace spsample {
namespace {

[[noreturn]] void fail(const std::string& doing) {
    const int code = errno;
    throw DiskError(code, doing + ": " + std::strerror(code));
}

std::string place(int64_t begin, int64_t bytes) {
    return "reading " + std::to_string(bytes) + " bytes at byte " + std::to_string(begin);
}

ssize_t read_some(int descriptor, char* to, int64_t bytes, int64_t begin) {
    for (;;) {
        const ssize_t got = pread(descriptor, to, static_cast<size_t>(bytes), static_cast<off_t>(begin));
        if (got >= 0 || errno != EINTR) return got;
    }
}

// A descriptor that reads past the cache; -1 where the file system cannot, which some say only when they are asked to read.
int open_direct(const char* path) {
#if defined(O_DIRECT)
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (descriptor < 0) return -1;
    const std::unique_ptr<void, void (*)(void*)> block(std::aligned_alloc(DiskFile::kBlock, DiskFile::kBlock), std::free);
    if (block && read_some(descriptor, static_cast<char*>(block.get()), DiskFile::kBlock, 0) >= 0) return descriptor;
    close(descriptor);
#else
    (void)path;
#endif
    return -1;
}

}  // namespace

DiskFile::DiskFile(const std::string& path, bool direct, FileState opened)
    : descriptor_(direct ? open_direct(path.c_str()) : -1), direct_(descriptor_ >= 0), opened_(opened) {
    if (!direct_) descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("opening");
#if defined(POSIX_FADV_RANDOM)
    if (!direct_) {
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);    // no reading ahead
        posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);  // pages that others read may be marked to read ahead of
    }
#endif
    try {
        require_unchanged();
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

DiskFile::~DiskFile() { close(descriptor_); }

void DiskFile::read(char* to, int64_t begin, int64_t bytes, int64_t needed) const {
    for (int64_t done = 0; done < needed;) {
        // What is left begins within a block where less was read than asked for: O_DIRECT has to begin with all of that block.
        done -= direct_ ? done % kBlock : 0;
        const ssize_t got = read_some(descriptor_, to + done, bytes - done, begin + done);
        if (got < 0) fail(place(begin + done, bytes - done));
        if (got == 0 || (direct_ && got < kBlock && done + got < needed)) {
            throw DiskError(0, place(begin + done, bytes - done) + ": the file ends there, it was cut meanwhile");
        }
        done += got;
    }
#if defined(POSIX_FADV_DONTNEED)
    if (!direct_) posix_fadvise(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
#endif
}

void DiskFile::require_unchanged() const {
    if (!(state() == opened_)) throw DiskError(0, "it was written to since it was opened");
}

FileState DiskFile::state() const {
    struct stat status;
    if (fstat(descriptor_, &status) != 0) fail("looking at its size");
#if defined(__APPLE__)
    const timespec written = status.st_mtimespec;
#else
    const timespec written = status.st_mtim;
#endif
    constexpr int64_t kSecond = 1000000000;
    return {static_cast<int64_t>(status.st_size), static_cast<int64_t>(written.tv_sec) * kSecond + static_cast<int64_t>(written.tv_nsec)};
}

}  // namespace spsample
