// How long a step of a model takes on a machine: by measured rates where the machine has them, else by its limits and
// the shares of them that steps reach.
#pragma once

#include <string>
#include <vector>

#include "lab/plan/machine.h"
#include "lab/plan/sheet.h"
#include "lab/roofline.h"

namespace sluice::lab {

// All calls of one kind in a step.
struct PlannedOperation {
  std::string name;
  double bytes = 0, operations = 0;
  double seconds = 0;
  Bound bound = Bound::Memory;

  double intensity() const { return bytes > 0 ? operations / bytes : 0; }  // operations per byte
};

// Devices that compute a model together: those of one stage share every matrix and all heads, stages have layers of their own
// and take turns.
struct DeviceCut {
  int tensor = 1, stages = 1;
  int devices() const { return tensor * stages; }
};

class CostModel {
 public:
  CostModel(ModelSheet sheet, Machine machine, DeviceCut cut = {});

  const ModelSheet& sheet() const { return sheet_; }
  const Machine& machine() const { return machine_; }
  const DeviceCut& cut() const { return cut_; }
  // "8 x H200"
  std::string machine_text() const;
  // What one device keeps. KV heads are on several of them where there are fewer than devices, latents on all.
  double device_weights() const { return sheet_.stored_bytes / cut_.devices(); }
  double device_kv(double context) const { return sheet_.kv_bytes(context, cut_.tensor) / cut_.stages; }

  // Every operation of a step, GEMMs first.
  std::vector<PlannedOperation> operations(const StepShape& shape) const;
  double seconds(const StepShape& shape) const;
  // A step is the sum of these, whatever mix of sequences it runs.
  double token_seconds(double tokens, double logit_rows) const;  // all but attention
  // Of one sequence among as many of its kind.
  double attention_seconds(double queries, double depth, int sequences = 1) const;

  // A prompt of so many tokens behind `cached` known ones, in steps of at most step_tokens.
  double prompt_seconds(double tokens, double cached, int step_tokens) const;
  // Several such prompts, one behind the other in steps that are filled up.
  double prompts_seconds(int sequences, double tokens, double cached, int step_tokens) const;

 private:
  PlannedOperation gemm(const MatrixGroup& group, double tokens, bool is_output) const;
  double measured_gemm(const MatrixGroup& group, DType type, double rows) const;
  PlannedOperation attend(const AttentionGroup& group, const StepShape& shape) const;
  double measured_attention(const AttentionGroup& group, const StepShape& shape, double seen) const;
  PlannedOperation elementwise(double tokens) const;
  PlannedOperation exchange(double tokens) const;  // between devices
  double layers_seconds(double tokens) const;      // by measured steps

  ModelSheet sheet_;
  Machine machine_;
  DeviceCut cut_;
  double ways_;
  StepTable steps_;  // of this model; empty: by operations
};

}  // namespace sluice::lab
