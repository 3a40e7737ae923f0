// sluice quantize: a GGUF file with its matrices in another type.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "base/thread_pool.h"
#include "cli/command.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/gguf_rewrite.h"
#include "llm/model_store.h"
#include "tensor/quantize.h"

namespace sluice::cli {

namespace {

// How the types of a file are mixed. Base types with a mix have another for the output, and for values and down projections
// of some layers, as the files that people download have them.
struct Recipe {
  std::string_view name;
  DType base;
  uint32_t file_type;  // of the format
  enum class Mix : uint8_t { None, Small, Medium, Large } mix;
};

constexpr Recipe kRecipes[] = {
    {"f32", DType::F32, 0, Recipe::Mix::None},         {"f16", DType::F16, 1, Recipe::Mix::None},
    {"q4_0", DType::Q4_0, 2, Recipe::Mix::None},       {"q4_1", DType::Q4_1, 3, Recipe::Mix::None},
    {"q8_0", DType::Q8_0, 7, Recipe::Mix::None},       {"q5_0", DType::Q5_0, 8, Recipe::Mix::None},
    {"q5_1", DType::Q5_1, 9, Recipe::Mix::None},       {"q2_k", DType::Q2_K, 10, Recipe::Mix::Medium},
    {"q3_k_s", DType::Q3_K, 11, Recipe::Mix::Small},   {"q3_k_m", DType::Q3_K, 12, Recipe::Mix::Medium},
    {"q3_k_l", DType::Q3_K, 13, Recipe::Mix::Large},   {"q4_k_s", DType::Q4_K, 14, Recipe::Mix::Small},
    {"q4_k_m", DType::Q4_K, 15, Recipe::Mix::Medium},  {"q5_k_s", DType::Q5_K, 16, Recipe::Mix::Small},
    {"q5_k_m", DType::Q5_K, 17, Recipe::Mix::Medium},  {"q6_k", DType::Q6_K, 18, Recipe::Mix::Small},
    {"iq4_nl", DType::IQ4_NL, 25, Recipe::Mix::Small}, {"bf16", DType::BF16, 32, Recipe::Mix::None},
    {"tq1_0", DType::TQ1_0, 36, Recipe::Mix::Small},   {"tq2_0", DType::TQ2_0, 37, Recipe::Mix::Small},
};

const Recipe* find_recipe(std::string_view name) {
  for (const Recipe& recipe : kRecipes)
    if (recipe.name == name) return &recipe;
  return nullptr;
}

bool contains(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

// The number after "blk."; -1: none.
int layer_of(const std::string& name) {
  if (!name.starts_with("blk.")) return -1;
  int layer = -1;
  return std::sscanf(name.c_str(), "blk.%d.", &layer) == 1 ? layer : -1;
}

// The first and last eighths of the layers, and every third between.
bool gets_more_bits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// What chooses types.
struct Chooser {
  const Recipe& recipe;
  int layers = 1;
  bool has_output = true;

  DType mixed(const std::string& name) const {
    using Mix = Recipe::Mix;
    const DType base = recipe.base;
    if (recipe.mix == Mix::None) return base;
    if (name == "output.weight" || (!has_output && name == "token_embd.weight")) return DType::Q6_K;
    const int layer = layer_of(name);
    const bool value = contains(name, "attn_v."), down = contains(name, "ffn_down");
    const bool more = layer >= 0 && gets_more_bits(layer, layers);
    if (base == DType::Q2_K) {
      if (value) return DType::Q4_K;
      return down || contains(name, "attn_output") ? DType::Q3_K : base;
    }
    if (base == DType::Q3_K && recipe.mix == Mix::Large)
      return value || down || contains(name, "attn_output") ? DType::Q5_K : base;
    if (base == DType::Q3_K && recipe.mix == Mix::Medium) {
      if (value) return layer < 2 ? DType::Q5_K : DType::Q4_K;
      if (down) return layer < layers / 16 ? DType::Q5_K : more ? DType::Q4_K : base;
      return contains(name, "attn_output") ? DType::Q4_K : base;
    }
    if ((base == DType::Q4_K || base == DType::Q5_K) && recipe.mix == Mix::Medium)
      return (value || down) && more ? DType::Q6_K : base;
    if (base == DType::Q4_K && ((value && layer < 4) || (down && layer < layers / 8))) return DType::Q5_K;
    return base;
  }

  // Where a row is no multiple of the type's block, the nearest type whose block divides it.
  static DType fitting(DType type, int64_t cols) {
    if (cols % info(type).block_elements == 0) return type;
    if (cols % 32 != 0) return DType::F16;
    switch (type) {
      case DType::Q4_K:
        return DType::Q5_0;
      case DType::Q5_K:
        return DType::Q5_1;
      case DType::Q6_K:
        return DType::Q8_0;
      default:
        return DType::IQ4_NL;
    }
  }

  DType operator()(const std::string& name, const TensorView& tensor) const {
    const bool plain = tensor.rank < 2 || !name.ends_with(".weight") || contains(name, "_norm") ||
                       contains(name, "ffn_gate_inp") || contains(name, "position_embd") ||
                       contains(name, "token_types") || contains(name, "ssm_") || contains(name, "shortconv");
    const bool weights = tensor.dtype != DType::I8 && tensor.dtype != DType::I32 && tensor.dtype != DType::U8;
    return plain || !weights ? tensor.dtype : fitting(mixed(name), tensor.dim(-1));
  }
};

class QuantizeCommand : public Command {
 public:
  std::string_view name() const override { return "quantize"; }
  std::string_view summary() const override { return "write a GGUF file anew in another type"; }
  std::string_view examples() const override { return "sluice quantize f16.gguf q4_k_m.gguf --type q4_k_m"; }

  void declare(OptionSet& options) override {
    options.add(in_, "IN", "a GGUF file").at_position();
    options.add(out_, "OUT", "the file that is written").at_position();
    options
        .add(type_, "type",
             "f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q5_1, q5_0, q4_k_m, q4_k_s, q4_1, q4_0, iq4_nl, "
             "q3_k_l, q3_k_m, "
             "q3_k_s, q2_k, tq2_0 or tq1_0")
        .shown_as("TYPE");
    options.add_choice<bool>(force_, "overwrite", "replace OUT where it is there",
                             {{"off", false}, {"on", true}});
    options.add(threads_, "threads", "CPU threads; 0: all cores").short_name('t').within(0, 1024);
  }

  int run() override {
    if (type_.empty()) {
      fmt::print(stderr, "sluice: --type is missing: sluice quantize IN OUT --type q4_k_m\n");
      return kUsage;
    }
    if (Status done = quantize(); !done) return report(done.error());
    return kSuccess;
  }

 private:
  Status quantize() {
    std::string type = type_;
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const Recipe* recipe = find_recipe(type);
    if (recipe == nullptr)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--type is '{}', which is not known; --help has the list", type_)};
    if (!force_ && ::access(out_.c_str(), F_OK) == 0)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("'{}' is there already; --overwrite on replaces it", out_)};
    const Result<std::string> path = llm::resolve_model(in_);
    if (!path) return path.error();
    if (std::filesystem::is_directory(*path))
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("'{}' is a folder: quantize reads a GGUF file", *path)};
    const Result<formats::Gguf> gguf = formats::open_gguf(*path);
    if (!gguf) return gguf.error();
    Chooser chooser{*recipe};
    chooser.has_output = gguf->tensors.contains("output.weight");
    for (const std::string& tensor : gguf->tensors.names())
      chooser.layers = std::max(chooser.layers, layer_of(tensor) + 1);
    ThreadPool pool(threads_ == 0 ? static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)) : threads_);
    const formats::GgufRewrite rewrite{chooser, recipe->file_type, show};
    return formats::rewrite_gguf(*path, out_, rewrite, pool);
  }

  static void show(const std::string& name, DType type, int64_t done, int64_t total) {
    fmt::print(stderr, "{:3} %  {} {}\n", done * 100 / std::max<int64_t>(1, total), sluice::name(type), name);
  }

  std::string in_, out_, type_;
  bool force_ = false;
  int threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_quantize() {
  return std::make_unique<QuantizeCommand>();
}

}  // namespace sluice::cli
