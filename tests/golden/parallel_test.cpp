// Miniatures of every family, cut over ranks that are threads of this process, against one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "dist/local_group.h"
#include "kernels/cpu/cpu.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/model_runner.h"
#include "runtime/parallel/worker.h"
#include "runtime/scorer.h"

namespace sluice {

namespace {

using models::Cuts;
using Loaded = Result<std::unique_ptr<models::Model>>;

// The best one that rounds no plain weight's activations, nor what attention reads.
std::string level_in_f32() {
  std::string best;
  for (const std::string& name : kernels::available_isa_names())
    if (!name.ends_with("bf16") && name != "amx") best = name;
  return best;
}

std::string best_level() {
  return kernels::available_isa_names().back();
}

Loaded load_part(Result<models::ModelFiles> files, std::shared_ptr<models::ModelGroup> group,
                 const std::string& isa = level_in_f32()) {
  if (!files) return files.error();
  auto backend = runtime::make_backend({.device = "cpu", .isa = isa, .threads = 1});
  return models::load_model(
      std::move(*files), std::move(*backend), [](float) {}, std::move(group));
}

Loaded load_part(const std::string& folder, std::shared_ptr<models::ModelGroup> group,
                 const std::string& isa = level_in_f32()) {
  return load_part(models::open_model(folder), std::move(group), isa);
}

// Of a prompt, of three tokens behind it of which only the last one is wanted, and of one more.
std::vector<float> logits_of(const models::Model& model, std::span<const Token> prompt) {
  runtime::Scorer scorer(model, static_cast<int>(prompt.size()) + 4);
  std::vector<float> all = scorer.append(prompt).value();
  for (const size_t count : {size_t{3}, size_t{1}}) {
    const std::vector<float> last = scorer.append_last(prompt.first(count)).value();
    all.insert(all.end(), last.begin(), last.end());
  }
  return all;
}

// What a group computes; the error where it refuses the model.
Result<std::vector<float>> logits_by(const std::string& folder, const Cuts& cut,
                                     std::span<const Token> prompt, const std::string& isa) {
  auto ranks = dist::make_local_group(cut.ranks());
  std::vector<std::shared_ptr<models::ModelGroup>> groups;
  for (auto& rank : ranks) groups.push_back(std::make_shared<models::ModelGroup>(std::move(rank), cut));
  std::vector<std::thread> workers;
  for (size_t i = 1; i < groups.size(); ++i)
    workers.emplace_back([&folder, &isa, group = std::move(groups[i])] {
      Loaded model = load_part(folder, group, isa);
      if (!model) return;
      const Status ended = runtime::run_worker(**model);
      EXPECT_TRUE(ended.ok()) << folder << ": " << ended.error().message;
    });
  Result<std::vector<float>> out = Error{};
  {
    Loaded part = load_part(folder, std::move(groups[0]), isa);
    if (part) {
      out = logits_of(**part, prompt);
    } else {
      out = part.error();
    }
  }
  groups.clear();
  for (std::thread& worker : workers) worker.join();
  return out;
}

// A group against one rank.
struct Compared {
  Result<double> error = Error{};  // relative
  bool same_bits = false;
};

Compared compare(const std::string& folder, const Cuts& cut, std::span<const Token> prompt,
                 const std::string& isa = level_in_f32()) {
  const Result<std::vector<float>> ours = logits_by(folder, cut, prompt, isa);
  if (!ours) return {ours.error()};
  const std::vector<float> whole = logits_of(**load_part(folder, nullptr, isa), prompt);
  double difference = 0, size = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    difference += (double{(*ours)[i]} - whole[i]) * (double{(*ours)[i]} - whole[i]);
    size += double{whole[i]} * whole[i];
  }
  return {std::sqrt(difference / size), *ours == whole};
}

std::vector<std::string> miniatures() {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_TEST_DATA))
    if (std::filesystem::exists(entry.path() / "golden.json")) folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<Token> prompt_for(const models::ModelFiles& files, int length = 9) {
  std::vector<Token> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(1 + i * 7 % (files.spec.vocab - 1));
  return prompt;
}

