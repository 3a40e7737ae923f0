#include "lab/plan/planner.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lab/plan/calibrate.h"
#include "lab/plan/verify.h"
#include "models/outline.h"
#include "runtime/device.h"

namespace sluice::lab {
namespace {

// A config.json alone in a folder of its own.
class ConfigFile {
 public:
  explicit ConfigFile(std::string_view text) {
    folder_ = std::filesystem::temp_directory_path() /
              ("sluice_plan_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    std::filesystem::create_directories(folder_);
    std::ofstream(path()) << text;
  }
  ~ConfigFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path() const { return (folder_ / "config.json").string(); }

 private:
  std::filesystem::path folder_;
};

constexpr std::string_view kLlama8B = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})";
constexpr std::string_view kMixtral = R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 32000, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
  "num_local_experts": 8, "num_experts_per_tok": 2})";

ModelSheet sheet_of(std::string_view config, SheetOptions options = {}) {
  const ConfigFile file(config);
  Result<models::ModelFiles> files = models::open_outline(file.path());
  EXPECT_TRUE(files.ok()) << (files.ok() ? "" : files.error().message);
  return make_sheet(*files, options);
}

Machine named(std::string_view name) {
  return *machine_named(name);
}

TEST(Plan, KnowsWeightsAndKvOfAModelFromItsConfigAlone) {
  const ModelSheet sheet = sheet_of(kLlama8B);
  EXPECT_NEAR(sheet.stored_bytes, 2 * 8.03e9, 0.02e9);
  EXPECT_DOUBLE_EQ(sheet.kv_bytes(1), 2.0 * 2 * 32 * 8 * 128);
  EXPECT_DOUBLE_EQ(sheet.layer_elements(),
                   32.0 * (4096.0 * (4096 + 2048) + 4096.0 * 4096 + 3 * 4096.0 * 14336));
}

TEST(Plan, FillsTheMemoryBesideTheWeights) {
  const Plan plan = make_plan(sheet_of(kLlama8B), named("H100"), {});
  EXPECT_NEAR(plan.fitting_tokens, (80e9 * 0.9 - 16.06e9) / 131072, 1000);
  EXPECT_EQ(plan.rooms[1].largest_batch, static_cast<int64_t>(plan.fitting_tokens / 1024));
}

TEST(Plan, DevicesShareWeightsAndAsMuchKvAsThereAreHeads) {
  PlanOptions two, sixteen, stages;
  two.cut = {.tensor = 2};
  sixteen.cut = {.tensor = 16};
  stages.cut = {.tensor = 2, .stages = 2};
  const Plan alone = make_plan(sheet_of(kLlama8B), named("H100"), {});
  const Plan pair = make_plan(sheet_of(kLlama8B), named("H100"), two);
  EXPECT_DOUBLE_EQ(pair.model.device_weights(), alone.model.device_weights() / 2);
  EXPECT_DOUBLE_EQ(pair.model.device_kv(100), alone.model.device_kv(100) / 2);
  EXPECT_GT(pair.fitting_tokens, 2 * alone.fitting_tokens);
  EXPECT_LT(pair.reference.tpot, alone.reference.tpot);
  EXPECT_DOUBLE_EQ(pair.price, 2 * alone.price);
  EXPECT_NE(plan_text(pair).find("on 2 x H100"), std::string::npos);
  // Eight KV heads are on two devices each.
  const Plan many = make_plan(sheet_of(kLlama8B), named("H100"), sixteen);
  EXPECT_DOUBLE_EQ(many.model.device_kv(100), alone.model.device_kv(100) / 8);
  // Stages take turns: more room, and the time of the stream between them.
  const Plan staged = make_plan(sheet_of(kLlama8B), named("H100"), stages);
  EXPECT_DOUBLE_EQ(staged.model.device_kv(100), alone.model.device_kv(100) / 4);
  EXPECT_GT(staged.model.seconds({1, 1, 100}), pair.model.seconds({1, 1, 100}));
  EXPECT_LT(staged.model.seconds({1, 1, 100}), pair.model.seconds({1, 1, 100}) + 2e-5);
}

