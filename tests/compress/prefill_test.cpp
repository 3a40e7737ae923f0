#include "compress/prefill.h"

#include <gtest/gtest.h>

namespace sluice::compress {
namespace {

// A hundred tokens: a template of 4, a text of 92 and 4 more.
TextTokens hundred() {
  TextTokens out{std::vector<bool>(100, false), std::vector<bool>(100, true)};
  for (size_t i = 4; i < 96; ++i) {
    out.in_text[i] = true;
    out.fixed[i] = false;
  }
  return out;
}

std::vector<int32_t> range(int32_t begin, int32_t end) {
  std::vector<int32_t> out;
  for (int32_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(ChooseChunks, TakesThoseWithTheMostWeightWithinTheBudget) {
  const TextTokens tokens = hundred();
  std::vector<float> weights(100, 0.01F);
  weights[50] = 0.9F;
  EXPECT_EQ(choose_chunks(tokens, weights, 40), joined(joined(range(0, 4), range(32, 64)), range(96, 100)));
  // The chunk of 28 fits beside it where the next one of 32 does not.
  weights[70] = 0.5F;
  EXPECT_EQ(choose_chunks(tokens, weights, 63), joined(range(0, 64), range(96, 100)));
  EXPECT_EQ(choose_chunks(tokens, weights, 64), joined(range(0, 4), range(32, 100)));
  EXPECT_EQ(choose_chunks(tokens, weights, 92), range(0, 100));
}

TEST(ChooseChunks, KeepsWhatIsFixedWhateverTheBudget) {
  TextTokens tokens = hundred();
  tokens.fixed[40] = tokens.fixed[41] = true;
  const std::vector<float> weights(100, 0.01F);
  EXPECT_EQ(choose_chunks(tokens, weights, 0), joined(joined(range(0, 4), range(40, 42)), range(96, 100)));
}

TEST(ChooseChunks, AWeightCountsForItsNeighbourhood) {
  const TextTokens tokens = hundred();
  std::vector<float> weights(100, 0);
  weights[63] = 1;  // seven tokens of its chunk share it, six of the next one
  weights[90] = 0.9F;
  const std::vector<int32_t> kept = choose_chunks(tokens, weights, 32);
  EXPECT_EQ(kept, joined(joined(range(0, 4), range(64, 96)), range(96, 100)));
}

}  // namespace
}  // namespace sluice::compress
