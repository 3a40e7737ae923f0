// Earlier answers, in which the next tokens of later ones may be found. Only requests with the same cache salt share them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "runtime/speculation/suffix_automaton.h"

namespace sluice::runtime {

// Used by the executor's thread alone.
class AnswerPool {
 public:
  static constexpr size_t kTokens = 65536;      // of one salt
  static constexpr size_t kAllTokens = 131072;  // of all; the salts that were used longest ago are forgotten
  static constexpr Token kEnd = -1;             // behind each answer

  // The answers of one salt.
  class Text {
   public:
    const SuffixAutomaton& automaton() const { return automaton_; }
    // Cursors of another generation point nowhere.
    uint64_t generation() const { return generation_; }

   private:
    friend class AnswerPool;
    void add(std::span<const Token> answer);

    SuffixAutomaton automaton_;
    uint64_t generation_ = 0;
    uint64_t used_ = 0;
  };

  std::shared_ptr<Text> of(const std::string& salt);
  void add(const std::shared_ptr<Text>& text, std::span<const Token> answer);
  size_t salts() const { return texts_.size(); }

 private:
  std::map<std::string, std::shared_ptr<Text>> texts_;
  uint64_t uses_ = 0;
};

}  // namespace sluice::runtime