TEST(Plan, OneTokenTakesAtLeastTheReadingOfTheWeights) {
  const Plan plan = make_plan(sheet_of(kLlama8B), named("H100"), {});
  const PlanCell& first = plan.cells.front();
  const double weights = plan.model.sheet().stored_bytes - 2.0 * 128256 * 4096;  // the embedding is looked up
  EXPECT_GT(first.tpot, weights / 3350e9);
  EXPECT_LT(first.tpot, 2 * weights / 3350e9);
  EXPECT_EQ(first.bound, Bound::Memory);
}

TEST(Plan, DecodeTurnsComputeBoundWhereTheBatchMeetsTheRidge) {
  const Plan plan = make_plan(sheet_of(kLlama8B), named("H100"), {.contexts = {1, 1 << 20}});
  ASSERT_TRUE(plan.rooms[0].compute_bound_from);
  EXPECT_NEAR(*plan.rooms[0].compute_bound_from, 989e12 / 3350e9,
              15);  // 2 operations for 2 bytes of each weight
  EXPECT_FALSE(plan.rooms[1].compute_bound_from);
}

TEST(Plan, ATokenReadsTheExpertsItUsesAndABatchReadsMore) {
  const CostModel model(sheet_of(kMixtral), named("H200"));
  const auto experts = [&](int batch) {
    for (const PlannedOperation& one : model.operations({batch, 1, 0}))
      if (one.name == "experts") return one.bytes;
    return 0.0;
  };
  const double all = 2.0 * 32 * 8 * 3 * 4096 * 14336;
  EXPECT_NEAR(experts(1), all * 2 / 8, all * 1e-6);
  EXPECT_GT(experts(64), 0.99 * all);
}

TEST(Plan, LatentAttentionKeepsOneVectorOfAPosition) {
  ModelSheet sheet;
  sheet.spec.dim = 64;
  sheet.spec.layers.push_back(
      {.mixer =
           models::LatentAttention{
               .heads = 4, .latent = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128},
       .ffn = models::DenseFfn{.inner = 128}});
  models::ModelFiles files;
  files.spec = sheet.spec;
  EXPECT_DOUBLE_EQ(make_sheet(files, {}).kv_bytes(10), 10 * 2.0 * (512 + 64));
}

// All of their keys are read, and few of the latents.
TEST(Plan, IndexersKeepKeysAndBoundWhatIsAttendedTo) {
  models::ModelFiles files;
  files.spec.dim = 64;
  for (const int heads : {8, 0})
    files.spec.layers.push_back({.mixer = models::LatentAttention{.heads = 4,
                                                                  .q_latent = 96,
                                                                  .latent = 512,
                                                                  .nope_dim = 128,
                                                                  .rope_dim = 64,
                                                                  .value_dim = 128,
                                                                  .indexer = {100, heads, heads * 16}},
                                 .ffn = models::DenseFfn{.inner = 128}});
  const ModelSheet sheet = make_sheet(files, {});
  EXPECT_DOUBLE_EQ(sheet.kv_bytes(1000), 1000 * 2.0 * (2 * (512 + 64) + 128));
  double bytes = 0, operations = 0;
  for (const PlannedOperation& one : CostModel(sheet, named("H200")).operations({1, 1, 999})) {
    if (one.name != "attention (chosen)" && one.name != "indexer scores") continue;
    bytes += one.bytes;
    operations += one.operations;
  }
  EXPECT_DOUBLE_EQ(bytes, 2.0 * (2 * 100 * (512 + 64) + 1000 * 128));
  EXPECT_DOUBLE_EQ(operations, 2.0 * (2 * 4 * (512 + 64 + 512) * 100.0 + 8 * 128 * 1000.0));
}

