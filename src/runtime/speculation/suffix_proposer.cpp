#include <algorithm>

#include "runtime/speculation/proposer.h"
#include "runtime/speculation/suffix_automaton.h"

namespace sluice::runtime {

namespace {

constexpr size_t kLongestSharedMatch = 64;

class SuffixProposer final : public Proposer {
 public:
  explicit SuffixProposer(std::shared_ptr<const AnswerPool::Text> pool) : pool_(std::move(pool)) {}
  std::unique_ptr<Proposer> clone() const override { return std::make_unique<SuffixProposer>(*this); }

  void append(std::span<const Token> tokens) override {
    for (const Token token : tokens) automaton_.append(token);
    if (pool_ == nullptr || tokens.empty()) return;
    if (generation_ == pool_->generation() && tokens.size() < kLongestSharedMatch) {
      for (const Token token : tokens) pool_->automaton().advance(shared_, token);
    } else {
      find_again();
    }
  }

  int propose(int most, std::vector<Token>& drafts) override {
    drafts.clear();
    if (pool_ != nullptr && generation_ != pool_->generation()) find_again();
    const int own = automaton_.longest_repeat().length;
    if (pool_ != nullptr && shared_.length > own && from_pool(most, drafts)) return shared_.length;
    if (own > 0) from_own(most, drafts);
    return own;
  }

 private:
  void find_again() {
    generation_ = pool_->generation();
    shared_ = {};
    const std::span<const Token> all = automaton_.tokens();
    for (const Token token : all.last(std::min(all.size(), kLongestSharedMatch)))
      pool_->automaton().advance(shared_, token);
  }

  // Where the occurrence ends close to the end of the sequence, the sequence repeats itself: so does the guess.
  void from_own(int most, std::vector<Token>& drafts) const {
    const std::span<const Token> after = automaton_.tokens().subspan(automaton_.longest_repeat().end);
    for (size_t i = 0; drafts.size() < static_cast<size_t>(most); ++i)
      drafts.push_back(i < after.size() ? after[i] : drafts[i - after.size()]);
  }

  bool from_pool(int most, std::vector<Token>& drafts) const {
    const SuffixAutomaton& answers = pool_->automaton();
    for (const Token token : answers.tokens().subspan(answers.end_of(shared_))) {
      if (token == AnswerPool::kEnd || drafts.size() == static_cast<size_t>(most)) break;
      drafts.push_back(token);
    }
    return !drafts.empty();
  }

  SuffixAutomaton automaton_;
  std::shared_ptr<const AnswerPool::Text> pool_;
  uint64_t generation_ = 0;
  SuffixAutomaton::Cursor shared_;  // of the sequence's end, in the pool
};

}  // namespace

std::unique_ptr<Proposer> make_suffix_proposer(std::shared_ptr<const AnswerPool::Text> pool) {
  return std::make_unique<SuffixProposer>(std::move(pool));
}

}  // namespace sluice::runtime
