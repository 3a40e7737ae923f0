// A file that grows under another name and is renamed when it is whole, so that a call that was interrupted can be taken up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::formats {

class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {}
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Opens it, with `header` at its begin; the bytes that were there already where that header was.
  Result<uint64_t> open(const std::string& header);
  Status cut(uint64_t size);
  Status write(const void* data, size_t bytes, uint64_t at);
  // On disk, under its own name.
  Status finish(const std::string& name);

 private:
  Error failed(std::string_view what) const;
  std::string path_;
  int file_ = -1;
};

}  // namespace sluice::formats
