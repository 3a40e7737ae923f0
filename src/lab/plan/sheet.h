// A model as a list of what its steps multiply and keep: all that the planner needs to know of it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lab/plan/machine.h"
#include "models/model.h"
#include "models/spec.h"

namespace sluice::lab {

// A matrix [outputs, inputs] that a step multiplies with so often, each time another one.
struct MatrixShape {
  int64_t outputs = 0, inputs = 0;
  int calls = 0;

  double elements() const { return double(outputs) * double(inputs); }
};

// Matrices of one kind in all layers.
struct MatrixGroup {
  std::string name;  // "qkv"
  double elements = 0;
  int calls = 0;                 // GEMMs of a step
  double experts = 1, used = 1;  // of a mixture: a token is multiplied with used / experts of the elements
  std::vector<MatrixShape> shapes = {};  // of all its GEMMs, or of none
};

// Attention of layers with the same shape and window, or their indexers, which have keys alone.
struct AttentionGroup {
  int layers = 0;
  int heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  int window = 0;       // 0: sees everything
  int chosen = 0;       // attends to so many of the positions that are kept; 0: to all
  double kv_width = 0;  // numbers kept of one position by the layers that keep any

  // By how much the KV of one of so many tensor parallel devices is less than all.
  double kv_share(int devices) const { return std::clamp(kv_heads, 1, devices); }
  bool is_indexer() const { return value_dim == 0; }
  // Positions that are kept, and those that a token attends to.
  double kept(double context) const { return window > 0 && context > window ? window : context; }
  double seen(double context) const { return chosen > 0 && context > chosen ? chosen : kept(context); }
};

struct ModelSheet {
  std::string name;
  models::ModelSpec spec;
  std::vector<MatrixGroup> matrices;  // of the layers
  MatrixGroup output;
  std::vector<AttentionGroup> attention;
  double elementwise = 0;  // numbers that a token's norms, gates and sums touch
  int operations = 0;      // calls of a step beside the GEMMs
  DType weights = DType::BF16, output_type = DType::BF16;
  double bytes_per_weight = 2, bytes_per_output = 2;
  double stored_bytes = 0;  // of all weights, embeddings included
  DType kv_type = DType::F16;

  // Of all layers, of one of so many tensor parallel devices; positions that a window has left behind are not kept.
  double kv_bytes(double context, int devices = 1) const;
  double layer_elements() const;
};

struct SheetOptions {
  std::optional<DType> weights;  // in place of the file's own; absent and no file: BF16
  DType kv_type = DType::F16;
};

// The GEMMs of a step in order, layer by layer and the output last; of matrices whose shapes are known.
std::vector<StepGemm> step_gemms(const ModelSheet& sheet);

ModelSheet make_sheet(const models::ModelFiles& files, const SheetOptions& options);

}  // namespace sluice::lab
