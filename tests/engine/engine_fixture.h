// An engine on the fake executor, stepped by the test on a clock of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/engine/answer.h"

namespace sluice::sim {

class EngineTest : public ::testing::Test {
 protected:
  void build(const engine::EngineOptions& options) {
    engine_.reset();  // before its executor
    executor_ = std::make_unique<FakeExecutor>(options.kv_manager);
    engine_ = std::make_unique<Engine>(options, *executor_, [this] { return now_; });
  }
  void SetUp() override { build(small_options()); }
  void run() {
    while (engine_->step()) now_ += std::chrono::milliseconds(10);
  }

  TimePoint now_{};
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::sim
