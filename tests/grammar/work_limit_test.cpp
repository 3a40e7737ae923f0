#include <gtest/gtest.h>

#include <string>

#include "grammar/library.h"

namespace sluice::grammar {
namespace {

int pauses = 0;

// A thousand rules, whose automata take some ten thousand units of work.
std::string many_rules() {
  std::string text = "root ::= rule_0\n";
  for (int i = 0; i < 1000; ++i)
    text += "rule_" + std::to_string(i) + " ::= [a-z]+ \"" + std::to_string(i) + "\" [0-9]{1,20} (rule_" +
            std::to_string((i + 1) % 1000) + ")?\n";
  return text;
}

xgrammar::CompiledGrammar compile_rules() {
  const xgrammar::TokenizerInfo tokens({"a", "b", "0", "1", "</s>"}, xgrammar::VocabType::RAW, 5,
                                       std::vector<int32_t>{4});
  return xgrammar::GrammarCompiler(tokens, 1, false)
      .CompileGrammar(xgrammar::Grammar::FromEBNF(many_rules()));
}

// Whoever compiles beside threads that compute tokens ends its turns there.
TEST(WorkLimit, PausesNowAndThenAsLongAsItLives) {
  pauses = 0;
  {
    const WorkLimit limit(60, nullptr, [] { ++pauses; });
    (void)compile_rules();
  }
  EXPECT_GT(pauses, 0);
  const int before = pauses;
  (void)compile_rules();
  EXPECT_EQ(pauses, before) << "the limit is gone";
}

}  // namespace
}  // namespace sluice::grammar
