#include "unicode/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <string>

namespace sluice::unicode {

namespace {

constexpr uint32_t match_limit = 10'000'000;
// Of the first try at a match, where a budget is kept: what needs more is paid for.
constexpr uint32_t first_limit = 1024;
constexpr uint32_t limit_growth = 8;
constexpr uint32_t depth_limit = 100'000;
constexpr uint32_t heap_limit_kib = 256 * 1024;
constexpr size_t longest_pattern = 64 * 1024;

// The same sets as in Oniguruma: PCRE2 counts U+180E as white space and leaves marks out of \w.
constexpr std::string_view whitespace_members =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view word_members = R"(\p{L}\p{M}\p{N}\p{Pc})";
constexpr std::string_view word_border =
    R"((?:(?<=[\p{L}\p{M}\p{N}\p{Pc}])(?![\p{L}\p{M}\p{N}\p{Pc}])|(?<![\p{L}\p{M}\p{N}\p{Pc}])(?=[\p{L}\p{M}\p{N}\p{Pc}])))";
constexpr std::string_view no_word_border =
    R"((?:(?<=[\p{L}\p{M}\p{N}\p{Pc}])(?=[\p{L}\p{M}\p{N}\p{Pc}])|(?<![\p{L}\p{M}\p{N}\p{Pc}])(?![\p{L}\p{M}\p{N}\p{Pc}])))";

// Writes \s, \w and \b, and outside of brackets \S and \W, as explicit sets; \h is a hexadecimal digit, \uHHHH a
// character.
std::string to_pcre(std::string_view source) {
  std::string out;
  bool in_bracket = false;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c != '\\' || i + 1 == source.size()) {
      if (c == '[' && !in_bracket)
        in_bracket = true;
      else if (c == ']')
        in_bracket = false;
      out += c;
      continue;
    }
    const char letter = source[++i];
    const bool is_upper = letter == 'S' || letter == 'W';
    std::string_view members;
    if (letter == 's' || letter == 'S') members = whitespace_members;
    if (letter == 'w' || letter == 'W') members = word_members;
    if (letter == 'h') members = "0-9a-fA-F";
    if ((letter == 'b' || letter == 'B') && !in_bracket) {
      out += letter == 'b' ? word_border : no_word_border;
      continue;
    }
    if (letter == 'u' && i + 4 < source.size()) {
      out += fmt::format("\\x{{{}}}", source.substr(i + 1, 4));
      i += 4;
      continue;
    }
    if (members.empty() || (in_bracket && is_upper)) {
      out += c;
      out += letter;
    } else if (in_bracket) {
      out += members;
    } else {
      out += is_upper ? "[^" : "[";
      out += members;
      out += ']';
    }
  }
  return out;
}

}  // namespace

struct Pattern::Pcre {
  pcre2_code* code = nullptr;
  Pcre() = default;
  Pcre(const Pcre&) = delete;
  Pcre& operator=(const Pcre&) = delete;
  ~Pcre() { pcre2_code_free(code); }
};

struct Pattern::Finder::Memory {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  explicit Memory(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context, match_limit);
    pcre2_set_depth_limit(context, depth_limit);
    pcre2_set_heap_limit(context, heap_limit_kib);
  }
  // Matching starts with the 32 KiB that JIT code takes from the thread's stack; this is for patterns that
  // need more.
  void grow_stack() {
    if (stack != nullptr) return;
    stack = pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Result<Pattern> Pattern::compile(std::string_view source) {
  if (source.size() > longest_pattern) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("a pattern of {} bytes, limit {}", source.size(), longest_pattern)};
  }
  Pattern pattern;
  if (auto simple = ClassPattern::compile(source)) {
    pattern.code_ = std::move(*simple);
    return pattern;
  }
  const std::string text = to_pcre(source);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto pcre = std::make_shared<Pcre>();
  pcre->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                             &offset, nullptr);
  if (pcre->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return Error{ErrorCode::Unsupported, fmt::format("pattern '{}': {} at byte {}", source.substr(0, 200),
                                                     reinterpret_cast<const char*>(message), offset)};
  }
  pcre2_jit_compile(pcre->code, PCRE2_JIT_COMPLETE);  // without it the interpreter matches the same
  pattern.code_ = std::shared_ptr<const Pcre>(std::move(pcre));
  return pattern;
}

