#include "formats/part_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "formats/quote.h"

namespace sluice::formats {

PartFile::~PartFile() {
  if (file_ >= 0) ::close(file_);
}

Result<uint64_t> PartFile::open(const std::string& header) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) return failed("cannot be written");
  struct stat status {};
  std::string found(header.size(), '\0');
  const bool same = ::fstat(file_, &status) == 0 && status.st_size >= static_cast<off_t>(header.size()) &&
                    ::pread(file_, found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
                    found == header;
  if (same) return static_cast<uint64_t>(status.st_size);
  if (Status emptied = cut(0); !emptied) return emptied.error();
  if (Status written = write(header.data(), header.size(), 0); !written) return written.error();
  return header.size();
}

Status PartFile::cut(uint64_t size) {
  if (::ftruncate(file_, static_cast<off_t>(size)) != 0) return failed("cannot be written");
  return {};
}

Status PartFile::write(const void* data, size_t bytes, uint64_t at) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(file_, from, bytes, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("cannot be written");
    from += written;
    at += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return {};
}

Status PartFile::finish(const std::string& name) {
  if (::fsync(file_) != 0 || std::rename(path_.c_str(), name.c_str()) != 0)
    return failed("cannot be put in its place");
  return {};
}

Error PartFile::failed(std::string_view what) const {
  return {ErrorCode::Io, fmt::format("{}: {}: {}", quote_path(path_), what, std::strerror(errno))};
}

}  // namespace sluice::formats
