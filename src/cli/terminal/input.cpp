#include "cli/terminal/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sluice::cli {

namespace {

Result<std::string> read_descriptor(int descriptor, const std::string& what) {
  std::string text;
  char block[65536];
  while (true) {
    const ssize_t count = read(descriptor, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Error{ErrorCode::Io, fmt::format("{} cannot be read: {}", what, std::strerror(errno))};
    if (count == 0) return text;
    text.append(block, static_cast<size_t>(count));
    if (text.size() > kMostInputBytes)
      return Error{ErrorCode::LimitExceeded, fmt::format("{} has more than {} bytes", what, kMostInputBytes)};
  }
}

}  // namespace

Result<std::string> read_input(const std::string& path) {
  if (path == "-") return read_descriptor(STDIN_FILENO, "standard input");
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return Error{errno == ENOENT ? ErrorCode::NotFound : ErrorCode::Io,
                 fmt::format("'{}' cannot be read: {}", path, std::strerror(errno))};
  Result<std::string> text = read_descriptor(descriptor, fmt::format("'{}'", path));
  close(descriptor);
  return text;
}

}  // namespace sluice::cli
