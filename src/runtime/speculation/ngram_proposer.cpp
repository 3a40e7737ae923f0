#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>

#include "runtime/speculation/proposer.h"

namespace sluice::runtime {

namespace {

constexpr int kShortest = 2, kLongest = 4;

class NgramProposer final : public Proposer {
 public:
  std::unique_ptr<Proposer> clone() const override { return std::make_unique<NgramProposer>(*this); }

  void append(std::span<const Token> tokens) override {
    for (const Token token : tokens) {
      note_ends();
      tokens_.push_back(token);
    }
  }

  int propose(int most, std::vector<Token>& drafts) override {
    drafts.clear();
    for (int n = kLongest; n >= kShortest && most > 0; --n) {
      if (static_cast<int>(tokens_.size()) < n) continue;
      const auto found = ends(n).find(hash(n));
      if (found == ends(n).end() || !matches(found->second, n)) continue;
      const std::span<const Token> after = std::span(tokens_).subspan(found->second);
      drafts.assign(after.begin(), after.begin() + std::min<long>(most, static_cast<long>(after.size())));
      return n;
    }
    return 0;
  }

 private:
  using Ends =
      std::unordered_map<uint64_t, size_t>;  // by the hash of n tokens, the position behind the last of them
  Ends& ends(int n) { return ends_[static_cast<size_t>(n - kShortest)]; }

  // Of the last n tokens.
  uint64_t hash(int n) const {
    uint64_t value = 0xCBF29CE484222325u;
    for (const Token token : std::span(tokens_).last(static_cast<size_t>(n)))
      value = (value ^ static_cast<uint32_t>(token)) * 0x100000001B3u;
    return value;
  }
  bool matches(size_t end, int n) const {
    return std::equal(tokens_.end() - n, tokens_.end(), tokens_.begin() + static_cast<long>(end) - n);
  }
  // Once a token stands behind them, the last tokens can be found.
  void note_ends() {
    for (int n = kShortest; n <= kLongest && n <= static_cast<int>(tokens_.size()); ++n)
      ends(n)[hash(n)] = tokens_.size();
  }

  std::vector<Token> tokens_;
  std::array<Ends, kLongest - kShortest + 1> ends_;
};

}  // namespace

std::unique_ptr<Proposer> make_ngram_proposer() {
  return std::make_unique<NgramProposer>();
}

}  // namespace sluice::runtime