// How many miniatures allow the cut; those are compared.
int count_cut(const Cuts& cut, double tolerance, int length = 9, const std::string& isa = level_in_f32()) {
  int done = 0;
  for (const std::string& folder : miniatures()) {
    const Result<models::ModelFiles> files = models::open_model(folder);
    EXPECT_TRUE(files.ok()) << folder;
    if (!files) continue;
    const std::vector<Token> prompt = prompt_for(*files, length);
    const Compared compared = compare(folder, cut, prompt, isa);
    if (!compared.error) {
      const std::string& message = compared.error.error().message;
      const auto names = [&](int ranks, const char* option) {
        return ranks > 1 && message.find(option) != std::string::npos;
      };
      EXPECT_TRUE(names(cut.tensor, "(--tp)") || names(cut.experts, "(--ep)") ||
                  names(cut.stages, "(--pp)") || names(cut.context, "(--cp)"))
          << message;
      continue;
    }
    EXPECT_LE(*compared.error, tolerance) << folder;
    if (tolerance == 0) {
      EXPECT_TRUE(compared.same_bits) << folder;
    }
    ++done;
  }
  return done;
}

}  // namespace

TEST(Parallel, TwoTensorRanksAgreeWithOne) {
  EXPECT_GE(count_cut({.tensor = 2}, 1e-5), 94);
}

// Whatever it rounds; a stage changes no bit there either.
TEST(Parallel, RanksAgreeOnTheLevelOfThisMachine) {
  EXPECT_GE(count_cut({.tensor = 2, .context = 2}, 5e-3, 9, best_level()), 90);
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/llama";
  EXPECT_TRUE(compare(folder, {.stages = 2}, std::vector<Token>{1, 2, 3}, best_level()).same_bits);
}

TEST(Parallel, FourTensorRanksAgreeWithOne) {
  EXPECT_GE(count_cut({.tensor = 4}, 1e-5), 91);
}

// Gated delta rule, state spaces, short convolutions, and norms over all heads or the inner width. In GGUF files value heads
// lie in tiles.
TEST(Parallel, StatesAndNormsAcrossHeadsAreCut) {
  for (const char* name : {"qwen3_next",
                           "qwen3_5",
                           "qwen3_5_moe",
                           "olmo_hybrid",
                           "kimi_linear",
                           "bamba",
                           "granite_hybrid",
                           "falcon_h1",
                           "nemotron_h",
                           "nemotron_3",
                           "zamba2",
                           "mamba2",
                           "jamba",
                           "lfm2",
                           "lfm2_moe",
                           "olmo2",
                           "olmoe",
                           "bitnet",
                           "minimax_m2",
                           "gguf/qwen3_5.gguf",
                           "gguf/qwen3_next.gguf",
                           "gguf/kimi_linear.gguf",
                           "gguf/falcon_h1.gguf",
                           "gguf/granite_hybrid.gguf",
                           "gguf/jamba.gguf",
                           "gguf/lfm2.gguf",
                           "gguf/mamba2.gguf",
                           "gguf/nemotron_3.gguf"}) {
    const std::string path = std::string(SLUICE_TEST_DATA) + "/" + name;
    const std::vector<Token> prompt = prompt_for(models::open_model(path).value(), 40);
    for (const Cuts& cut : {Cuts{.tensor = 2}, Cuts{.tensor = 4}, Cuts{.tensor = 2, .sequence = true}}) {
      const Compared compared = compare(path, cut, prompt);
      ASSERT_TRUE(compared.error.ok()) << name << ": " << compared.error.error().message;
      EXPECT_LE(*compared.error, 1e-5) << name << " " << cut.tensor;
    }
  }
}

