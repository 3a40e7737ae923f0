#include "grammar/matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "grammar/library.h"
#include "grammar/matcher_library.h"

namespace sluice::grammar {

namespace {

Error not_allowed(std::string_view text, size_t position) {
  return {ErrorCode::Internal,
          fmt::format("the grammar does not allow \"{}\" at position {}", text, position),
          std::string(kSchemaViolation)};
}

int32_t bit_of(Token token) {
  return static_cast<int32_t>(1U << (static_cast<unsigned>(token) % 32));
}

}  // namespace

struct Matcher::Library {
  xgrammar::GrammarMatcher matcher;
};

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::span<const Token> end_tokens,
                 request::FreeStart start)
    : grammar_(std::move(grammar)),
      end_tokens_(end_tokens.begin(), end_tokens.end()),
      start_(std::move(start)),
      phase_(grammar_->after().empty() ? Phase::Constrained
             : start_.opening.empty()  ? Phase::Free
                                       : Phase::Undecided) {
  std::erase_if(end_tokens_,
                [&](Token token) { return token < 0 || token >= grammar_->vocabulary().width(); });
  // A request may ignore the model's own; a text that is complete must be able to end all the same.
  if (end_tokens_.empty()) end_tokens_ = grammar_->vocabulary().end_tokens();
  std::optional<std::vector<int>> stops;
  if (!end_tokens_.empty()) stops.emplace(end_tokens_.begin(), end_tokens_.end());
  library_ = std::make_unique<Library>(Library{xgrammar::GrammarMatcher(grammar_->library().grammar, stops)});
}

Matcher::Matcher(const Matcher& other)
    : grammar_(other.grammar_),
      end_tokens_(other.end_tokens_),
      library_(std::make_unique<Library>(Library{other.library_->matcher.Fork()})),
      tokens_(other.tokens_),
      begin_(other.begin_),
      text_(other.text_),
      sizes_(other.sizes_),
      start_(other.start_),
      phase_(other.phase_),
      blanks_(other.blanks_),
      ended_(other.ended_) {}

Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

Matcher& Matcher::operator=(const Matcher& other) {
  if (this != &other) *this = Matcher(other);
  return *this;
}