TEST(Plan, IndexersOfBlocksBoundWhatIsAttendedTo) {
  models::ModelFiles files;
  files.spec.dim = 64;
  files.spec.layers.push_back(
      {.mixer = models::Attention{.heads = 8, .kv_heads = 2, .head_dim = 64, .indexer = {10, 16, 1, 2, 32}},
       .ffn = models::DenseFfn{.inner = 128}});
  const ModelSheet sheet = make_sheet(files, {});
  EXPECT_DOUBLE_EQ(sheet.kv_bytes(1000), 1000 * 2.0 * (2 * 2 * 64 + 32));
  double bytes = 0, operations = 0;
  for (const PlannedOperation& one : CostModel(sheet, named("H200")).operations({1, 1, 999})) {
    if (one.name != "attention (chosen)" && one.name != "indexer scores") continue;
    bytes += one.bytes;
    operations += one.operations;
  }
  EXPECT_DOUBLE_EQ(bytes, 2.0 * (160 * 2 * 2 * 64 + 1000 * 32));
  EXPECT_DOUBLE_EQ(operations, 2.0 * (8 * 2 * 64 * 160.0 + 2 * 32 * 1000.0));
}

TEST(Plan, AWindowBoundsTheKvOfItsLayers) {
  models::ModelFiles files;
  files.spec.dim = 64;
  for (const int window : {0, 100})
    files.spec.layers.push_back(
        {.mixer = models::Attention{.heads = 4, .kv_heads = 2, .head_dim = 16, .window = window},
         .ffn = models::DenseFfn{.inner = 128}});
  const ModelSheet sheet = make_sheet(files, {});
  EXPECT_DOUBLE_EQ(sheet.kv_bytes(1000), (1000 + 100) * 2 * 2 * 16 * 2.0);
}

TEST(Plan, ChangesMoveTheFiguresTheWayTheyShould) {
  const Plan plan = make_plan(sheet_of(kLlama8B), named("H100"), {});
  const auto change = [&](std::string_view prefix) {
    for (const PlanChange& one : plan.changes)
      if (one.name.starts_with(prefix)) return one;
    ADD_FAILURE() << "no change '" << prefix << "'";
    return PlanChange{};
  };
  const PlanChange base = change("as planned");
  EXPECT_DOUBLE_EQ(base.tpot, plan.reference.tpot);
  EXPECT_LT(change("weights in Q4_K").tpot, 0.7 * base.tpot);
  EXPECT_LT(change("KV cache").tpot, base.tpot);
  EXPECT_LT(change("prompt caching").ttft, 0.6 * base.ttft);
  EXPECT_DOUBLE_EQ(change("prompt caching").tpot, base.tpot);
  EXPECT_LT(change("prompts compressed").ttft, 0.6 * base.ttft);
  EXPECT_LT(change("speculation").tpot, base.tpot);
  EXPECT_LT(change("tensor parallel").tpot, base.tpot);
  EXPECT_GT(change("tensor parallel").cost, 0.5 * base.cost);
  EXPECT_NEAR(change("pipeline parallel").throughput / base.throughput, 2, 0.01);
  EXPECT_NEAR(change("pipeline parallel").cost / base.cost, 1, 0.01);
  EXPECT_LT(change("B200").tpot, base.tpot);
  EXPECT_GT(change("EPYC").tpot, base.tpot);
}

TEST(Plan, APriceBecomesACostOfTokens) {
  EXPECT_NEAR(cost_of_million(3.6, 1000), 1.0, 1e-12);
  const Plan plan = make_plan(sheet_of(kLlama8B), named("H100"), {.price = 7.2});
  EXPECT_NEAR(plan.cells[0].cost, 7.2 / 3600 * 1e6 * plan.cells[0].tpot, 1e-9);
}

TEST(Plan, ReportsNeedNoNetworkAndSayTheSame) {
  const Plan plan = make_plan(sheet_of(kLlama8B), named("RTX 4090"), {});
  const std::string page = plan_html(plan);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  const json::object json = plan_json(plan);
  EXPECT_EQ(json.at("cells").as_array().size(), plan.cells.size());
  EXPECT_NE(plan_text(plan).find("RTX 4090"), std::string::npos);
  EXPECT_NE(plan_words(plan).find("compute-bound"), std::string::npos);
}

TEST(Machine, AnUnknownNameListsTheKnownOnes) {
  const Result<Machine> machine = machine_named("H900");
  ASSERT_FALSE(machine.ok());
  EXPECT_NE(machine.error().message.find("RTX 4090"), std::string::npos);
  EXPECT_EQ(machine_named("rtx4090")->name, "RTX 4090");
}

