#include "base/system/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace sluice {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  const int value_;
};

Error system_error(const std::string& path) {
  const int number = errno;
  return {number == ENOENT || number == ENOTDIR ? ErrorCode::NotFound : ErrorCode::Io,
          fmt::format("'{}' cannot be read: {}", path, std::generic_category().message(number))};
}

}  // namespace

Result<std::string> read_regular_file(const std::string& path, size_t limit) {
  // Without O_NONBLOCK the opening of a pipe waits for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.value() < 0) return system_error(path);
  struct stat status {};
  if (::fstat(file.value(), &status) != 0) return system_error(path);
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::Io, fmt::format("'{}' is not a regular file", path)};
  std::string text;
  while (true) {
    const size_t before = text.size();
    const auto known = static_cast<size_t>(std::max<off_t>(0, status.st_size));
    // One byte more than is known, so that the end is seen without another round.
    text.resize(std::min(limit, std::max(known, before + 4096)) + 1);
    const ssize_t got = ::read(file.value(), text.data() + before, text.size() - before);
    if (got < 0 && errno != EINTR) return system_error(path);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(0, got)));
    if (got == 0) return text;
    if (text.size() > limit)
      return Error{ErrorCode::LimitExceeded, fmt::format("'{}' is larger than {} bytes", path, limit)};
  }
}

}  // namespace sluice
