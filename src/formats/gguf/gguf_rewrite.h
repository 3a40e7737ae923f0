// A GGUF file written anew with its tensors in other types: the metadata stays as it is, but for the type of the file.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace sluice::formats {

struct GgufRewrite {
  // The type that a tensor gets; its own: it is copied. Any other one can be quantised to, and its block divides the row.
  std::function<DType(const std::string& name, const TensorView& tensor)> choose;
  uint32_t file_type = 0;  // general.file_type, where the file has it
  // How much errors of a tensor's columns count (tensor/quantize.h), by slice of the first of three dimensions; empty: all alike.
  // Not set: nothing has an importance.
  std::function<std::vector<float>(const std::string& name, int slice)> importance = {};
  std::map<std::string, std::string> added =
      {};  // strings that the metadata gets, in the place of what keys had
  // Called after each tensor, with its name, its new type and the bytes written and in all.
  std::function<void(const std::string& name, DType type, int64_t done, int64_t total)> progress = {};
};

// Writes OUT.part and renames it when it is whole. A part that an earlier call left behind is taken up where it ends, if its
// header is what this call would write. Refuses an input of several files, and tensors of types that cannot be read.
Status rewrite_gguf(const std::string& in, const std::string& out, const GgufRewrite& rewrite,
                    ThreadPool& pool);

}  // namespace sluice::formats
