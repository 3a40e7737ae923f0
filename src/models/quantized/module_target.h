// Modules that an entry of quantization_config names.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::unicode {
class Pattern;
}

namespace sluice::models {

// "lm_head" and "mlp.gate" name modules by their ends, "model.layers.*.mlp" has stars for any text, "re:.*q_proj" is a regular
// expression that must match from the start of the name on, as Python's re.match does.
class ModuleTarget {
 public:
  // Error: a pattern that is none, or too long.
  static Result<ModuleTarget> read(std::string text);

  // Error: a pattern that needs too many steps for that name.
  Result<bool> names(std::string_view module) const;
  // Whether it names a module under one of its names.
  Result<bool> names(std::span<const std::string> spellings) const;

  bool is_pattern() const { return pattern_ != nullptr; }
  // "Linear": a class of modules, and no name of one; "Embedding" has those of tokens alone.
  bool is_class_of(std::span<const std::string> spellings) const;

 private:
  explicit ModuleTarget(std::string text) : text_(std::move(text)) {}

  std::string text_;
  std::shared_ptr<const unicode::Pattern> pattern_;  // of "re:"
};

}  // namespace sluice::models
