// Predictions beside measurements of the same model on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/plan/calibrate.h"
#include "lab/plan/planner.h"
#include "lab/stopwatch.h"
#include "models/model.h"

namespace sluice::lab {

struct VerifiedCell {
  std::string name;  // "prefill x4 at 128", "decode x16 at 4096"
  // Seconds, of the prompts or of one token: the median of the measurements, and of the predictions by what was measured
  // beside each, as shares of it.
  double predicted = 0, measured = 0;
  double spread = 0;                     // of the measurements, as a share
  std::string left_out = {};             // why it was not measured; empty: it was
  std::vector<double> samples = {};      // the measurements
  std::vector<double> predictions = {};  // one for each, where something was measured beside it

  double error() const { return predicted / measured - 1; }
};

struct VerifyOptions {
  int prompt_tokens = 8192;  // most tokens of the prompts of a cell, all together
  int repeat = 3;            // rounds over all cells; the median counts
  TimeSource time = TimeSource::Wall;
  // Not null: what a cell's prediction rests on is measured before, during and after each measurement of the cell.
  Calibration* calibration = nullptr;
};

// Prompts and tokens of every batch at every context, as far as they fit into memory beside the model. `progress` names each
// measurement with its round.
Result<std::vector<VerifiedCell>> verify_plan(const Plan& plan, const models::Model& model,
                                              const VerifyOptions& options,
                                              const std::function<void(const std::string&)>& progress);
std::string verify_text(const std::vector<VerifiedCell>& cells);
// The same with every sample, and with all that was measured of the machine.
json::object verify_json(const std::vector<VerifiedCell>& cells, const Machine& machine);

}  // namespace sluice::lab
