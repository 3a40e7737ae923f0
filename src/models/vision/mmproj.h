// Vision towers in GGUF files of their own ("mmproj"), beside the GGUF file of their decoder.
#pragma once

#include <string>

#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "models/vision/vision.h"

namespace sluice::models {

// What the tower's file leaves to the decoder's.
struct MmprojDecoder {
  const formats::GgufMetadata& metadata;  // with its vocabulary
  int layers = 0;
  int dim = 0;  // numbers of an embedding
};

struct Mmproj {
  VisionSpec spec;
  formats::TensorStore tensors;
};

// The tower's keys (clip.*) become the config.json that means the same, from which its family makes the spec; then the
// names are those of GGUF. Errors name the file and what is not known in it.
Result<Mmproj> open_mmproj(const std::string& path, const MmprojDecoder& decoder);
// The rules alone, on a file that is open. Nothing else reads `metadata` of another kind than "clip".
Result<VisionSpec> read_mmproj(const formats::Gguf& tower, const std::string& what,
                               const MmprojDecoder& decoder);

// The tower's file that lies beside a decoder's: the one file of the folder whose name begins with "mmproj" and ends with
// ".gguf". Empty where there is none, or several.
std::string find_mmproj(const std::string& decoder_path);

}  // namespace sluice::models
