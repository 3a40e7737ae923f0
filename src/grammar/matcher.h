// Where one sequence stands in its grammar. Copying a matcher forks the sequence. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "grammar/compiled_grammar.h"

namespace sluice::grammar {

class Matcher {
 public:
  // `end_tokens` end the sequence: they are allowed where the text is complete. None: those of the vocabulary
  // do. `start` says what the free text before the grammar is, where there is one.
  Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::span<const Token> end_tokens,
          request::FreeStart start = {});
  Matcher(const Matcher& other);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(const Matcher& other);
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  size_t mask_words() const { return grammar_->vocabulary().mask_words(); }
  // Sets a bit for each token that may come next; false where every token may, and the mask says nothing then.
  // REQUIRES: mask.size() == mask_words(), !ended()
  Result<bool> fill(std::span<int32_t> mask) const;
  // Takes a token. An error where the grammar does not allow it, or where the finished text is not what was asked for
  // (CompiledGrammar::check()); the matcher is of no use then.
  Status accept(Token token);
  // Takes back the last `count` tokens. REQUIRES: count <= accepted()
  void rollback(size_t count);
  size_t accepted() const { return tokens_.size(); }
  // The text is complete and nothing can follow, or an end token was taken.
  bool ended() const { return ended_; }

 private:
  struct Library;
  // Undecided: the tokens so far begin the opening of the free text and fit the constraint. Gap: behind the free text, where blanks may come.
  enum class Phase : uint8_t { Undecided, Free, Gap, Constrained };
  static constexpr size_t kMostBlanks = 4;  // tokens of them

  Result<bool> fill_constrained(std::span<int32_t> mask) const;
  bool describe(MaskMemo::Key& key) const;
  std::optional<Token> forced() const;
  Status accept_free(Token token);
  std::optional<Status> accept_undecided(Token token);
  bool allows(Token token) const;
  Status begin_behind_marker();
  Status accept_constrained(Token token);
  bool is_end(Token token) const;
  bool only_end_is_left();
  Status finish();
  void reset_to(size_t count);

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<Token> end_tokens_;
  std::unique_ptr<Library> library_;
  std::vector<Token> tokens_;  // all that were accepted
  size_t begin_ = 0;           // tokens before the constraint; it begins with tokens_[begin_]
  std::string text_;           // since the constraint began; before it, what may hold the marker
  std::vector<size_t> sizes_;  // of text_ before each token since the constraint began
  request::FreeStart start_;
  Phase phase_;
  size_t blanks_ = 0;  // of the gap
  bool ended_ = false;
  std::vector<int32_t> scratch_;
  mutable MaskMemo::Key description_;  // of the state that a mask is asked for
};

}  // namespace sluice::grammar
