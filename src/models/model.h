// A loaded model: its files, its spec and its weights on a back-end.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "formats/tensor_store.h"
#include "kernels/backend.h"
#include "models/loading/weights.h"
#include "models/model_group.h"
#include "models/spec.h"
#include "models/vision/vision.h"

namespace sluice::models {

// The parts of a model that need no back-end.
struct ModelFiles {
  std::string path;
  ModelSpec spec;
  formats::TensorStore tensors;
  formats::GgufMetadata metadata;  // empty for Hugging Face folders
  bool is_gguf = false;
  std::optional<VisionSpec> vision =
      std::nullopt;  // absent: the model reads text alone, or its tower is not known
};

struct Model {
  ModelFiles files;
  ModelWeights weights;
  std::optional<VisionWeights> vision;
  std::string no_vision;  // why there is no tower though the files have one
  std::shared_ptr<kernels::Backend> backend;
  std::shared_ptr<ModelGroup> group;  // null: one rank computes all of it
  std::optional<ModelSpec> part;      // of files.spec, that this rank of the group computes

  // What is computed here.
  const ModelSpec& spec() const { return part ? *part : files.spec; }
};

struct OpenOptions {
  int serving_context = 0;  // most positions of a sequence; 0: what the model was made for
  std::string mmproj;  // GGUF file of a vision tower; empty: the one beside the model's GGUF file, if any
};

// `path` is a .gguf file or a folder with config.json and safetensors. Reads headers only.
Result<ModelFiles> open_model(const std::string& path, const OpenOptions& options = {});

// Binds the weights, with a group those of this rank; the files stay mapped as long as the model lives.
Result<std::unique_ptr<Model>> load_model(
    ModelFiles files, std::shared_ptr<kernels::Backend> backend, Progress progress = [](float) {},
    std::shared_ptr<ModelGroup> group = nullptr);

}  // namespace sluice::models