// Of ordered columns a rank has some of any block: what is cut by columns is plain there, with activations that are not rounded.
TEST(Parallel, QuantisedMatricesAreCut) {
  for (const auto& [name, tolerance] : {std::pair("gptq-v1-asym", 1e-5),
                                        {"bnb-nf4", 1e-5},
                                        {"gptq-act-order", 2e-2},
                                        {"gptq-orders", 2e-2}}) {
    const std::string folder = std::string(SLUICE_TEST_DATA) + "/quantized/" + name;
    const std::vector<Token> prompt = prompt_for(models::open_model(folder).value());
    const Compared compared = compare(folder, {.tensor = 2}, prompt);
    ASSERT_TRUE(compared.error.ok()) << name << ": " << compared.error.error().message;
    EXPECT_LE(*compared.error, tolerance) << name;
  }
}

TEST(Parallel, CountsOfStatesThatDoNotDivideAreRefusedWithTheNumbers) {
  for (const auto& [name, message] :
       {std::pair("qwen3_next",
                  "layer 0 has 2 key heads of linear attention, which 3 ranks (--tp) cannot "
                  "share: one of the numbers must divide the other"),
        std::pair("mamba2",
                  "layer 0 has 8 heads of a state space, which 3 ranks (--tp) cannot share equally"),
        std::pair("lfm2", "layer 0 has 32 channels of a convolution, which 3 ranks (--tp) cannot share"),
        std::pair("jamba", "layer 0 has 64 channels of a state space, which 3 ranks (--tp) cannot share"),
        std::pair("falcon_h1", "layer 0 has 2 KV heads, which 3 ranks (--tp) cannot share")}) {
    const models::ModelFiles files = models::open_model(std::string(SLUICE_TEST_DATA) + "/" + name).value();
    const auto part = models::cut(files.spec, models::placement_of(0, {.tensor = 3}));
    ASSERT_FALSE(part.ok()) << name;
    EXPECT_THAT(part.error().message, testing::HasSubstr(message));
  }
}

TEST(Parallel, BackEndsThatDoNotNormSharedRowsSayWhichLayerDoes) {
  auto ranks = dist::make_local_group(2);
  auto group = std::make_shared<models::ModelGroup>(std::move(ranks[0]), Cuts{.tensor = 2});
  const Loaded part = models::load_model(
      models::open_model(std::string(SLUICE_TEST_DATA) + "/bitnet").value(),
      *runtime::make_backend({.device = "ref"}), [](float) {}, group);
  group->abandon();
  ASSERT_FALSE(part.ok());
  EXPECT_THAT(
      part.error().message,
      testing::HasSubstr("layer 0 norms rows that 2 ranks (--tp) share, which 'ref' does not compute"));
}

// Of groups that several ranks read each keeps what is convolved of them.
TEST(Parallel, ARankKeepsItsShareOfAState) {
  for (const char* name : {"qwen3_next", "kimi_linear", "mamba2", "falcon_h1", "jamba", "lfm2", "zamba2"}) {
    const models::ModelFiles files = models::open_model(std::string(SLUICE_TEST_DATA) + "/" + name).value();
    const auto part = models::cut(files.spec, models::placement_of(1, {.tensor = 2}));
    ASSERT_TRUE(part.ok()) << part.error().message;
    EXPECT_EQ(2 * models::state_bytes(models::layer_states(*part)),
              models::state_bytes(models::layer_states(files.spec)))
        << name;
  }
}

// Behind as many positions as the layers choose.
TEST(Parallel, RanksChooseTheSamePositions) {
  for (const char* name : {"deepseek_v32", "glm_moe_dsa", "minimax_m3_published"}) {
    const std::string folder = std::string(SLUICE_TEST_DATA) + "/" + name;
    const std::vector<Token> prompt = prompt_for(models::open_model(folder).value(), 40);
    for (const Cuts& cut : {Cuts{.tensor = 2}, Cuts{.tensor = 4}, Cuts{.tensor = 2, .sequence = true}}) {
      const Compared compared = compare(folder, cut, prompt);
      ASSERT_TRUE(compared.error.ok()) << compared.error.error().message;
      EXPECT_LE(*compared.error, 1e-5) << name;
    }
  }
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/deepseek_v32";
  EXPECT_TRUE(compare(folder, {.stages = 2}, prompt_for(models::open_model(folder).value(), 40)).same_bits);
}

