#include "runtime/speculation/answer_pool.h"

#include <algorithm>
#include <vector>

namespace sluice::runtime {

// Where there are too many tokens, the later half is kept: each token is taken in twice at most.
void AnswerPool::Text::add(std::span<const Token> answer) {
  if (automaton_.tokens().size() + answer.size() >= kTokens) {
    const std::span<const Token> all = automaton_.tokens();
    const std::vector<Token> later(all.begin() + static_cast<long>(all.size() / 2), all.end());
    automaton_ = SuffixAutomaton();
    ++generation_;
    for (const Token token : later) automaton_.append(token);
  }
  for (const Token token : answer.last(std::min(answer.size(), kTokens / 4))) automaton_.append(token);
  automaton_.append(kEnd);
}

std::shared_ptr<AnswerPool::Text> AnswerPool::of(const std::string& salt) {
  std::shared_ptr<Text>& text = texts_[salt];
  if (text == nullptr) text = std::make_shared<Text>();
  text->used_ = ++uses_;
  return text;
}

void AnswerPool::add(const std::shared_ptr<Text>& text, std::span<const Token> answer) {
  text->add(answer);
  const auto tokens = [&] {
    size_t sum = 0;
    for (const auto& [salt, one] : texts_) sum += one->automaton().tokens().size();
    return sum;
  };
  while (texts_.size() > 1 && tokens() > kAllTokens)
    texts_.erase(std::min_element(texts_.begin(), texts_.end(), [](const auto& a, const auto& b) {
      return a.second->used_ < b.second->used_;
    }));
}

}  // namespace sluice::runtime
