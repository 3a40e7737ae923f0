#include <algorithm>
#include <unordered_map>

#include "runtime/speculation/proposer.h"

namespace sluice::runtime {

namespace {

class LookaheadProposer final : public Proposer {
 public:
  std::unique_ptr<Proposer> clone() const override { return std::make_unique<LookaheadProposer>(*this); }

  void append(std::span<const Token> tokens) override {
    for (const Token token : tokens) {
      if (last_ >= 0) followed_by_[last_] = token;
      last_ = token;
    }
    window_.clear();
  }

  void observe(std::span<const Seen> seen) override {
    for (const Seen& one : seen) {
      followed_by_.try_emplace(one.draft, one.likeliest);
      window_.push_back(one.likeliest);
    }
  }

  // Something is always guessed: a wrong draft shows what comes behind it all the same.
  int propose(int most, std::vector<Token>& drafts) override {
    drafts.assign(window_.begin(), window_.begin() + std::min<long>(most, static_cast<long>(window_.size())));
    const int match = window_.empty() ? 1 : 2;
    for (Token end = drafts.empty() ? last_ : drafts.back(); drafts.size() < static_cast<size_t>(most);) {
      const auto found = followed_by_.find(end);
      if (found == followed_by_.end()) break;
      drafts.push_back(end = found->second);
    }
    if (drafts.empty() && last_ >= 0 && most > 0) drafts.push_back(last_);
    return match;
  }

 private:
  Token last_ = -1;
  std::vector<Token> window_;                     // behind the end of the sequence
  std::unordered_map<Token, Token> followed_by_;  // the pool
};

}  // namespace

std::unique_ptr<Proposer> make_lookahead_proposer() {
  return std::make_unique<LookaheadProposer>();
}

}  // namespace sluice::runtime
