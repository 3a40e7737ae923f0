// Files and folders that last as long as a test.
#pragma once

#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "formats/tensor_store.h"

namespace sluice::formats {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice_formats_XXXXXX").string();
    SLUICE_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The full path of the file written.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

// The message, or "" where there was none.
template <class T>
std::string problem(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

// Bytes, and what a reader must say about them: every part has to be in the message; none means that they are
// valid.
struct Case {
  std::string name;
  std::string bytes;
  std::vector<std::string> says;
};

inline std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

// True where every view lies inside the bytes it was parsed from.
inline bool views_are_inside(const TensorStore& tensors, std::string_view bytes) {
  for (const std::string& name : tensors.names()) {
    const Result<TensorView> view = tensors.find(name);
    if (!view.ok()) continue;
    const char* begin = static_cast<const char*>(view->data);
    if (begin < bytes.data() || begin + view->bytes() > bytes.data() + bytes.size()) return false;
  }
  return true;
}

// A copy that ends where the heap block ends, so that a sanitizer sees a read past it.
class ExactCopy {
 public:
  explicit ExactCopy(std::string_view bytes) : bytes_(bytes.begin(), bytes.end()) { bytes_.shrink_to_fit(); }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::vector<char> bytes_;
};

}  // namespace sluice::formats
