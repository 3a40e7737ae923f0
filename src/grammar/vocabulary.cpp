#include "grammar/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "grammar/library.h"

namespace sluice::grammar {

namespace {

thread_local WarningScope* current_scope = nullptr;

constexpr int64_t kSharedBytes = int64_t{192} << 20;  // a third of it is for masks of rules

std::vector<std::string> bytes_of(const tokenizer::Tokenizer& tokenizer, int width) {
  std::vector<std::string> tokens(static_cast<size_t>(width));
  const auto known = std::min<int64_t>(width, tokenizer.vocab_size());
  for (Token id = 0; id < known; ++id) {
    const tokenizer::TokenKind kind = tokenizer.kind(id);
    const bool is_text = !tokenizer.is_special(id) && kind != tokenizer::TokenKind::Unused;
    if (is_text) tokens[static_cast<size_t>(id)] = tokenizer.piece_bytes(id);
  }
  return tokens;
}

}  // namespace

WarningScope::WarningScope() : outer_(current_scope) {
  current_scope = this;
}

WarningScope::~WarningScope() {
  current_scope = outer_;
}

Vocabulary::Vocabulary(const tokenizer::Tokenizer& tokenizer, int width, std::vector<Token> end_tokens,
                       std::vector<Token> marks)
    : Vocabulary(bytes_of(tokenizer, width), std::move(end_tokens)) {
  marks_ = std::move(marks);
  control_.resize(tokens_.size());
  for (Token id = 0; id < std::min<int64_t>(width, tokenizer.vocab_size()); ++id) {
    const auto index = static_cast<size_t>(id);
    if (tokens_[index].empty()) control_[index] = tokenizer.spelling(id);
  }
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<Token> end_tokens)
    : tokens_(std::move(tokens)), end_tokens_(std::move(end_tokens)) {
  std::erase_if(end_tokens_, [&](Token token) { return token < 0 || token >= width(); });
  library_ = make_library(tokens_);
  for (Token token = 0; token < width(); ++token) {
    const std::string& text = tokens_[static_cast<size_t>(token)];
    if (!text.empty() && text.find_first_not_of(" \t\r\n") == std::string::npos)
      blank_tokens_.push_back(token);
  }
}

std::unique_ptr<Vocabulary::Library> Vocabulary::make_library(const std::vector<std::string>& tokens) const {
  const std::vector<int32_t> stops(end_tokens_.begin(), end_tokens_.end());
  const xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, width(), stops);
  return std::make_unique<Library>(Library{info, xgrammar::GrammarCompiler(info, 1, true, kSharedBytes)});
}

const Vocabulary::Library& Vocabulary::library_with_marks() const {
  std::call_once(marked_once_, [&] {
    std::vector<std::string> tokens = tokens_;
    for (const Token mark : marks_) {
      const bool ends = std::find(end_tokens_.begin(), end_tokens_.end(), mark) != end_tokens_.end();
      if (mark >= 0 && mark < width() && !ends) tokens[static_cast<size_t>(mark)] = text(mark);
    }
    if (tokens != tokens_) marked_ = make_library(tokens);
  });
  return marked_ != nullptr ? *marked_ : *library_;
}

Vocabulary::~Vocabulary() = default;

std::string_view Vocabulary::text(Token token) const {
  if (token < 0 || token >= width()) return {};
  const auto index = static_cast<size_t>(token);
  return tokens_[index].empty() && index < control_.size() ? control_[index] : tokens_[index];
}

}  // namespace sluice::grammar

// What xgrammar calls instead of writing to stderr and ending (XGRAMMAR_LOG_CUSTOMIZE).
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level >= kWarning && sluice::grammar::current_scope != nullptr)
    sluice::grammar::current_scope->add(message);
}

}  // namespace xgrammar
