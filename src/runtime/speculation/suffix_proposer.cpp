#include <algorithm>

#include "runtime/speculation/proposer.h"
#include "runtime/speculation/suffix_automaton.h"

namespace sluice::runtime {

namespace {

class SuffixProposer final : public Proposer {
 public:
  std::unique_ptr<Proposer> clone() const override { return std::make_unique<SuffixProposer>(*this); }

  void append(std::span<const Token> tokens) override {
    for (const Token token : tokens) automaton_.append(token);
  }

  // Where the occurrence ends close to the end of the sequence, the sequence repeats itself: so does the guess.
  int propose(int most, std::vector<Token>& drafts) override {
    drafts.clear();
    const SuffixAutomaton::Match& match = automaton_.longest_repeat();
    if (match.length == 0) return 0;
    const std::span<const Token> after = automaton_.tokens().subspan(match.end);
    for (size_t i = 0; drafts.size() < static_cast<size_t>(most); ++i)
      drafts.push_back(i < after.size() ? after[i] : drafts[i - after.size()]);
    return match.length;
  }

 private:
  SuffixAutomaton automaton_;
};

}  // namespace

std::unique_ptr<Proposer> make_suffix_proposer() {
  return std::make_unique<SuffixProposer>();
}

}  // namespace sluice::runtime
