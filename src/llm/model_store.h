// Models that already lie on this machine, and names that stand for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::llm {

inline constexpr std::string_view kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

struct FoundModel {
  std::string name;    // what --model takes: "hf:org/name", "ollama:name:tag", "smollm2", a path
  std::string path;    // the file or folder
  std::string source;  // "default", "Hugging Face cache", "Ollama", "LM Studio"
  int64_t bytes = 0;
};

// Looks into the Hugging Face cache, the Ollama store, LM Studio's folder and our own; the environment
// variables that move those are respected. Unreadable places are skipped.
std::vector<FoundModel> find_models();

// The model that a reference means: a path, "hf:org/name[:part of a file name]" or bare "org/name", "ollama:name[:tag]" or bare "name[:tag]",
// an alias ("smollm2"), or "" for the default model. Names are matched against what find_models() sees, never joined into paths.
// The name of a path that no list holds is its file's or folder's, and its source is empty.
Result<FoundModel> find_model(const std::string& reference);
// The same, of which the path alone is wanted.
Result<std::string> resolve_model(const std::string& reference);

}  // namespace sluice::llm