TEST(Parallel, ExpertsOnTwoRanksAgreeWithOne) {
  EXPECT_GE(count_cut({.experts = 2}, 1e-5), 25);
}

TEST(Parallel, ExpertsOnTheRanksOfATensorCutAgreeWithOne) {
  EXPECT_GE(count_cut({.tensor = 2, .experts = 2}, 1e-5), 34);
  EXPECT_GE(count_cut({.tensor = 4, .experts = 2}, 1e-5), 31);
}

TEST(Parallel, ExpertsInStagesAgreeWithOne) {
  EXPECT_GE(count_cut({.experts = 2, .stages = 2}, 1e-5), 15);
}

TEST(Parallel, ExpertsThatDoNotDivideAreRefusedWithTheNumbers) {
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/mixtral";
  const std::vector<Token> prompt{1, 2, 3};
  const Compared compared = compare(folder, {.experts = 3}, prompt);
  ASSERT_FALSE(compared.error.ok());
  EXPECT_THAT(compared.error.error().message,
              testing::HasSubstr("layer 0 has 4 experts, which 3 ranks (--ep) cannot share equally"));
}

TEST(Parallel, ModelsWithoutExpertsRefuseToShareThem) {
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/llama";
  const std::vector<Token> prompt{1, 2, 3};
  const Compared compared = compare(folder, {.experts = 2}, prompt);
  ASSERT_FALSE(compared.error.ok());
  EXPECT_THAT(compared.error.error().message,
              testing::HasSubstr("no layer of the model has experts that 2 ranks (--ep) could share"));
}

TEST(Parallel, EpMustDivideTp) {
  const Status wrong = Cuts{.tensor = 4, .experts = 3}.check();
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, testing::HasSubstr("--ep is 3 and --tp is 4"));
  EXPECT_TRUE((Cuts{.tensor = 4, .experts = 2}.check().ok()));
  EXPECT_TRUE((Cuts{.experts = 3}.check().ok()));
}

// A rank loads from a file that lacks the experts of the other one.
TEST(Parallel, ARankReadsItsOwnExpertsAlone) {
  auto ranks = dist::make_local_group(2);
  for (int rank = 0; rank < 2; ++rank) {
    Result<models::ModelFiles> files = models::open_model(std::string(SLUICE_TEST_DATA) + "/mixtral");
    ASSERT_TRUE(files.ok());
    formats::TensorStore own;
    for (const auto& file : files->tensors.files()) own.keep(file);
    for (const std::string& name : files->tensors.names()) {
      const size_t at = name.find("experts.");
      const bool others = at != std::string::npos && (name[at + 8] - '0') / 2 != rank;
      if (!others) own.add(name, *files->tensors.find(name));
    }
    ASSERT_LT(own.size(), files->tensors.size());
    files->tensors = std::move(own);
    auto group =
        std::make_shared<models::ModelGroup>(std::move(ranks[static_cast<size_t>(rank)]), Cuts{.experts = 2});
    const Loaded part = load_part(std::move(files), group);
    group->abandon();
    ASSERT_TRUE(part.ok()) << part.error().message;
  }
}

// The order of sums is the same: only where norms and residuals are computed differs.
TEST(Parallel, SharedTokensHaveTheBitsOfTheTensorCut) {
  for (const Cuts& plain :
       {Cuts{.tensor = 2}, Cuts{.tensor = 4, .experts = 2}, Cuts{.tensor = 2, .stages = 2}}) {
    Cuts shared = plain;
    shared.sequence = true;
    int done = 0;
    for (const std::string& folder : miniatures()) {
      const std::vector<Token> prompt = prompt_for(*models::open_model(folder));
      const Result<std::vector<float>> expected = logits_by(folder, plain, prompt, best_level()),
                                       found = logits_by(folder, shared, prompt, best_level());
      ASSERT_EQ(expected.ok(), found.ok()) << folder;
      if (!expected) continue;
      EXPECT_EQ(*expected, *found) << folder;
      ++done;
    }
    EXPECT_GE(done, plain.experts > 1 ? 31 : 64);
  }
}

