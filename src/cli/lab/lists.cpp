#include "cli/lab/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sluice::cli {

Result<std::vector<int>> read_list(const std::string& text, const char* option, int least) {
  constexpr int kMost = 1 << 20;
  std::vector<int> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int value = 0;
    const auto [stop, problem] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (problem != std::errc() || stop != text.data() + end || value < least || value > kMost)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--{} '{}' must be numbers from {} to {} with commas between them", option,
                               text, least, kMost)};
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

}  // namespace sluice::cli