TEST(Machine, IsTheSameAfterAFile) {
  Machine machine = named("H200");
  machine.gemms = {{DType::Q8_0, 512, 1, 2e-12},
                   {DType::Q8_0, 512, 16, 8e-12},
                   {DType::Q8_0, 2048, 1, 1e-12},
                   {DType::Q8_0, 2048, 16, 4e-12}};
  machine.attention = {1, 2, 3, 4};
  machine.attentions = {{9, 3, 64, 4, 1, 128, 1e-3}};
  machine.steps = {.type = DType::Q8_0, .elements = 7, .steps = {{8, 4, 1, 16, true, 2e-3}}};
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sluice_machine_" + std::to_string(getpid()) + ".json"))
          .string();
  ASSERT_TRUE(save_machine(machine, path).ok());
  const Result<Machine> again = load_machine(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(write_json(to_json(*again)), write_json(to_json(machine)));
  const auto seconds = [&](double rows, double width) {
    return gemm_seconds_per_element(*again, DType::Q8_0, rows, width);
  };
  EXPECT_NEAR(seconds(8.5, 2048), 2.5e-12, 1e-18);
  EXPECT_NEAR(seconds(32, 1e6), 8e-12, 1e-18);
  EXPECT_NEAR(seconds(1, 100), 2e-12, 1e-18);
  EXPECT_NEAR(seconds(1, 1024), 4e-12 / 3, 1e-18);  // a + b / width through both
  EXPECT_EQ(gemm_seconds_per_element(*again, DType::F32, 8, 512), 0);
}

TEST(Machine, ADamagedProfileIsAnErrorThatNamesTheKey) {
  const Result<json::value> value = parse_json(R"({"name": "x", "memory_bytes": -1})", "profile");
  const Result<Machine> machine = machine_from_json(*value, "profile");
  ASSERT_FALSE(machine.ok());
  EXPECT_NE(machine.error().message.find("memory_bytes"), std::string::npos);
}

TEST(Calibrate, MeasuresEveryTypeAndCount) {
  runtime::DeviceOptions device;
  device.device = "cpu";
  device.threads = 1;
  const auto backend = runtime::make_backend(device);
  ASSERT_TRUE(backend.ok());
  const Machine machine = calibrate(
      **backend, {.types = {DType::Q8_0}, .rows = {1, 2}, .repeat = 1, .matrix_bytes = 1}, [](auto&) {});
  ASSERT_EQ(machine.gemms.size(), 4u);  // with two widths
  EXPECT_GT(machine.gemms[0].seconds_per_element, 0);
  EXPECT_TRUE(machine.attention.measured());
  EXPECT_GE(machine.attention.read, 0);
  EXPECT_GT(machine.attention.tile_long, 0);
  EXPECT_GT(machine.read, 0);
  EXPECT_GT(machine.overhead, 0);
  for (const GemmRate& rate : machine.gemms)  // no GEMM is faster than the limits
    EXPECT_LE(2 * rate.rows / rate.seconds_per_element, machine.multiply_rate(rate.type) * 1.0001);
}

TEST(Calibrate, MeasuresTheGemmsOfAModelsStep) {
  runtime::DeviceOptions device;
  device.device = "cpu";
  device.threads = 1;
  const auto backend = runtime::make_backend(device);
  ASSERT_TRUE(backend.ok());
  Machine machine = named("EPYC");
  machine.gemms = {{DType::Q8_0, 64, 1, 1}, {DType::Q8_0, 96, 1, 1, 64}};
  const std::vector<StepGemm> step{
      {DType::Q8_0, 96, 64}, {DType::Q8_0, 64, 96}, {DType::Q8_0, 96, 64}, {DType::F16, 320, 64}};
  calibrate_for(machine, **backend, {.types = {}, .step = step, .repeat = 2, .matrix_bytes = 1});
  EXPECT_EQ(gemm_seconds_per_element(machine, DType::Q8_0, 1, 64), 1);  // square ones stay
  for (const StepGemm& gemm : step)
    for (const double rows : {1.0, 3.0, 512.0}) {
      EXPECT_GT(shape_seconds_per_element(machine, gemm, rows), 0);
      EXPECT_LT(shape_seconds_per_element(machine, gemm, rows), 1e-3);
    }
  EXPECT_EQ(shape_seconds_per_element(machine, {DType::Q8_0, 64, 64}, 1), 0);
  EXPECT_EQ(machine.gemms.size(), 1u + 3 * 19);  // three shapes with as many numbers of rows each
}

TEST(Plan, KnowsTheShapesOfAStepsGemms) {
  const std::vector<StepGemm> step = step_gemms(sheet_of(kLlama8B));
  ASSERT_EQ(step.size(), 4u * 32 + 1);
  EXPECT_EQ(step[0], (StepGemm{DType::BF16, 4096 + 2 * 1024, 4096}));
  EXPECT_EQ(step[2], (StepGemm{DType::BF16, 2 * 14336, 4096}));
  EXPECT_EQ(step[4], step[0]);
  EXPECT_EQ(step.back(), (StepGemm{DType::BF16, 128256, 4096}));
}

TEST(Plan, AGemmWhoseShapeWasMeasuredCountsWithThat) {
  Machine machine = named("EPYC");
  machine.overhead = machine.elementwise = 0;
  machine.gemms = {{DType::BF16, 512, 1, 1e-12}};
  const ModelSheet sheet = sheet_of(kLlama8B);
  const double square = CostModel(sheet, machine).token_seconds(1, 0);
  EXPECT_NEAR(square, sheet.layer_elements() * 1e-12, 1e-3);
  machine.gemms.push_back({DType::BF16, 4096, 1, 5e-12, 14336});  // down
  const double down = 32.0 * 4096 * 14336;
  EXPECT_NEAR(CostModel(sheet, machine).token_seconds(1, 0) - square, down * 4e-12, down * 1e-15);
}

TEST(Plan, MeasuredStepsOfTheModelCountBeforeItsOperations) {
  const ModelSheet sheet = sheet_of(kLlama8B);
  Machine machine = named("H200");
  machine.steps = {.type = sheet.weights, .kv_type = sheet.kv_type, .elements = sheet.layer_elements()};
  machine.steps.steps = {{8, 1, 1, 16, false, 8}, {1, 1, 1, 16, true, 6}, {8, 1, 1, 128, false, 24}};
  const CostModel model(sheet, machine);
  EXPECT_NEAR(model.token_seconds(1, 1), 32 * 1 + 5, 1e-9);
  EXPECT_NEAR(model.seconds({1, 1, 128}), 32 * 3 + 5, 1e-9);
  double operations = 0;
  for (const PlannedOperation& one : model.operations({1, 1, 16}))
    if (one.name != "output") operations += one.seconds;
  EXPECT_NEAR(operations, 32, 1e-9);  // what the matrices leave over is in the norms, gates and positions
  machine.steps.elements += 1;        // another model's
  EXPECT_LT(CostModel(sheet, machine).token_seconds(1, 1), 1);
  machine.steps.elements -= 1;
  EXPECT_LT(CostModel(sheet, machine, {.tensor = 2}).token_seconds(1, 1),
            1);  // two devices were not measured
}

TEST(Plan, SeveralPromptsFillTheirStepsUp) {
  const CostModel model(sheet_of(kLlama8B), named("EPYC"));
  const double attention = 4 * model.attention_seconds(128, 0);
  EXPECT_NEAR(model.prompts_seconds(4, 128, 0, 512), model.token_seconds(512, 4) + attention, 1e-9);
  // Of the third prompt 100 tokens come into the first step and 28 into the second.
  EXPECT_NEAR(model.prompts_seconds(3, 128, 0, 356),
              model.token_seconds(356, 2) + model.token_seconds(28, 1) + 2 * model.attention_seconds(128, 0) +
                  model.attention_seconds(100, 0) + model.attention_seconds(28, 100),
              1e-9);
  EXPECT_DOUBLE_EQ(model.prompts_seconds(1, 1000, 0, 512), model.prompt_seconds(1000, 0, 512));
}

TEST(Verify, MeasuresBesideACellWhatItsPredictionRestsOn) {
  runtime::DeviceOptions device;
  device.device = "cpu";
  device.threads = 1;
  const auto backend = runtime::make_backend(device);
  ASSERT_TRUE(backend.ok());
  const std::filesystem::path tests = std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path();
  Result<models::ModelFiles> files = models::open_model((tests / "runtime/data/expert").string());
  ASSERT_TRUE(files.ok()) << files.error().message;
  const auto model = models::load_model(std::move(*files), *backend);
  ASSERT_TRUE(model.ok());
  const ModelSheet sheet = make_sheet((*model)->files, {.weights = {}, .kv_type = DType::F16});
  Calibration calibration(**backend, options_for(sheet, **model));
  const Plan plan = make_plan(sheet, named("EPYC"), {.batches = {1, 4}, .contexts = {16, 32}});
  const auto cells = verify_plan(plan, **model, {.repeat = 2, .calibration = &calibration}, [](auto&) {});
  ASSERT_TRUE(cells.ok()) << cells.error().message;
  ASSERT_EQ(cells->size(), 8u);
  for (const VerifiedCell& cell : *cells) {
    EXPECT_EQ(cell.samples.size(), 2u);
    ASSERT_EQ(cell.predictions.size(), 2u);
    EXPECT_GT(cell.predicted, 0);
    EXPECT_NE(cell.predictions[0], cell.predictions[1]);  // each by its own samples
  }
}

TEST(Verify, NamesTheWorstCellAndThoseThatDoNotFit) {
  const std::string text = verify_text({{"decode x1 at 128", 1.1, 1, 0},
                                        {"decode x4 at 128", 0.8, 1, 0},
                                        {.name = "decode x64 at 4096", .left_out = "no room"}});
  EXPECT_NE(text.find("worst: decode x4 at 128, -20.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("not measured: decode x64 at 4096: no room"), std::string::npos) << text;
}

TEST(Plan, AttentionOfAModelsHeadsLiesBetweenItsMeasuredCalls) {
  Machine machine = named("EPYC");
  machine.gemms = {{DType::BF16, 512, 1, 1e-12}};
  machine.attention = {.read = 5, .row = 1, .tile_short = 1, .tile_long = 3};
  const auto call = [](int sequences, int queries, double seen, double seconds) {
    return AttentionRate{32, 8, 128, sequences, queries, seen, seconds};
  };
  machine.attentions = {call(1, 1, 128, 1), call(1, 1, 1024, 8), call(16, 1, 128, 8), call(16, 1, 1024, 64),
                        call(1, 256, 128, 1)};
  const CostModel model(sheet_of(kLlama8B), machine);
  EXPECT_NEAR(model.attention_seconds(1, 575, 1), 32 * 4.5, 1e-9);      // half way between the contexts
  EXPECT_NEAR(model.attention_seconds(1, 127, 4), 32 * 0.75, 1e-9);     // and between the batches
  EXPECT_NEAR(model.attention_seconds(1, 2047, 16), 32 * 8.0, 1e-9);    // on with the slope
  EXPECT_NEAR(model.attention_seconds(128, 191.5, 1), 32 * 1.0, 1e-9);  // as many operations
  machine.attentions[0].heads = machine.attentions[4].heads = 9;        // others' say nothing
  EXPECT_NEAR(CostModel(sheet_of(kLlama8B), machine).attention_seconds(511, 0),
              2 * 511.0 * 32 * 32 * 256 * 256, 1e3);
}

TEST(Plan, MeasuredAttentionCountsWhatItsRowsShare) {
  Machine machine = named("EPYC");
  machine.gemms = {{DType::BF16, 512, 1, 1e-12}};
  machine.attention = {.read = 5, .row = 1, .tile_short = 1, .tile_long = 3};
  const CostModel model(sheet_of(kLlama8B), machine);
  const double dims = 32.0 * 256;  // layers, keys and values of a head
  EXPECT_NEAR(model.attention_seconds(1, 99), 8 * dims * 100 * (5 + 4), 1);  // four query heads to a KV head
  EXPECT_NEAR(model.attention_seconds(511, 0), 2 * 511.0 * 32 * dims * 256 * 1, 1e3);
  EXPECT_NEAR(model.attention_seconds(1023, 3585), 2 * 1023.0 * 32 * dims * 4097 * 3, 1e6);
}

}  // namespace
}  // namespace sluice::lab
