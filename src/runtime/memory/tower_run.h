// A pass of a vision tower over pictures that goes on from step to step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "models/vision/vision.h"
#include "request/prompt_input.h"
#include "runtime/memory/part_pace.h"

namespace sluice::runtime {

// Between begin_step() and end_step(), passes are begun and advanced as long as the step has time.
class TowerRun {
 public:
  using Images = std::vector<std::shared_ptr<const request::PromptImage>>;
  // The tower outlives it.
  explicit TowerRun(models::VisionTower& tower) : tower_(tower) {}

  void begin_step(double seconds);
  // Seconds of the step.
  double end_step();

  bool running() const { return pass_ != nullptr; }
  const Images& images() const { return images_; }
  // REQUIRES: !running().
  void begin(Images images);
  enum class State : uint8_t { Runs, OutOfTime, Done };
  // Runs a part. REQUIRES: running().
  State advance();
  // Embeddings of each image. REQUIRES: advance() was Done.
  std::vector<kernels::Memory> finish();
  // Ends the pass, whatever it has come to.
  void drop();
  // Ends the pass where no request holds a picture of it any more.
  void drop_forsaken();

 private:
  models::VisionTower& tower_;
  Images images_;
  std::shared_ptr<models::VisionTower::Pass> pass_;
  PartPace pace_;
  PartBudget budget_;
  TimePoint start_{};
  bool is_parted_ = false;
};

}  // namespace sluice::runtime
