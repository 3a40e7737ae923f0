// GGUF versions 2 and 3: metadata and tensors of one file, or of a split (NAME-00001-of-000NN.gguf).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "formats/tensor_store.h"

namespace sluice::formats {

// Strings are views into the mapped file. Integers of every width, and bools inside arrays, become int64_t;
// uint64_t stands only for a value that int64_t cannot hold.
using GgufArray = std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string_view, GgufArray>;

// Look-ups give std::nullopt for a missing key and an error for a value of another kind or out of the range
// of the type asked for; integers of any width answer get_int, any number answers get_number.
// Messages name the key; which file it was is the caller's to add.
class GgufMetadata {
 public:
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  Result<std::optional<int64_t>> get_int(std::string_view key) const;
  Result<std::optional<double>> get_number(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> get_string(std::string_view key) const;
  // The array, or nullptr where the key is missing.
  Result<const std::vector<int64_t>*> get_ints(
      std::string_view key) const;  // bools and integers of any width
  Result<const std::vector<double>*> get_numbers(std::string_view key) const;  // floats of any width
  Result<const std::vector<std::string_view>*> get_strings(std::string_view key) const;
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

  void set(std::string key, GgufValue value) { values_[std::move(key)] = std::move(value); }

 private:
  const GgufValue* find(std::string_view key) const;
  template <class T>
  Result<const std::vector<T>*> get_array(std::string_view key, std::string_view wanted) const;

  std::map<std::string, GgufValue, std::less<>> values_;
};

struct Gguf {
  int version = 0;
  GgufMetadata metadata;
  TensorStore tensors;
};

// Opens a file; where it is the first of a split, the others too. Any other part of a split is refused.
Result<Gguf> open_gguf(const std::string& path);

// The rules of one file alone, on bytes in memory (for tests and fuzzing). Views point into `file`.
Result<Gguf> parse_gguf(std::string_view file, std::string_view what);

}  // namespace sluice::formats
