// What a step leaves out where only some of its rows are wanted.
#include "runtime/scorer.h"

#include <gtest/gtest.h>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

TEST(Scorer, LastRowAloneEqualsTheLastOfAll) {
  for (const char* name : {"expert", "windowed"}) {
    const Rig rig({.model = name});
    const auto vocab = static_cast<size_t>(rig.model->spec().vocab);
    const std::vector<Token> tokens = words(20, 3);
    Scorer scorer(*rig.model, 64);
    const std::vector<float> all = scorer.append(tokens).value();
    scorer.clear();
    const std::vector<float> last = scorer.append_last(tokens).value();
    ASSERT_EQ(last.size(), vocab);
    EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - static_cast<std::ptrdiff_t>(vocab))) << name;
    // The keys and values of the last layer are there all the same.
    const Token next = 5;
    const std::vector<float> after = scorer.append_last({&next, 1}).value();
    scorer.clear();
    scorer.append(tokens).value();
    EXPECT_EQ(after, scorer.append({&next, 1}).value()) << name;
  }
}

TEST(Scorer, RefusesPositionsThatTheModelIsNotComputedAt) {
  const Rig rig;
  rig.model->files.spec.context_limit = 20;
  Scorer scorer(*rig.model, 64);
  ASSERT_TRUE(scorer.append(words(20, 3)).ok());
  const auto more = scorer.append(words(1, 3));
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(
      more.error().message,
      "21 positions: beyond 20 the model's layers choose what they attend to, which is not computed on this "
      "device");
}

TEST(Scorer, LastLayerFeedsWantedRowsOnly) {
  for (const bool ahead : {false, true}) {
    Rig rig({.ahead = ahead});
    const auto layers = static_cast<int64_t>(rig.model->spec().layers.size());
    ASSERT_TRUE(rig.run(greedy_request(words(20, 4), 1)).ends.at(0).error == std::nullopt);
    EXPECT_EQ(rig.backend->fed, (layers - 1) * 20 + 1) << ahead;
  }
}

// Nothing is wanted of a prompt's first pieces; of its last the next token.
TEST(Scorer, PiecesOfAPromptFeedTheLastLayerOnce) {
  RigOptions options;
  options.scheduler.max_step_tokens = 8;
  Rig rig(options);
  Rig whole;
  const request::Request request = greedy_request(words(30, 5), 4);
  EXPECT_EQ(rig.run(request).tokens(), whole.run(request).tokens());
  const auto layers = static_cast<int64_t>(rig.model->spec().layers.size());
  EXPECT_EQ(rig.backend->fed, (layers - 1) * 33 + 4);
}

}  // namespace
}  // namespace sluice::runtime::test
