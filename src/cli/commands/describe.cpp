// sluice describe: what a model is.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/format.h"
#include "llm/model_store.h"
#include "models/model.h"

namespace sluice::cli {

namespace {

bool is_mixture(const models::ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const models::LayerSpec& layer) {
    return std::holds_alternative<models::MoeFfn>(layer.ffn) ||
           std::holds_alternative<models::DenseBesideExperts>(layer.ffn);
  });
}

class DescribeCommand : public Command {
 public:
  std::string_view name() const override { return "describe"; }
  std::string_view summary() const override {
    return "show a model's architecture as pseudo-code, its size and its KV cost";
  }
  void declare(OptionSet& options) override {
    options.add(model_, "MODEL", "file, folder or name; the default model where left out").at_position(false);
    options.add(by_flag_, "model", "the same by flag, as other verbs take it")
        .short_name('m')
        .shown_as("MODEL");
  }

  int run() override {
    Result<std::string> path = llm::resolve_model(model_.empty() ? by_flag_ : model_);
    if (!path) return report(path.error());
    Result<models::ModelFiles> files = models::open_model(*path);
    if (!files) return report(files.error());
    const models::ModelSpec& spec = files->spec;
    const int64_t all = models::parameter_count(spec), active = models::active_parameter_count(spec);
    fmt::print("{}", shown_on(STDOUT_FILENO,
                              fmt::format("# {}: {}\n{}", files->path, spec.family, models::describe(spec))));
    fmt::print("# parameters {}{}\n", count_text(all),
               is_mixture(spec) ? fmt::format(", {} active per token", count_text(active)) : "");
    fmt::print("# weights {} in {} tensors\n", bytes_text(files->tensors.total_bytes()),
               files->tensors.names().size());
    for (const auto& [type, count] : files->tensors.unsupported_types())
      fmt::print("# {} tensors of type {}, which cannot be run: see docs/models.md\n", count, type);
    fmt::print("# context {} tokens, KV {} per token in f16, {} in f32\n", spec.context,
               bytes_text(models::kv_bytes_per_token(spec, DType::F16)),
               bytes_text(models::kv_bytes_per_token(spec, DType::F32)));
    if (const int64_t state = models::state_bytes(models::layer_states(spec)); state > 0)
      fmt::print("# state {} per sequence in f32\n", bytes_text(state));
    return kSuccess;
  }

 private:
  std::string model_, by_flag_;
};

}  // namespace

std::unique_ptr<Command> make_describe() {
  return std::make_unique<DescribeCommand>();
}

}  // namespace sluice::cli
