// Files of this process that have no name: the disk tier of KV blocks.
#pragma once

#include <filesystem>
#include <string>

namespace sluice::runtime::test {

// The descriptor of one that lies in `folder`; -1 where there is none.
inline int nameless_file(const std::string& folder) {
  std::error_code ec;
  const std::string real = std::filesystem::canonical(folder, ec).string();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ec).string();
    if (!ec && target.starts_with(real + "/#") && target.ends_with("(deleted)"))
      return std::stoi(entry.path().filename().string());
  }
  return -1;
}

}  // namespace sluice::runtime::test
