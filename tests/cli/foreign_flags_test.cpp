#include "cli/foreign_flags.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using Words = std::vector<std::string>;

class ForeignFlags : public testing::Test {
 protected:
  ForeignFlags() {
    options_.add(text_, "model", "").short_name('m');
    options_.add(text_, "prompt", "").short_name('p');
    options_.add(number_, "max-seqs", "");
    options_.add(number_, "max-tokens", "").short_name('n');
    options_.add(text_, "system", "");
    options_.add(loud_, "loud", "");
  }
  Words translated(Words words) {
    Result<Words> out = translate_flags(std::move(words), options_);
    return out ? *out : Words{"error", out.error().message};
  }

  OptionSet options_;
  std::string text_;
  int number_ = 0;
  bool loud_ = false;
};

TEST_F(ForeignFlags, OfTheSameMeaningAreRenamed) {
  EXPECT_EQ(translated({"-np", "4", "-n", "16", "--n-predict=8", "-sys", "Be brief."}),
            (Words{"--max-seqs", "4", "-n", "16", "--max-tokens=8", "--system", "Be brief."}));
  EXPECT_EQ(translated({"-hf", "org/name:Q4_K_M", "--loud", "-np", "2"}),
            (Words{"--model=hf:org/name:Q4_K_M", "--loud", "--max-seqs", "2"}));
  EXPECT_EQ(translated({"--hf-repo=org/name"}), Words{"--model=hf:org/name"});
}

TEST_F(ForeignFlags, OfAnotherMeaningAreAnswered) {
  EXPECT_NE(translated({"-mg", "1"}).back().find("'-mg' is '--device cuda:N' here"), std::string::npos);
  EXPECT_NE(translated({"-ngl", "99"}).back().find("'-ngl' is '--device' here"), std::string::npos);
  EXPECT_NE(translated({"-ctk", "q8_0"}).back().find("--kv-type"), std::string::npos);
  EXPECT_NE(translated({"-fa"}).back().find("leave it out"), std::string::npos);
  EXPECT_EQ(translated({"-b", "64"}).back(),
            "'-b' is '--max-step-tokens' here, which this verb does not take");
}

TEST_F(ForeignFlags, AreNotLookedForInValues) {
  const Words words{"-p", "-fa", "--prompt", "-np", "--prompt=-ngl", "word", "--", "-fa"};
  EXPECT_EQ(translated(words), words);
}

}  // namespace
}  // namespace sluice::cli
