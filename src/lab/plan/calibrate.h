// Measures the processor that this program runs on: what it reads and multiplies at most, how long its GEMMs take by type,
// width and rows, its attention, and what an operation costs beside its work.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "lab/plan/machine.h"
#include "lab/plan/sheet.h"
#include "lab/stopwatch.h"
#include "models/model.h"

namespace sluice::lab {

struct CalibrateOptions {
  int threads = 1;
  std::vector<DType> types{DType::BF16, DType::F16,  DType::Q8_0, DType::Q4_0,
                           DType::Q4_1, DType::Q4_K, DType::Q6_K};
  std::vector<int> rows{1, 4, 16, 64, 128, 512};
  AttentionRate heads = {.heads = 0};  // of a model: its attention is measured as well
  std::vector<StepGemm> step = {};     // of a model, the output matrix last: its GEMMs are measured as well
  // Steps of some of its layers are measured in the place of all of that; outlives the calibration, as its sheet does.
  const models::Model* model = nullptr;
  const ModelSheet* sheet = nullptr;
  int turns = 1;  // samples over which those steps are spread
  TimeSource time = TimeSource::Wall;
  int repeat = 4;                   // the mean of all but the slowest counts
  int64_t matrix_bytes = 64 << 20;  // of the matrices that are multiplied in turn: more than the caches hold
};

// Samples of everything but the limits, of which the mean of all but the slowest counts. They are taken one by one so
// that a comparison can spread them over the time in which it measures something else: both then see the same load of
// others.
class Calibration {
 public:
  // Keeps matrices of all types; the back-end outlives it.
  Calibration(kernels::Backend& backend, CalibrateOptions options);
  ~Calibration();

  void sample();
  // Puts the means in the place of what the machine has; of its GEMMs, those of these types.
  void apply(Machine& machine) const;

 private:
  friend class CalibrationWindow;
  struct Probes;
  std::unique_ptr<Probes> probes_;
};

// A measurement, with samples beside it of what its prediction rests on: on a machine whose speed others change from
// second to second, both then see the same speed. Where steps of a model's layers are measured, the prediction rests on
// samples of the window alone; else on all that the calibration has.
class CalibrationWindow {
 public:
  using Predict = std::function<double(const Machine&)>;

  // Takes the first samples. The calibration outlives it.
  CalibrationWindow(Calibration& calibration, Machine machine, Predict predict);

  void sample();
  double predicted() const;

 private:
  Calibration& calibration_;
  Machine machine_;
  Predict predict_;
  std::vector<size_t> points_, since_;
};

// What the predictions for a model need: its own GEMMs, and those of its type where their shapes are not known.
CalibrateOptions options_for(const ModelSheet& sheet);
// The same where the model is loaded: steps of its layers, where these are alike. Both outlive the calibration.
CalibrateOptions options_for(const ModelSheet& sheet, const models::Model& model);
// Measures that and puts it in the place of what the machine has.
void calibrate_for(Machine& machine, kernels::Backend& backend, const CalibrateOptions& options);

// `progress` names what is being measured.
Machine calibrate(kernels::Backend& backend, const CalibrateOptions& options,
                  const std::function<void(const std::string&)>& progress);

}  // namespace sluice::lab