Result<Pattern> Pattern::literal(std::string_view text) {
  std::string source;
  for (const char c : text) {
    if (is_ascii_punctuation(static_cast<unsigned char>(c))) source += '\\';
    source += c;
  }
  Result<Pattern> pattern = compile(source);
  if (pattern) pattern->literal_size_ = text.size();
  return pattern;
}

Pattern::Finder::Finder(const Pattern& pattern, EncodeGuard* guard) : pattern_(&pattern), guard_(guard) {
  if (const auto* pcre = std::get_if<std::shared_ptr<const Pcre>>(&pattern.code_)) {
    memory_ = std::make_unique<Memory>((*pcre)->code);
  }
}
Pattern::Finder::Finder(Finder&&) noexcept = default;
Pattern::Finder::~Finder() = default;

void Pattern::Finder::reset(std::string_view text) {
  text_ = text;
  position_ = 0;
  empty_at_.reset();
  class_memory_.clear();
}

Result<std::optional<PatternMatch>> Pattern::Finder::next() {
  if (memory_ != nullptr) return next_pcre();
  const auto* simple = std::get_if<ClassPattern>(&pattern_->code_);
  while (simple != nullptr && position_ < text_.size()) {
    const size_t begin = position_;
    const size_t end = simple->match_at(text_, begin, class_memory_);
    const bool is_found = end != ClassPattern::no_match && end > begin;
    position_ = is_found ? end : begin + decode_utf8(text_, begin).size;
    if (guard_ != nullptr && !guard_->go_on(position_ - begin)) return guard_->status().error();
    if (is_found || end == begin) return std::optional(PatternMatch{begin, end});
  }
  return std::optional<PatternMatch>();
}

// One search from the position on. With a guard, limits grow from a small one, and each that is reached is paid for: the
// sum bounds the work on the whole text, which PCRE2 itself does not tell.
int Pattern::Finder::match_pcre(uint32_t options) {
  const auto& pcre = std::get<std::shared_ptr<const Pcre>>(pattern_->code_);
  uint32_t limit = guard_ == nullptr ? match_limit : first_limit;
  while (true) {
    pcre2_set_match_limit(memory_->context, limit);
    const int found = pcre2_match(pcre->code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                  position_, options, memory_->data, memory_->context);
    if (found != PCRE2_ERROR_MATCHLIMIT || limit == match_limit) return found;
    if (!guard_->spend(limit) || !guard_->go_on(limit)) return found;
    limit = std::min(match_limit, limit_growth * limit);
  }
}

Error Pattern::Finder::stopped(int code) const {
  if (guard_ != nullptr && !guard_->status()) return guard_->status().error();
  if (guard_ != nullptr && code == PCRE2_ERROR_MATCHLIMIT)
    return {ErrorCode::LimitExceeded,
            fmt::format("a pattern of the tokenizer needs more than its budget of {} match steps for the "
                        "text (at byte {} of {})",
                        guard_->budget(), position_, text_.size())};
  return {ErrorCode::LimitExceeded,
          fmt::format("matching a pre-tokenizer pattern stopped with PCRE2 error {} at byte {} of {}", code,
                      position_, text_.size())};
}

Result<std::optional<PatternMatch>> Pattern::Finder::next_pcre() {
  while (position_ <= text_.size()) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    if (empty_at_ == position_) options |= PCRE2_NOTEMPTY_ATSTART;
    int found = match_pcre(options);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      memory_->grow_stack();
      found = match_pcre(options);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match_pcre(options | PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return stopped(found);
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(memory_->data);
    const PatternMatch match{ends[0], std::max(ends[0], ends[1])};
    if (match.end == match.begin) empty_at_ = match.end;
    const size_t passed = match.end - position_ + 1;
    position_ = match.end;
    if (guard_ != nullptr && !guard_->go_on(passed)) return guard_->status().error();
    return std::optional(match);
  }
  position_ = text_.size() + 1;
  return std::optional<PatternMatch>();
}

}  // namespace sluice::unicode