bool Matcher::is_end(Token token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

// The one token that may come next before the constraint begins.
std::optional<Token> Matcher::forced() const {
  if (phase_ != Phase::Free) return std::nullopt;
  const size_t count = tokens_.size(), opening = start_.opening.size();
  if (count < opening) return start_.opening[count];
  if (!start_.budget) return std::nullopt;
  const size_t spent = opening + static_cast<size_t>(std::max(0, *start_.budget));
  if (count < spent || count - spent >= start_.closing.size()) return std::nullopt;
  return start_.closing[count - spent];
}

Result<bool> Matcher::fill(std::span<int32_t> mask) const {
  SLUICE_CHECK_EQ(mask.size(), mask_words());
  if (phase_ == Phase::Free) {
    if (const std::optional<Token> token = forced()) {
      std::fill(mask.begin(), mask.end(), 0);
      mask[static_cast<size_t>(*token) / 32] = bit_of(*token);
      return true;
    }
    // Free, but the answer cannot end here.
    std::fill(mask.begin(), mask.end(), -1);
    for (const Token token : end_tokens_) mask[static_cast<size_t>(token) / 32] &= ~bit_of(token);
    return !end_tokens_.empty();
  }
  if (grammar_->is_free()) return false;
  const Result<bool> filled = fill_constrained(mask);
  if (!filled || !*filled) return filled;
  if (phase_ == Phase::Undecided) {
    const Token token = start_.opening[tokens_.size()];
    mask[static_cast<size_t>(token) / 32] |= bit_of(token);
  } else if (phase_ == Phase::Gap) {
    for (const Token token : grammar_->vocabulary().blank_tokens())
      mask[static_cast<size_t>(token) / 32] |= bit_of(token);
  }
  return true;
}

bool Matcher::allows(Token token) const {
  if (grammar_->is_free()) return true;
  std::vector<int32_t> mask(mask_words());
  const Result<bool> filled = fill_constrained(mask);
  return filled && (!*filled || (mask[static_cast<size_t>(token) / 32] & bit_of(token)) != 0);
}

// The end tokens are the matcher's own, and the only part of a mask that the state does not give.
bool Matcher::describe(MaskMemo::Key& key) const {
  key.assign(1, static_cast<int32_t>(end_tokens_.size()));
  key.insert(key.end(), end_tokens_.begin(), end_tokens_.end());
  return library_->matcher.DescribeState(&key);
}

Result<bool> Matcher::fill_constrained(std::span<int32_t> mask) const {
  const WorkLimit limit(GrammarLimits::kMaskSeconds);
  try {
    const bool described = describe(description_);
    if (described) {
      if (const std::optional<bool> known = grammar_->masks().find(description_, mask)) return *known;
    }
    const bool excludes = fill_bitmask(library_->matcher, mask);
    if (described) grammar_->masks().keep(description_, mask, excludes);
    return excludes;
  } catch (const std::exception& error) {
    return Error{ErrorCode::Internal,
                 fmt::format("no mask of the grammar at position {}: {}", tokens_.size(), error.what())};
  }
}

Status Matcher::accept(Token token) {
  // A search ends its hypotheses with an end token, whether or not that was the only thing left.
  if (ended_ && is_end(token)) return {};
  if (ended_) return not_allowed(grammar_->vocabulary().text(token), tokens_.size());
  if (phase_ == Phase::Undecided) {
    if (const std::optional<Status> taken = accept_undecided(token)) return *taken;
  }
  if (phase_ == Phase::Free) return accept_free(token);
  const std::vector<Token>& blanks = grammar_->vocabulary().blank_tokens();
  if (phase_ == Phase::Gap && std::binary_search(blanks.begin(), blanks.end(), token)) {
    tokens_.push_back(token);
    begin_ = tokens_.size();
    if (++blanks_ == kMostBlanks) phase_ = Phase::Constrained;
    return {};
  }
  phase_ = Phase::Constrained;
  return accept_constrained(token);
}

// The tokens so far begin the opening and fit the grammar. Nothing: it is decided which of the two goes on.
std::optional<Status> Matcher::accept_undecided(Token token) {
  const size_t count = tokens_.size();
  const bool opens = token == start_.opening[count], fits = allows(token);
  if (!opens) {
    phase_ = Phase::Constrained;
    return std::nullopt;
  }
  if (fits && count + 1 < start_.opening.size()) return accept_constrained(token);
  phase_ = Phase::Free;
  if (!grammar_->is_free()) library_->matcher.Rollback(static_cast<int>(count));
  text_.clear();
  sizes_.clear();
  return std::nullopt;
}

Status Matcher::accept_free(Token token) {
  const std::optional<Token> only = forced();
  if (only && *only != token) return not_allowed(grammar_->vocabulary().text(token), tokens_.size());
  tokens_.push_back(token);
  begin_ = tokens_.size();
  if (tokens_.size() <= start_.opening.size()) return {};
  text_ += grammar_->vocabulary().text(token);
  return begin_behind_marker();
}

// Looks for the marker; what a token holds behind it is part of the constrained text, but for white space.
Status Matcher::begin_behind_marker() {
  const std::string& marker = grammar_->after();
  const size_t found = text_.find(marker);
  if (found == std::string::npos) {
    // A marker may have begun.
    if (text_.size() >= marker.size()) text_.erase(0, text_.size() - marker.size() + 1);
    return {};
  }
  text_.erase(0, found + marker.size());
  text_.erase(0, std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  phase_ = text_.empty() ? Phase::Gap : Phase::Constrained;
  if (text_.empty() || grammar_->is_free()) return {};
  try {
    if (library_->matcher.AcceptString(text_)) return {};
  } catch (const std::exception&) {
    return not_allowed(text_, tokens_.size());
  }
  return not_allowed(text_, tokens_.size());
}

Status Matcher::accept_constrained(Token token) {
  const std::string_view text = grammar_->vocabulary().text(token);
  const bool ends = is_end(token);
  if (grammar_->is_free()) {
    tokens_.push_back(token);
    sizes_.push_back(text_.size());
    ended_ = ends;
    return {};
  }
  const WorkLimit limit(GrammarLimits::kMaskSeconds);
  try {
    if (!library_->matcher.AcceptToken(token)) return not_allowed(text, tokens_.size());
  } catch (const std::exception& error) {
    return Error{ErrorCode::Internal,
                 fmt::format("the grammar fails at position {}: {}", tokens_.size(), error.what())};
  }
  tokens_.push_back(token);
  sizes_.push_back(text_.size());
  if (!ends) text_ += text;
  if (ends || library_->matcher.IsTerminated() || only_end_is_left()) return finish();
  return {};
}

bool Matcher::only_end_is_left() {
  if (!library_->matcher.IsCompleted()) return false;
  scratch_.resize(mask_words());
  const Result<bool> filled = fill_constrained(scratch_);
  if (!filled || !*filled) return false;
  for (const Token token : end_tokens_) scratch_[static_cast<size_t>(token) / 32] &= ~bit_of(token);
  return std::all_of(scratch_.begin(), scratch_.end(), [](int32_t word) { return word == 0; });
}

Status Matcher::finish() {
  ended_ = true;
  return grammar_->check(text_);
}

void Matcher::rollback(size_t count) {
  SLUICE_CHECK(count <= tokens_.size());
  if (count == 0) return;
  ended_ = false;
  const size_t constrained = phase_ == Phase::Constrained ? tokens_.size() - begin_ : 0;
  if (count > constrained || (count == constrained && !grammar_->after().empty()))
    return reset_to(tokens_.size() - count);
  if (!grammar_->is_free()) library_->matcher.Rollback(static_cast<int>(count));
  tokens_.resize(tokens_.size() - count);
  text_.resize(sizes_[sizes_.size() - count]);
  sizes_.resize(sizes_.size() - count);
}

// Plays the first `count` tokens again, where the place at which the constraint began is taken back.
void Matcher::reset_to(size_t count) {
  std::vector<Token> kept(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(count));
  *this = Matcher(grammar_, end_tokens_, start_);
  for (const Token token : kept) SLUICE_CHECK(accept(token).ok());
}

}  // namespace sluice::grammar
