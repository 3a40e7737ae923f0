// sluice quantize: a GGUF file or a folder of safetensors with its matrices in another type.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/quantize/calibration.h"
#include "cli/quantize/folder.h"
#include "cli/quantize/recipes.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/gguf_rewrite.h"
#include "llm/model_store.h"

namespace sluice::cli {

namespace {

class QuantizeCommand : public Command {
 public:
  std::string_view name() const override { return "quantize"; }
  std::string_view summary() const override { return "write a model anew in another type"; }
  std::string_view examples() const override {
    return "sluice quantize f16.gguf q4_k_m.gguf --type q4_k_m\n"
           "sluice quantize f16.gguf iq4_xs.gguf --type iq4_xs --calibrate /usr/share/common-licenses/GPL-3\n"
           "sluice quantize FOLDER FOLDER-fp8 --type fp8";
  }

  void declare(OptionSet& options) override {
    options.add(in_, "IN", "a GGUF file, or a folder of safetensors").at_position();
    options.add(out_, "OUT", "the file or folder that is written").at_position();
    options
        .add(type_, "type",
             fmt::format("of a GGUF file: {}; of a folder: {}", recipe_names(), folder_type_names()))
        .shown_as("TYPE");
    options
        .add(calibration_.text, "calibrate",
             "a text that the model reads first: errors of columns count by what they are multiplied with")
        .shown_as("TEXT");
    options.add(calibration_.contexts, "contexts", "contexts of the text that are read at most; 0: all")
        .within(0, 1 << 20);
    options.add_choice<bool>(force_, "overwrite",
                             "replace the file OUT where it is there; folders are not replaced",
                             {{"off", false}, {"on", true}});
    options
        .add(calibration_.threads, "threads",
             "CPU threads; 0: the physical cores of a NUMA node, within the cgroup's quota")
        .short_name('t')
        .within(0, 1024);
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
    const std::optional<formats::FolderFormat> folder = find_folder_type(type);
    if (recipe == nullptr && !folder)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--type is '{}', which is not known; --help has the list", type_)};
    const Result<std::string> path = llm::resolve_model(in_);
    if (!path) return path.error();
    if (Status fits = check_paths(*path, folder.has_value()); !fits) return fits;
    std::optional<Calibration> calibration;
    if (!calibration_.text.empty()) {
      Result<Calibration> found = calibrate(*path, calibration_);
      if (!found) return found.error();
      calibration = std::move(*found);
    }
    const int threads = calibration_.threads;
    ThreadPool pool(threads == 0 ? static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)) : threads);
    const Calibration* known = calibration ? &*calibration : nullptr;
    return folder ? quantize_folder(*path, out_, *folder, known, pool)
                  : quantize_file(*path, *recipe, known, pool);
  }

  Status check_paths(const std::string& in, bool folder) const {
    const bool is_folder = std::filesystem::is_directory(in);
    if (is_folder && !folder)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("'{}' is a folder: '{}' is made of a GGUF file, of folders there are {}", in,
                               type_, folder_type_names())};
    if (!is_folder && folder)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("'{}' is a file: '{}' is made of a folder of safetensors", in, type_)};
    if (::access(out_.c_str(), F_OK) != 0 || (force_ && !folder)) return {};
    return Error{ErrorCode::InvalidArgument,
                 folder ? fmt::format("'{}' is there already; folders are not replaced", out_)
                        : fmt::format("'{}' is there already; --overwrite on replaces it", out_)};
  }

  Status quantize_file(const std::string& path, const Recipe& recipe, const Calibration* calibration,
                       ThreadPool& pool) const {
    const Result<formats::Gguf> gguf = formats::open_gguf(path);
    if (!gguf) return gguf.error();
    formats::GgufRewrite rewrite{TypeChooser(recipe, gguf->tensors, calibration != nullptr),
                                 recipe.file_type};
    rewrite.progress = show;
    if (calibration != nullptr) {
      rewrite.added["quantize.imatrix.dataset"] = calibration->text;
      rewrite.importance = [calibration](const std::string& tensor, int slice) {
        return calibration->importance.of(tensor, slice);
      };
    }
    return formats::rewrite_gguf(path, out_, rewrite, pool);
  }

  static void show(const std::string& name, DType type, int64_t done, int64_t total) {
    fmt::print(stderr, "{:3} %  {} {}\n", done * 100 / std::max<int64_t>(1, total), sluice::name(type), name);
  }

  std::string in_, out_, type_;
  bool force_ = false;
  CalibrationOptions calibration_;
};

}  // namespace

std::unique_ptr<Command> make_quantize() {
  return std::make_unique<QuantizeCommand>();
}

}  // namespace sluice::cli
