#include "llm/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace sluice::llm {

namespace fs = std::filesystem;

namespace {

constexpr int kMostEntries = 20000;  // of one place: a listing stays quick whatever lies there

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string home() {
  return environment("HOME");
}

std::vector<fs::path> list(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end && entries.size() < kMostEntries;
       it.increment(ec))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

int64_t file_bytes(const fs::path& path) {
  std::error_code ec;
  const auto bytes = fs::file_size(path, ec);
  return ec ? 0 : static_cast<int64_t>(bytes);
}

std::string read_text(const fs::path& path, size_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::string text(limit, '\0');
  file.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

fs::path hub_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (!environment(name).empty()) return environment(name);
  if (!environment("HF_HOME").empty()) return fs::path(environment("HF_HOME")) / "hub";
  if (!environment("XDG_CACHE_HOME").empty())
    return fs::path(environment("XDG_CACHE_HOME")) / "huggingface/hub";
  return fs::path(home()) / ".cache/huggingface/hub";
}

void add_snapshot(std::vector<FoundModel>& found, const std::string& name, const fs::path& snapshot) {
  int64_t weights = 0;
  bool has_config = false;
  for (const fs::path& file : list(snapshot)) {
    if (file.extension() == ".gguf")
      found.push_back({fmt::format("hf:{}:{}", name, file.filename().string()), file.string(),
                       "Hugging Face cache", file_bytes(file)});
    if (file.extension() == ".safetensors") weights += file_bytes(file);
    has_config = has_config || file.filename() == "config.json";
  }
  if (has_config && weights > 0)
    found.push_back({"hf:" + name, snapshot.string(), "Hugging Face cache", weights});
}

// models--ORG--NAME/refs/main names the commit, snapshots/COMMIT holds the files.
void find_hub(std::vector<FoundModel>& found) {
  for (const fs::path& entry : list(hub_folder())) {
    std::string name = entry.filename().string();
    if (!name.starts_with("models--")) continue;
    name = name.substr(8);
    if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
    std::string commit = read_text(entry / "refs/main", 64);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
    const std::vector<fs::path> snapshots = list(entry / "snapshots");
    for (const fs::path& snapshot : snapshots)
      if (snapshots.size() == 1 || snapshot.filename() == commit) add_snapshot(found, name, snapshot);
  }
}

bool is_digest(std::string_view text) {
  return text.size() == 71 && text.starts_with("sha256:") &&
         text.substr(7).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A manifest lists layers; the one of the model's media type is a plain GGUF file named by its digest.
void add_manifest(std::vector<FoundModel>& found, const fs::path& store, const fs::path& manifest,
                  const std::string& name) {
  const Result<json::value> value = parse_json(read_text(manifest, 1 << 20), manifest.string());
  const json::value* layers =
      value && value->is_object() ? value->get_object().if_contains("layers") : nullptr;
  if (layers == nullptr || !layers->is_array()) return;
  for (const json::value& layer : layers->get_array()) {
    if (!layer.is_object()) continue;
    const auto type = get_string(layer.get_object(), "mediaType"),
               digest = get_string(layer.get_object(), "digest");
    if (!type || !*type || **type != "application/vnd.ollama.image.model" || !digest || !*digest ||
        !is_digest(**digest))
      continue;
    const fs::path blob = store / "blobs" / ("sha256-" + (**digest).substr(7));
    if (const int64_t bytes = file_bytes(blob); bytes > 0)
      found.push_back({"ollama:" + name, blob.string(), "Ollama", bytes});
  }
}

void find_ollama(std::vector<FoundModel>& found) {
  std::vector<fs::path> stores{fs::path(home()) / ".ollama/models", "/usr/share/ollama/.ollama/models"};
  if (!environment("OLLAMA_MODELS").empty()) stores = {environment("OLLAMA_MODELS")};
  for (const fs::path& store : stores)
    for (const fs::path& registry : list(store / "manifests"))
      for (const fs::path& space : list(registry))
        for (const fs::path& model : list(space))
          for (const fs::path& tag : list(model)) {
            const std::string prefix = space.filename() == "library" ? "" : space.filename().string() + "/";
            add_manifest(found, store, tag,
                         prefix + model.filename().string() + ":" + tag.filename().string());
          }
}

void find_lm_studio(std::vector<FoundModel>& found) {
  for (const char* place : {".lmstudio/models", ".cache/lm-studio/models"})
    for (const fs::path& publisher : list(fs::path(home()) / place))
      for (const fs::path& model : list(publisher))
        for (const fs::path& file : list(model))
          if (file.extension() == ".gguf")
            found.push_back({file.string(), file.string(), "LM Studio", file_bytes(file)});
}

void find_own(std::vector<FoundModel>& found) {
  const fs::path folder =
      environment("SLUICE_MODELS").empty() ? fs::path(".models") : fs::path(environment("SLUICE_MODELS"));
  for (const fs::path& file : list(folder)) {
    if (file.extension() != ".gguf") continue;
    const bool is_default = file.filename() == kDefaultModelFile;
    found.push_back({is_default ? "smollm2" : file.stem().string(), file.string(),
                     is_default ? "default" : "own folder", file_bytes(file)});
  }
}

std::string lower_name(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "hf:org/name:Q4_K_M" names a file by a part of its name; a name alone takes the folder, else its first
// file.
bool matches(const FoundModel& model, const std::string& wanted) {
  if (model.name == wanted) return true;
  const std::string full = lower_name(model.name), part = lower_name(wanted);
  if (full.starts_with("ollama:")) return full == part || full == part + ":latest";
  if (!full.starts_with("hf:")) return false;
  const size_t colon = part.find(':', 3);
  if (colon == std::string::npos) return full == part || full.starts_with(part + ":");
  return full.starts_with(part.substr(0, colon + 1)) &&
         full.find(part.substr(colon + 1), colon) != std::string::npos;
}

}  // namespace

std::vector<FoundModel> find_models() {
  std::vector<FoundModel> found;
  find_own(found);
  find_hub(found);
  find_ollama(found);
  find_lm_studio(found);
  return found;
}

Result<FoundModel> find_model(const std::string& reference) {
  std::error_code ec;
  const std::vector<FoundModel> found = find_models();
  if (!reference.empty() && fs::exists(reference, ec)) {
    for (const FoundModel& model : found)
      if (fs::equivalent(model.path, reference, ec)) return model;
    const fs::path path = fs::absolute(reference).lexically_normal();
    const fs::path file = path.has_filename() ? path : path.parent_path();
    return FoundModel{(file.extension() == ".gguf" ? file.stem() : file.filename()).string(), reference, "",
                      0};
  }
  for (const FoundModel& model : found)
    if (reference.empty() ? model.source == "default"
                          : matches(model, reference) || matches(model, "hf:" + reference) ||
                                matches(model, "ollama:" + reference))
      return model;
  if (reference.empty())
    return Error{ErrorCode::Unavailable,
                 "the default model is not on this machine: './sluice run' in the repository fetches it; or "
                 "give a model with --model"};
  return Error{
      ErrorCode::NotFound,
      fmt::format("model '{}' is neither a path nor a model on this machine; 'sluice list' shows those",
                  reference)};
}

Result<std::string> resolve_model(const std::string& reference) {
  std::error_code ec;
  if (!reference.empty() && fs::exists(reference, ec)) return reference;
  Result<FoundModel> model = find_model(reference);
  if (!model) return model.error();
  return model->path;
}

}  // namespace sluice::llm
