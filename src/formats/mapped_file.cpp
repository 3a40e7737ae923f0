#include "formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/keyed_hash.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

constexpr int kExitIo = 74;  // EX_IOERR of sysexits.h

// What the fault handler may read: no locks, no allocation. A slot is free where `begin` is 0 and being
// filled or emptied where it is 1. Files beyond the table open as usual but are not named by the handler.
struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<const char*> path{nullptr};
};
constinit std::array<Range, 4096> mapped_ranges;
struct sigaction previous_action;

int publish_range(std::string_view bytes, const char* path) {
  for (size_t i = 0; i < mapped_ranges.size(); ++i) {
    Range& range = mapped_ranges[i];
    uintptr_t expected = 0;
    if (!range.begin.compare_exchange_strong(expected, 1)) continue;
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    // The kernel maps whole pages, so a fault may lie past the last byte but inside the last page.
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    range.path = path;
    range.end = (begin + bytes.size() + page - 1) / page * page;
    range.begin = begin;
    return static_cast<int>(i);
  }
  return -1;
}

void retract_range(int slot) {
  if (slot < 0) return;
  Range& range = mapped_ranges[static_cast<size_t>(slot)];
  range.begin = 1;
  range.end = 0;
  range.path = nullptr;
  range.begin = 0;
}

const char* path_at(uintptr_t address) {
  for (const Range& range : mapped_ranges) {
    const uintptr_t begin = range.begin;
    if (begin > 1 && begin <= address && address < range.end) return range.path;
  }
  return nullptr;
}

void write_all(const char* text) {
  size_t left = std::strlen(text);
  while (left > 0) {
    const ssize_t written = ::write(STDERR_FILENO, text, left);
    if (written <= 0) return;
    text += written;
    left -= static_cast<size_t>(written);
  }
}

void on_bus_error(int signal, siginfo_t* details, void*) {
  const bool from_memory = details->si_code > 0;
  const char* path = from_memory ? path_at(reinterpret_cast<uintptr_t>(details->si_addr)) : nullptr;
  if (path != nullptr) {
    write_all("sluice: model file ");
    write_all(path);
    write_all(" changed on disk while it was in use\n");
    ::_exit(kExitIo);
  }
  ::sigaction(signal, &previous_action, nullptr);
  if (!from_memory) ::raise(signal);  // a fault repeats by itself when this returns
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Error system_error(std::string_view what, const std::string& path, int number) {
  const bool missing = number == ENOENT || number == ENOTDIR;
  return {missing ? ErrorCode::NotFound : ErrorCode::Io,
          fmt::format("{}: cannot {}: {}", quote_path(path), what, std::strerror(number))};
}

// The text that git-lfs leaves in place of a file it has not fetched: "version https://git-lfs…", then lines
// of "key value", "size" among them.
Status refuse_lfs_pointer(std::string_view bytes, const std::string& path) {
  constexpr size_t kLargestPointer = 1024;
  if (bytes.size() > kLargestPointer || !bytes.starts_with("version https://git-lfs")) return {};
  const size_t at = bytes.find("\nsize ");
  std::string_view size = at == bytes.npos ? "?" : bytes.substr(at + 6);
  size = size.substr(0, std::min(size.find('\n'), size_t{20}));
  return Error{
      ErrorCode::Corrupt,
      fmt::format("{}: is a git-lfs pointer of {} bytes, not the file of {} bytes it stands for; fetch it "
                  "with 'git lfs pull'",
                  quote_path(path), bytes.size(), quote_path(size))};
}

// Hash of the two ends and of pieces spread evenly between them: little enough to be read between two steps. A write that
// lies between two pieces is not seen.
uint64_t sample_of(std::string_view bytes) {
  constexpr size_t kEnd = size_t{1} << 20, kPieces = 1024, kPiece = 64;
  uint64_t hash = 0;
  const auto add = [&](std::string_view piece) { hash = keyed_hash(piece, {hash, bytes.size()}); };
  add(bytes.substr(0, kEnd));
  if (bytes.size() <= kEnd) return hash;
  add(bytes.substr(bytes.size() - kEnd));
  const size_t spacing = std::max(kPiece, bytes.size() / kPieces);
  for (size_t at = kEnd; at < bytes.size(); at += spacing) add(bytes.substr(at, kPiece));
  return hash;
}

// Closed on every way out of open(): a mapping holds its file by itself.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a writer must not wait for one.
  Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (descriptor.value < 0) return system_error("open", path, errno);
  struct ::stat status = {};
  if (::fstat(descriptor.value, &status) != 0) return system_error("stat", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: is {}, must be a regular file", quote_path(path), kind_of(status.st_mode))};
  }
  if (status.st_size <= 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: is empty (0 bytes; download incomplete?)", quote_path(path))};
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.value, 0);
  if (memory == MAP_FAILED) return system_error("map", path, errno);
  const std::string_view bytes(static_cast<const char*>(memory), size);
  std::shared_ptr<const MappedFile> file(new MappedFile(path, bytes, stamp_of(status)));
  if (Status real = refuse_lfs_pointer(bytes, path); !real.ok()) return real.error();
  return file;
}

MappedFile::Stamp MappedFile::stamp_of(const struct stat& status) {
  return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino),
          static_cast<int64_t>(status.st_size), static_cast<int64_t>(status.st_mtim.tv_sec),
          static_cast<int64_t>(status.st_mtim.tv_nsec)};
}

bool MappedFile::changed() const {
  struct ::stat status = {};
  if (::stat(path_.c_str(), &status) != 0) return false;
  const Stamp now = stamp_of(status);
  if (now.device != stamp_.device || now.inode != stamp_.inode) return false;
  if (now.size != stamp_.size) return true;
  if (now.seconds == stamp_.seconds && now.nanoseconds == stamp_.nanoseconds) return false;
  if (sample_of(bytes_) != sample_) return true;
  stamp_ = now;
  return false;
}

MappedFile::MappedFile(std::string path, std::string_view bytes, const Stamp& stamp)
    : path_(std::move(path)),
      stamp_(stamp),
      bytes_(bytes),
      sample_(sample_of(bytes)),
      slot_(publish_range(bytes_, path_.c_str())) {}

MappedFile::~MappedFile() {
  retract_range(slot_);
  ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void install_fault_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace sluice::formats
