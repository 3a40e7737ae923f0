// Importance of a model's columns, measured on a text.
#pragma once

#include <string>

#include "base/result.h"
#include "lab/quantize/importance.h"

namespace sluice::cli {

struct CalibrationOptions {
  std::string text;    // a file; empty: no calibration
  int contexts = 100;  // at most, of 512 tokens or what the model has
  int threads = 0;
};

struct Calibration {
  lab::Importance importance;
  std::string text;  // which it was, in words: name, contexts and digest
};

// Runs the model at `path` on the CPU over the text. Progress goes to stderr.
Result<Calibration> calibrate(const std::string& path, const CalibrationOptions& options);

}  // namespace sluice::cli