TEST(Parallel, SpNeedsTp) {
  const Status wrong = Cuts{.sequence = true}.check();
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, testing::HasSubstr("--sp is on and --tp is 1"));
}

// Also of sequences of several blocks.
TEST(Parallel, RanksThatShareTheKvCacheAgreeWithOne) {
  EXPECT_GE(count_cut({.context = 2}, 1e-5), 97);
  EXPECT_GE(count_cut({.context = 2}, 1e-5, 40), 97);
  EXPECT_GE(count_cut({.context = 4}, 1e-5), 97);
  EXPECT_GE(count_cut({.stages = 2, .context = 2}, 1e-5, 40), 65);
}

// Ranks of one share of the context cut the layers between them.
TEST(Parallel, TensorAndExpertRanksShareTheKvCache) {
  EXPECT_GE(count_cut({.tensor = 2, .context = 2}, 1e-5, 40), 95);
  EXPECT_GE(count_cut({.experts = 2, .context = 2}, 1e-5), 35);
  EXPECT_GE(count_cut({.tensor = 2, .stages = 2, .context = 2}, 1e-5), 65);
}

// Windows and chunks that are no multiple of the ranks, and latents, are among those that are compared above.
TEST(Parallel, WindowsAndLatentsAreShared) {
  for (const char* name : {"gpt_oss", "gemma", "llama4", "deepseek"}) {
    const std::string folder = std::string(SLUICE_TEST_DATA) + "/" + name;
    const std::vector<Token> prompt = prompt_for(models::open_model(folder).value(), 40);
    for (const Cuts& cut : {Cuts{.context = 2}, Cuts{.context = 4}, Cuts{.context = 8}}) {
      const Compared compared = compare(folder, cut, prompt);
      ASSERT_TRUE(compared.error.ok()) << compared.error.error().message;
      EXPECT_LE(*compared.error, 1e-5) << name << " " << cut.context;
    }
  }
}

// Ranks keep states and keys of indexers whole; biases of positions are those of the distance over all ranks.
TEST(Parallel, StatesBiasesAndIndexersAreSharedByTokens) {
  for (const char* name :
       {"qwen3_next", "qwen3_5", "kimi_linear", "bamba", "falcon_h1", "nemotron_3", "zamba2", "mamba2",
        "jamba", "lfm2", "gguf/qwen3_next.gguf", "gguf/jamba.gguf", "bloom", "mpt", "deepseek_v32",
        "glm_moe_dsa", "minimax_m3", "minimax_m3_published"}) {
    const std::string path = std::string(SLUICE_TEST_DATA) + "/" + name;
    const std::vector<Token> prompt = prompt_for(models::open_model(path).value(), 40);
    for (const Cuts& cut : {Cuts{.context = 2}, Cuts{.context = 4}, Cuts{.tensor = 2, .context = 2}}) {
      const Compared compared = compare(path, cut, prompt);
      ASSERT_TRUE(compared.error.ok()) << name << ": " << compared.error.error().message;
      EXPECT_LE(*compared.error, 1e-5) << name << " " << cut.context;
    }
  }
}

TEST(Parallel, BlocksOfAnIndexerThatDoNotDivideAreRefusedWithTheNumbers) {
  const models::ModelFiles files =
      models::open_model(std::string(SLUICE_TEST_DATA) + "/minimax_m3_published").value();
  const auto part = models::cut(files.spec, models::placement_of(0, {.context = 3}));
  ASSERT_FALSE(part.ok());
  EXPECT_THAT(part.error().message,
              testing::HasSubstr("layer 1 chooses blocks of 4 positions, which 3 ranks (--cp) cannot share"));
}

