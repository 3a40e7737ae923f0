// A model's hyper-parameters under the names of Hugging Face's config.json, whichever file they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/gguf/gguf.h"

namespace sluice::models {

enum class Source : uint8_t { HuggingFace, Gguf };

// Getters remember the first problem and go on with a harmless value, so that an architecture reads as a list
// of facts; status() must be asked before anything is built from them. Values out of range are problems too.
class Config {
 public:
  // `object` is a config.json. Older and family-specific key names are brought to the common ones.
  static Result<Config> from_json(json::object object, std::string what);
  // Metadata keys ("llama.embedding_length") become the config.json names that mean the same.
  static Result<Config> from_gguf(const formats::GgufMetadata& metadata, std::string what);

  Source source() const { return source_; }
  bool is_gguf() const { return source_ == Source::Gguf; }
  const std::string& architecture() const { return architecture_; }  // "LlamaForCausalLM" or GGUF's "llama"
  // The decoder of a model with a vision tower, as its text_config says: "LlamaForCausalLM" or "llama". Mostly
  // empty.
  const std::string& text_type() const { return text_type_; }
  void set_architecture(std::string name) { architecture_ = std::move(name); }

  bool has(std::string_view key) const;      // present and not null
  bool is_null(std::string_view key) const;  // present, and null
  bool is_text(std::string_view key) const {
    const json::value* value = find(key);
    return value != nullptr && value->is_string();
  }
  int size(std::string_view key);                   // required, 1 … 2^24
  int size_or(std::string_view key, int fallback);  // 0 … 2^30
  float number(std::string_view key);               // required, finite
  float number_or(std::string_view key, float fallback);
  bool flag_or(std::string_view key, bool fallback);  // a number stands for whether it is not 0
  std::string text_or(std::string_view key, std::string fallback);
  // Empty where missing, one where not a list.
  std::vector<double> numbers(std::string_view key, double null = 0.0);
  // Sizes per layer, of which the first takes the key's place; empty where the key holds one size or is missing.
  std::vector<int> take_sizes(std::string_view key);
  std::vector<std::string> texts(std::string_view key);  // empty where missing
  // A nested object; empty where missing. Problems found in it are kept here.
  Config sub(std::string_view key);

  // Whether the file that belongs to the config holds a tensor of this name: for families whose configs do not
  // say which parts a model has. False where the file is not known.
  bool stores(std::string_view tensor) const { return stored_rows(tensor) >= 0; }
  // The first of its dimensions, as matrices are written [rows, columns]; -1 where the file does not hold it.
  int64_t stored_rows(std::string_view tensor) const { return rows_of_ ? rows_of_(tensor) : -1; }
  // `rows_of` gives what stored_rows does.
  void set_tensors(std::function<int64_t(std::string_view)> rows_of) { rows_of_ = std::move(rows_of); }

  // Sets a key that the file leaves out because every model of its family has that value.
  void assume(std::string_view key, json::value value);
  // Forgets a key that the family has read by itself and that has another meaning in common code.
  void drop(std::string_view key);
  void fail(std::string message);  // records a problem of the family's own
  Status status() const;

 private:
  const json::value* find(std::string_view key) const;
  std::string spelled(std::string_view key) const;  // the key as the file has it
  template <class T>
  T take(Result<std::optional<T>> found, std::string_view key, bool required, T fallback);

  json::object object_;
  std::function<int64_t(std::string_view)> rows_of_;
  std::string what_;
  std::string architecture_;
  std::string text_type_;
  Source source_ = Source::HuggingFace;
  std::shared_ptr<Status> status_ = std::make_shared<Status>();
};

// The text of a file of at most 16 MiB.
Result<std::string> read_small_file(const std::string& path);
// The object that a config.json is.
Result<json::object> read_config_file(const std::string& path);

}  // namespace sluice::models
