#include "models/quantized/module_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "unicode/pattern.h"

namespace sluice::models {

namespace {

constexpr std::string_view kPatternMark = "re:";
constexpr size_t kLongestPattern = 512;
constexpr int64_t kMostStars = 4;
// How families call their embeddings of tokens.
constexpr std::string_view kTables[] = {
    "embed_tokens", "wte", "word_embeddings", "embeddings", "embed_in", "tok_embeddings", "embedding"};

bool star_matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (size_t at = star; at <= name.size(); ++at)
    if (star_matches(pattern.substr(star + 1), name.substr(at))) return true;
  return false;
}

}  // namespace

Result<ModuleTarget> ModuleTarget::read(std::string text) {
  ModuleTarget target(std::move(text));
  const std::string_view whole = target.text_;
  if (!whole.starts_with(kPatternMark)) return target;
  if (whole.size() > kLongestPattern)
    return Error{ErrorCode::Unsupported, fmt::format("the pattern '{}...' has {} bytes, limit {}",
                                                     whole.substr(0, 40), whole.size(), kLongestPattern)};
  Result<unicode::Pattern> pattern = unicode::Pattern::compile(whole.substr(kPatternMark.size()));
  if (!pattern) return pattern.error();
  target.pattern_ = std::make_shared<const unicode::Pattern>(std::move(*pattern));
  return target;
}

Result<bool> ModuleTarget::names(std::string_view module) const {
  if (pattern_ != nullptr) {
    unicode::EncodeGuard guard(module.size());
    unicode::Pattern::Finder finder(*pattern_, &guard);
    finder.reset(module);
    const Result<std::optional<unicode::PatternMatch>> found = finder.next();
    if (!found)
      return Error{ErrorCode::LimitExceeded,
                   fmt::format("quantization_config: the pattern '{}' needs too many "
                               "steps for '{}'",
                               text_, module)};
    return found->has_value() && (*found)->begin == 0;
  }
  if (std::count(text_.begin(), text_.end(), '*') <= kMostStars && star_matches(text_, module)) return true;
  return module.size() > text_.size() && module.ends_with(text_) &&
         module[module.size() - text_.size() - 1] == '.';
}

Result<bool> ModuleTarget::names(std::span<const std::string> spellings) const {
  for (const std::string& spelling : spellings) {
    Result<bool> named = names(spelling);
    if (!named || *named) return named;
  }
  return false;
}

bool ModuleTarget::is_class_of(std::span<const std::string> spellings) const {
  if (pattern_ != nullptr || text_.empty() || text_[0] < 'A' || text_[0] > 'Z') return false;
  const bool table = std::any_of(spellings.begin(), spellings.end(), [](const std::string& name) {
    return std::any_of(std::begin(kTables), std::end(kTables),
                       [&](std::string_view end) { return name.ends_with(end); });
  });
  return table == (text_ == "Embedding");
}

}  // namespace sluice::models
