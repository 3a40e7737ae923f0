// Times steps of some layers of a model, through its decoder and with its own weights: what a layer costs by the tokens of
// a step, what attention adds by sequences and context, and what embedding, output matrix and sampling cost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "lab/measure/track.h"
#include "lab/plan/sheet.h"
#include "lab/plan/step_table.h"
#include "lab/stopwatch.h"
#include "models/model.h"

namespace sluice::lab {

struct LayerProbeOptions {
  TimeSource time = TimeSource::Wall;
  int turns = 1;           // calls of sample() over which all points are spread
  int step_tokens = 8192;  // of the largest step
};

class LayerProbe {
 public:
  // The model outlives it. REQUIRES: can_be_cut(model.spec()).
  static Result<std::unique_ptr<LayerProbe>> make(const models::Model& model, const ModelSheet& sheet,
                                                  const LayerProbeOptions& options);

  void sample();
  // The points that a prediction rests on. Each has a sample afterwards.
  std::vector<size_t> points_behind(const std::function<double(const StepRates&)>& predict);
  void sample(std::span<const size_t> points);
  // How many samples each point has.
  std::vector<size_t> counts() const;
  // The mean of each point's samples but the slowest. `since`, of counts(): those before it count only where a point has
  // none behind it.
  StepRates rates(std::span<const size_t> since = {}) const;

 private:
  struct Point {
    StepRate step;
    Track* track = nullptr;
    int runs = 0;  // of one sample; 0: not known yet
    std::vector<double> samples = {};
  };

  LayerProbe(const models::Model& model, const ModelSheet& sheet, const LayerProbeOptions& options);

  Status add_base();
  Status add_attention();
  // With a track for so many sequences and positions, or the shared one of base steps.
  Status add(StepRate step, bool shared);
  Status add_pair(StepRate step,
                  bool shared);  // of the layers and of one alone, where logits are part of both
  int layers_for(int tokens, double kv_bytes) const;
  Result<std::unique_ptr<Track>> make_track(int layers, int sequences, int positions);
  void run(Point& point);
  void run_steps(const Point& point, int count);

  const models::Model& model_;
  LayerProbeOptions options_;
  bool device_;  // works beside the host
  int layers_;
  double layer_elements_, layer_bytes_, kv_width_;  // of one layer; bytes of its KV for a position
  StepRates rates_;
  std::map<int, std::unique_ptr<models::Model>> cuts_;  // by layers
  std::map<int, std::unique_ptr<Track>> shared_;        // by layers
  std::vector<std::unique_ptr<Track>> own_;
  std::vector<Point> points_;
  size_t next_ = 0;
};

}  // namespace sluice::lab
