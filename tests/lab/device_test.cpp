#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lab/device/device_calibrate.h"
#include "lab/device/engine_verify.h"
#include "lab/measure/cut_model.h"
#include "lab/measure/layer_probe.h"
#include "tests/runtime/rig.h"

namespace sluice::lab {
namespace {

using runtime::test::AheadBackend;

struct OnDevice {
  std::shared_ptr<AheadBackend> backend = std::make_shared<AheadBackend>();
  std::unique_ptr<models::Model> model;

  OnDevice() {
    const std::filesystem::path tests = std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path();
    Result<models::ModelFiles> files = models::open_model((tests / "runtime/data/expert").string());
    EXPECT_TRUE(files.ok()) << (files.ok() ? "" : files.error().message);
    model = std::move(*models::load_model(std::move(*files), backend));
  }
  ModelSheet sheet() const { return make_sheet(model->files, {.weights = {}, .kv_type = DType::F32}); }
};

TEST(CalibrateDevice, MeasuresMemoryLinkLaunchesAndGemms) {
  AheadBackend backend;
  const Machine machine = calibrate_device(backend,
                                           {.types = {DType::F16, DType::Q8_0},
                                            .rows = {1, 3},
                                            .width = 64,
                                            .matrix_bytes = 1,
                                            .copied_bytes = 1 << 16,
                                            .linked_bytes = 1 << 16,
                                            .repeat = 1},
                                           [](const std::string&) {});
  EXPECT_EQ(machine.gemms.size(), 4u);
  EXPECT_EQ(machine.memory, double(1 << 30));
  for (const double figure : {machine.read, machine.host_link, machine.overhead, machine.elementwise})
    EXPECT_TRUE(std::isfinite(figure) && figure > 0);
  EXPECT_GT(backend.repeated_steps, 0);  // launches are measured as replayed steps have them
  for (const double rate : machine.multiply) EXPECT_GT(rate, 0);
}

TEST(LayerProbe, OnADeviceEveryStepHasItsTwinOfOneLayer) {
  const OnDevice here;
  ASSERT_TRUE(can_be_cut(here.model->spec()));
  const ModelSheet sheet = here.sheet();
  auto probe = LayerProbe::make(*here.model, sheet, {.step_tokens = 128});
  ASSERT_TRUE(probe.ok()) << probe.error().message;
  (*probe)->sample();
  const StepRates rates = (*probe)->rates();
  EXPECT_GT(here.backend->repeated_steps, 0);
  EXPECT_EQ(here.backend->downloads, 0);  // tokens are sampled where the logits are
  int whole = 0, alone = 0;
  for (const StepRate& step : rates.steps) {
    EXPECT_TRUE(step.logits);
    EXPECT_GT(step.seconds, 0);
    ++(step.layers == 1 ? alone : whole);
  }
  EXPECT_EQ(whole, alone);
  EXPECT_FALSE(StepTable(rates).empty());
  Machine machine = *machine_named("H200");
  const double by_limits = CostModel(sheet, machine).seconds({1, 1, 16});
  machine.steps = rates;
  EXPECT_NE(CostModel(sheet, machine).seconds({1, 1, 16}), by_limits);
}

TEST(VerifyEngine, RunsEveryBatchAtEveryContext) {
  const OnDevice here;
  EngineRunOptions options;
  options.flags.kv_type = DType::F32;
  options.sequences = 3;
  options.context = 40;
  options.flags.max_step_tokens = 64;
  auto run = EngineRun::make(*here.model, options);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_FALSE(here.backend->tuning);  // the device was warmed up
  const Plan plan =
      make_plan(here.sheet(), *machine_named("H200"), {.batches = {1, 3, 40}, .contexts = {16, 40}});
  const auto cells = verify_engine(plan, **run, 2, [](const std::string&) {});
  ASSERT_TRUE(cells.ok()) << cells.error().message;
  int measured = 0, left_out = 0;
  for (const VerifiedCell& cell : *cells) {
    if (!cell.left_out.empty()) {
      ++left_out;
      continue;
    }
    ++measured;
    EXPECT_EQ(cell.samples.size(), 2u);
    EXPECT_GT(cell.measured, 0);
    EXPECT_GT(cell.predicted, 0);
  }
  EXPECT_EQ(measured, 8);
  EXPECT_EQ(left_out, 4);  // forty sequences have no room
  const json::object written = verify_json(*cells, plan.model.machine());
  EXPECT_EQ(written.at("cells").as_array().size(), 12u);
  EXPECT_EQ(written.at("machine").as_object().at("name"), "H200");
}

}  // namespace
}  // namespace sluice::lab
