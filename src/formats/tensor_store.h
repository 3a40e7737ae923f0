// Named tensors of a model, mapped from one or more files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace sluice::formats {

class MappedFile;

// Shapes are outermost first, whatever the file's own order. Views stay valid as long as the store or a copy
// of it lives; they need not be aligned to their element size. Read-only: writing through a view faults.
class TensorStore {
 public:
  // The tensor, or NotFound, or Unsupported where the file has it in a type that DType does not know.
  Result<TensorView> find(std::string_view name) const;
  // The numbers of a tensor of 64-bit integers, which no DType has.
  Result<std::vector<int64_t>> find_integers(std::string_view name) const;
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  std::vector<std::string> names() const;  // sorted
  size_t size() const { return tensors_.size(); }
  int64_t total_bytes() const;  // of the tensors, as stored
  // Types of tensors that find() refuses, and how many tensors have each.
  std::map<std::string, int> unsupported_types() const;
  // The first file that was written to since it was mapped, as a message; ok: none.
  Status unchanged() const;

  // Used by the readers. The name must be new. `unsupported` is the type's name where a TensorView cannot
  // express the tensor; the view is then its bytes, as U8[bytes].
  void add(std::string name, TensorView view, std::string unsupported = {});
  void keep(std::shared_ptr<const MappedFile> file) { files_.push_back(std::move(file)); }
  // Takes over another store's tensors; an error names the first tensor that both have.
  Status merge(TensorStore other);

  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }

 private:
  struct Entry {
    TensorView view;
    std::string unsupported;
  };
  std::map<std::string, Entry, std::less<>> tensors_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

}  // namespace sluice::formats
