#include "formats/tensor_store.h"

#include <fmt/format.h>

#include <cstring>

#include "formats/mapped_file.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

std::string origin(const std::vector<std::shared_ptr<const MappedFile>>& files) {
  if (files.empty()) return "model";
  const std::string first = quote_path(files.front()->path());
  return files.size() == 1 ? first : fmt::format("{} and {} more files", first, files.size() - 1);
}

}  // namespace

Result<TensorView> TensorStore::find(std::string_view name) const {
  const auto entry = tensors_.find(name);
  if (entry == tensors_.end()) {
    return Error{ErrorCode::NotFound, fmt::format("{}: has no tensor {}", origin(files_), quote(name))};
  }
  if (!entry->second.unsupported.empty()) {
    return Error{ErrorCode::Unsupported, fmt::format("{}: tensor {} has type {}, which cannot be used here",
                                                     origin(files_), quote(name), entry->second.unsupported)};
  }
  return entry->second.view;
}

Result<std::vector<int64_t>> TensorStore::find_integers(std::string_view name) const {
  const auto entry = tensors_.find(name);
  if (entry == tensors_.end())
    return Error{ErrorCode::NotFound, fmt::format("{}: has no tensor {}", origin(files_), quote(name))};
  if (entry->second.unsupported != "I64")
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: tensor {} must have type I64", origin(files_), quote(name))};
  const TensorView& bytes = entry->second.view;
  std::vector<int64_t> out(static_cast<size_t>(bytes.elements()) / sizeof(int64_t));
  std::memcpy(out.data(), bytes.data, out.size() * sizeof(int64_t));
  return out;
}

std::vector<std::string> TensorStore::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

int64_t TensorStore::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, entry] : tensors_) bytes += entry.view.bytes();
  return bytes;
}

std::map<std::string, int> TensorStore::unsupported_types() const {
  std::map<std::string, int> types;
  for (const auto& [name, entry] : tensors_)
    if (!entry.unsupported.empty()) ++types[entry.unsupported];
  return types;
}

Status TensorStore::unchanged() const {
  for (const std::shared_ptr<const MappedFile>& file : files_)
    if (file->changed())
      return Error{ErrorCode::Io, fmt::format("model file {} changed on disk while it was in use",
                                              quote_path(file->path()))};
  return {};
}

void TensorStore::add(std::string name, TensorView view, std::string unsupported) {
  const bool fresh = tensors_.emplace(std::move(name), Entry{view, std::move(unsupported)}).second;
  SLUICE_CHECK(fresh);
}

Status TensorStore::merge(TensorStore other) {
  tensors_.merge(other.tensors_);  // leaves behind what both have
  if (!other.tensors_.empty()) {
    return Error{ErrorCode::Corrupt, fmt::format("{}: tensor {} is also in {}", origin(other.files_),
                                                 quote(other.tensors_.begin()->first), origin(files_))};
  }
  files_.insert(files_.end(), std::make_move_iterator(other.files_.begin()),
                std::make_move_iterator(other.files_.end()));
  return {};
}

}  // namespace sluice::formats
