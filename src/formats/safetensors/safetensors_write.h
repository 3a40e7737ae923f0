// A safetensors file made tensor by tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::formats {

struct WrittenTensor {
  std::string name;
  std::string dtype;  // as the format names it
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

// Tensors that are made together: what they are is known before, what they hold when make() is called.
struct WrittenGroup {
  std::vector<WrittenTensor> tensors;
  std::function<Result<std::vector<std::vector<uint8_t>>>()> make;  // the bytes of each
};

// Writes PATH.part and renames it when it is whole. A part that an earlier call left behind is taken up behind its last whole
// group, if its header is what this call would write; a whole file with that header stays. `done` is called after each group
// with the bytes so far.
Status write_safetensors(const std::string& path, std::span<const WrittenGroup> groups,
                         const std::function<void(const WrittenGroup&, uint64_t)>& done);

}  // namespace sluice::formats
