#include "models/loading/locate.h"

namespace sluice::models {

std::vector<std::string> spellings(const std::string& stem) {
  std::vector<std::string> out{stem};
  const size_t dot = stem.find('.');
  if (dot == std::string::npos) return {stem, "language_model." + stem};
  out.push_back(stem.substr(dot + 1));
  out.push_back("language_model." + stem);
  if (!stem.starts_with("model.")) return out;
  for (const char* decoder : {"model.language_model.", "model.text_model."})
    out.push_back(decoder + stem.substr(6));
  return out;
}

std::optional<std::string> locate_tensor(const formats::TensorStore& store, const std::string& stem,
                                         std::string_view suffix) {
  for (const std::string& spelling : spellings(stem)) {
    std::string full = spelling + std::string(suffix);
    if (store.contains(full)) return full;
  }
  return std::nullopt;
}

}  // namespace sluice::models