TEST(Parallel, CpIsWithoutSp) {
  const Status wrong = Cuts{.tensor = 2, .sequence = true, .context = 2}.check();
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, testing::HasSubstr("--cp is 2 and --sp is on"));
}

// Blocks are those of one rank; each has its part of their positions.
TEST(Parallel, ARankKeepsItsShareOfTheKvCache) {
  auto ranks = dist::make_local_group(2);
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/llama";
  const Loaded whole = load_part(folder, nullptr);
  // Rank 1: it tells nobody what it does.
  auto group = std::make_shared<models::ModelGroup>(std::move(ranks[1]), Cuts{.context = 2});
  const Loaded part = load_part(folder, group);
  ASSERT_TRUE(whole.ok() && part.ok());
  const runtime::KvMemoryOptions memory{.block_size = 16, .type = DType::F32, .blocks = {5}};
  const auto all = runtime::ModelRunner::make(**whole, memory, {});
  const auto own = runtime::ModelRunner::make(**part, memory, {});
  ASSERT_TRUE(all.ok() && own.ok());
  EXPECT_EQ((*all)->memory().bytes(), 2 * (*own)->memory().bytes());
  EXPECT_EQ((*own)->memory().block_size(), 16);
  const auto odd = runtime::ModelRunner::make(**part, {.block_size = 15, .blocks = {5}}, {});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().message, "--block-size is 15, which 2 ranks (--cp) cannot share equally");
}

// And all of the keys that its layers choose positions by.
TEST(Parallel, ARankKeepsAllIndexKeys) {
  auto ranks = dist::make_local_group(2);
  auto group = std::make_shared<models::ModelGroup>(std::move(ranks[1]), Cuts{.context = 2});
  const Loaded part = load_part(std::string(SLUICE_TEST_DATA) + "/deepseek_v32", group);
  ASSERT_TRUE(part.ok()) << part.error().message;
  const auto own =
      runtime::ModelRunner::make(**part, {.block_size = 16, .type = DType::F32, .blocks = {5}}, {});
  ASSERT_TRUE(own.ok());
  const kernels::PagedKv& kv = (*own)->memory().layers()[0];
  EXPECT_EQ(kv.k.dim(1), 8);
  EXPECT_EQ(kv.index.dim(1), 16);
  const int64_t each = models::kv_bytes_per_token((*part)->spec(), DType::F32, group->placement().context);
  EXPECT_EQ((*own)->memory().bytes(), 5 * 16 * each);
}

TEST(Parallel, TwoStagesHaveTheBitsOfOne) {
  EXPECT_GE(count_cut({.stages = 2}, 0), 50);
}

// The cut changes no bit.
TEST(Parallel, StagesByHandHaveTheBitsOfOne) {
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/llama";
  const auto layers = static_cast<int>(models::open_model(folder).value().spec.layers.size());
  ASSERT_GE(layers, 2);
  const std::vector<Token> prompt{1, 2, 3};
  EXPECT_TRUE(compare(folder, {.stages = 2, .stage_layers = {1, layers - 1}}, prompt).same_bits);
  const Compared wrong = compare(folder, {.stages = 2, .stage_layers = {1, layers}}, prompt);
  ASSERT_FALSE(wrong.error.ok());
  EXPECT_THAT(wrong.error.error().message, testing::HasSubstr("--pp-layers gives the stages"));
  EXPECT_FALSE((Cuts{.stages = 2, .stage_layers = {1, 2, 3}}.check().ok()));
  EXPECT_FALSE((Cuts{.stages = 2, .stage_layers = {0, 2}}.check().ok()));
}

TEST(Parallel, TensorRanksInStagesAgreeWithOne) {
  EXPECT_GE(count_cut({.tensor = 2, .stages = 2}, 1e-5), 64);
}

}  // namespace sluice
