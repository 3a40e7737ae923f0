// A whole file as a string.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace sluice::tokenizer {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace sluice::tokenizer
