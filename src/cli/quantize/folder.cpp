#include "cli/quantize/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "base/published_json.h"
#include "cli/terminal/input.h"
#include "formats/safetensors/safetensors.h"

namespace sluice::cli {

namespace fs = std::filesystem;

namespace {

using formats::FolderFormat;
using formats::FolderLayout;
using formats::TensorStore;

struct FolderType {
  std::string_view name;
  FolderFormat format;
};
constexpr FolderType kFolderTypes[] = {{"fp8", FolderFormat::Fp8},
                                       {"int8", FolderFormat::Int8},
                                       {"w4a16", FolderFormat::W4A16},
                                       {"awq", FolderFormat::Awq}};

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kIndexFile = "model.safetensors.index.json", kOneFile = "model.safetensors";

// Parts of names of matrices that are looked up, decide who computes, belong to a tower for pictures, or lie transposed.
constexpr std::string_view kKept[] = {"embed",       "norm",          "lm_head",
                                      "router",      ".gate.weight",  "wte",
                                      "wpe",         "conv",          "shared_expert_gate",
                                      "vision",      "visual",        "image",
                                      "multi_modal", "c_attn.",       "c_proj.",
                                      "c_fc.",       "output.weight", "score."};

bool is_linear(const std::string& name, const TensorView& tensor) {
  if (tensor.rank != 2 || !name.ends_with(kWeight)) return false;
  return std::none_of(std::begin(kKept), std::end(kKept),
                      [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

std::string module_of(const std::string& name) {
  return name.substr(0, name.size() - kWeight.size());
}

Result<json::object> read_object(const fs::path& path) {
  const Result<std::string> text = read_input(path.string());
  if (!text) return text.error();
  const Result<json::value> value = parse_published_json(*text, path.string());
  if (!value) return value.error();
  if (!value->is_object())
    return Error{ErrorCode::Corrupt, fmt::format("'{}' is no JSON object", path.string())};
  return value->get_object();
}

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.fail()) return Error{ErrorCode::Io, fmt::format("'{}' cannot be written", path.string())};
  return {};
}

// Whether a file of the folder is not of the weights, and goes along.
bool goes_along(const fs::directory_entry& entry) {
  if (!entry.is_regular_file()) return false;
  const std::string name = entry.path().filename().string();
  static constexpr std::string_view kWeights[] = {".safetensors", ".bin", ".pth", ".pt", ".gguf", ".onnx"};
  return name != "config.json" && !name.ends_with(".index.json") &&
         std::none_of(std::begin(kWeights), std::end(kWeights),
                      [&](std::string_view end) { return name.ends_with(end); });
}

class FolderWriter {
 public:
  FolderWriter(fs::path in, const std::string& out, const Calibration* calibration, ThreadPool& pool)
      : in_(std::move(in)), part_(out + ".part"), out_(out), calibration_(calibration), pool_(pool) {}

  Status write(FolderFormat format) {
    layout_.format = format;
    Result<json::object> config = read_object(in_ / "config.json");
    if (!config) return config.error();
    if (config->contains("quantization_config") || config->contains("compression_config"))
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("'{}' is quantised already: its config.json says how", in_.string())};
    if (Status opened = open_shards(); !opened) return opened;
    if (Status chosen = choose_group(); !chosen) return chosen;
    std::error_code error;
    fs::create_directories(part_, error);
    if (error)
      return Error{ErrorCode::Io, fmt::format("'{}' cannot be made: {}", part_.string(), error.message())};
    if (Status same = start_anew_unless_same(); !same) return same;
    for (size_t i = 0; i < shards_.size(); ++i)
      if (Status written = write_shard(i); !written) return written;
    (*config)["quantization_config"] =
        formats::quantization_config(layout_, {ignored_.begin(), ignored_.end()});
    if (Status written = write_text(part_ / "config.json", json::serialize(*config)); !written)
      return written;
    return finish();
  }

 private:
  Status open_shards() {
    std::set<std::string> names{std::string(kOneFile)};
    if (fs::exists(in_ / kIndexFile)) {
      const Result<std::string> text = read_input((in_ / kIndexFile).string());
      if (!text) return text.error();
      const auto index = formats::parse_safetensors_index(*text, (in_ / kIndexFile).string());
      if (!index) return index.error();
      names.clear();
      for (const auto& [tensor, shard] : *index) names.insert(shard);
    }
    for (const std::string& name : names) {
      Result<formats::Safetensors> shard = formats::open_safetensors((in_ / name).string());
      if (!shard) return shard.error();
      shards_.push_back({name, std::move(shard->tensors)});
    }
    return {};
  }

  // The largest group that divides every row.
  Status choose_group() {
    for (const int size : {128, 64, 32}) {
      layout_.group = size;
      bool all = true;
      for (const Shard& shard : shards_)
        for (const std::string& name : shard.tensors.names()) {
          const Result<TensorView> view = shard.tensors.find(name);
          if (!view) return view.error();
          all = all && (!is_linear(name, *view) || layout_.holds(*view));
        }
      if (all) return {};
    }
    return {};  // those that do not fit stay as they are
  }

  // What was made with another layout or calibration is of no use.
  Status start_anew_unless_same() {
    const auto* type = std::find_if(std::begin(kFolderTypes), std::end(kFolderTypes),
                                    [&](const FolderType& one) { return one.format == layout_.format; });
    std::string made = fmt::format("{} in groups of {}\n", type->name, layout_.group);
    if (calibration_ != nullptr) made += calibration_->text + "\n";
    const fs::path note = part_ / ".quantize";
    const Result<std::string> found = fs::exists(note) ? read_input(note.string()) : Result<std::string>("");
    if (found && *found == made) return {};
    for (const Shard& shard : shards_)
      for (const char* end : {"", ".part"}) {
        std::error_code error;
        fs::remove(part_ / (shard.name + end), error);
      }
    return write_text(note, made);
  }

  Status write_shard(size_t index) {
    const Shard& shard = shards_[index];
    std::vector<formats::WrittenGroup> groups;
    for (const std::string& name : shard.tensors.names()) {
      const Result<TensorView> view = shard.tensors.find(name);
      if (!view) return view.error();
      const bool linear = is_linear(name, *view);
      if (linear && layout_.holds(*view)) {
        groups.push_back(
            formats::quantized_module(layout_, module_of(name), *view, importance_of(name), pool_));
      } else {
        groups.push_back(formats::copied_tensor(name, *view));
        if (view->rank == 2 && name.ends_with(kWeight)) ignored_.insert(module_of(name));
      }
      for (const formats::WrittenTensor& tensor : groups.back().tensors) {
        weight_map_[tensor.name] = shard.name;
        total_ += tensor.bytes;
      }
    }
    return formats::write_safetensors((part_ / shard.name).string(), groups,
                                      [&](const formats::WrittenGroup& group, uint64_t) {
                                        fmt::print(stderr, "{} of {}: {} {}\n", index + 1, shards_.size(),
                                                   group.tensors[0].dtype, group.tensors[0].name);
                                      });
  }

  std::function<std::vector<float>()> importance_of(const std::string& name) const {
    if (calibration_ == nullptr) return nullptr;
    return [name, this] { return calibration_->importance.of(name, 0); };
  }

  Status finish() {
    std::error_code error;
    if (fs::exists(in_ / kIndexFile)) {
      const json::object index{{"metadata", json::object{{"total_size", total_}}},
                               {"weight_map", weight_map_}};
      if (Status written = write_text(part_ / kIndexFile, json::serialize(index)); !written) return written;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(in_, error))
      if (goes_along(entry) && !error)
        fs::copy_file(entry.path(), part_ / entry.path().filename(), fs::copy_options::overwrite_existing,
                      error);
    if (!error) fs::remove(part_ / ".quantize", error);
    if (!error) fs::rename(part_, out_, error);
    if (error)
      return Error{ErrorCode::Io, fmt::format("'{}' cannot be finished: {}", out_.string(), error.message())};
    return {};
  }

  struct Shard {
    std::string name;
    TensorStore tensors;
  };

  fs::path in_, part_, out_;
  const Calibration* calibration_;
  ThreadPool& pool_;
  FolderLayout layout_;
  std::vector<Shard> shards_;
  std::set<std::string> ignored_;
  json::object weight_map_;
  uint64_t total_ = 0;
};

}  // namespace

std::optional<FolderFormat> find_folder_type(std::string_view name) {
  for (const FolderType& type : kFolderTypes)
    if (type.name == name) return type.format;
  return std::nullopt;
}

std::string folder_type_names() {
  std::string out;
  for (const FolderType& type : kFolderTypes) {
    if (!out.empty()) out += ", ";
    out += type.name;
  }
  return out;
}

Status quantize_folder(const std::string& in, const std::string& out, FolderFormat format,
                       const Calibration* calibration, ThreadPool& pool) {
  return FolderWriter(in, out, calibration, pool).write(format);
}

}  // namespace sluice::cli
