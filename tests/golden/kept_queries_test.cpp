// Queries that a decoder keeps of a step: each token's are the same beside others as alone.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/device.h"
#include "runtime/model_runner.h"

namespace sluice {

namespace {

// Of tokens that each begin a sequence, in every layer of plain attention: [layers][tokens * heads * head_dim].
std::vector<std::vector<float>> queries_of(const models::Model& model, std::span<const Token> tokens) {
  const size_t groups = runtime::kv_groups(model.spec()).count();
  runtime::KvMemoryOptions memory{.type = DType::F32};
  memory.blocks.assign(groups, static_cast<int>(tokens.size()));
  const auto runner = runtime::ModelRunner::make(model, memory, {}).value();
  runtime::Batch batch(static_cast<int>(groups), runner->memory().state_group());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<BlockId> blocks{BlockId{static_cast<int32_t>(i)}};
    const std::vector<std::span<const BlockId>> tables(groups, blocks);
    batch.add(tokens.subspan(i, 1), 0, tables);
  }
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  runner->keep_queries(rows);
  runner->forward(batch);
  std::vector<std::vector<float>> all;
  for (size_t layer = 0; layer < model.spec().layers.size(); ++layer) {
    if (!std::holds_alternative<models::Attention>(model.spec().layers[layer].mixer)) continue;
    const TensorView kept = runner->queries(layer);
    std::vector<float>& values = all.emplace_back(static_cast<size_t>(kept.elements()));
    model.backend->download(TensorView::contiguous(values.data(), DType::F32, {kept.dim(0), kept.dim(1)}),
                            kept);
  }
  return all;
}

}  // namespace

TEST(KeptQueries, AreOfTheirTokens) {
  const std::vector<Token> tokens{5, 9, 17};
  for (const char* family : {"llama", "afmoe", "muse_glimmer", "qwen3_5", "qwen3_next", "step3"}) {
    SCOPED_TRACE(family);
    auto files = models::open_model(std::string(SLUICE_TEST_DATA) + "/" + family);
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto model =
        models::load_model(std::move(*files), runtime::make_backend({.device = "cpu", .threads = 1}).value());
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto together = queries_of(**model, tokens);
    ASSERT_FALSE(together.empty());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto alone = queries_of(**model, std::span(tokens).subspan(i, 1));
      for (size_t layer = 0; layer < together.size(); ++layer) {
        const size_t width = alone[layer].size();
        const auto row = std::span(together[layer]).subspan(i * width, width);
        EXPECT_TRUE(std::ranges::equal(row, alone[layer])) << "token " << i << ", layer " << layer;
      }
    }
  }
}

}  // namespace sluice
