// sluice bench: how fast a model runs here, beside the least time it could take.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/system/cores.h"
#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/lab/lists.h"
#include "lab/report.h"
#include "llm/model_store.h"
#include "runtime/device.h"

namespace sluice::cli {

namespace {

class BenchCommand : public Command {
 public:
  std::string_view name() const override { return "bench"; }
  std::string_view summary() const override {
    return "measure prompt and answer speed, beside the least time that this machine allows";
  }
  std::string_view examples() const override {
    return "sluice bench -m MODEL --pp 512 --tg 128 --batch 1,2,4 --depth 0,4096 --repeat 5 --format json";
  }

  void declare(OptionSet& options) override {
    options.add(model_, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(prompts_, "pp", "lengths of prompts; empty: none").shown_as("LIST");
    options.add(answers_, "tg", "lengths of answers; empty: none").shown_as("LIST");
    options.add(batches_, "batch", "sequences that answer at once").shown_as("LIST");
    options.add(depths_, "depth", "positions that are in the KV cache before").shown_as("LIST");
    options.add(speed_.repeat, "repeat", "repetitions; the median counts").within(1, 1000);
    options.add(speed_.step_tokens, "max-step-tokens", "tokens of one step").within(1, 1 << 20);
    options.add(speed_.block_size, "block-size", "tokens per KV block").within(1, 4096);
    options.add_choice<DType>(
        speed_.kv_type, "kv-type", "type of the KV cache",
        {{"f16", DType::F16}, {"bf16", DType::BF16}, {"f32", DType::F32}, {"int8", DType::I8}});
    options.add(speed_.seed, "seed", "of the random tokens").within(0, 0x1p53);
    options.add(profile_, "profile", "split each test's time by operation; CPU only");
    options.add_choice<bool>(json_, "format", "a table, or JSON with every repetition",
                             {{"md", false}, {"json", true}});
    device_.declare(options);
  }

  int run() override {
    if (Status status = read_lists(); !status) return report(status.error());
    Result<std::string> path = llm::resolve_model(model_);
    if (!path) return report(path.error());
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(device_);
    if (!backend) return report(backend.error());
    if (profile_ && (*backend)->async_device() != nullptr)
      return report(
          Error{ErrorCode::InvalidArgument,
                fmt::format("--profile: {} works beside the host, whose clock cannot time its operations",
                            (*backend)->name())});
    if (profile_) {
      auto profiled = std::make_shared<lab::ProfiledBackend>(std::move(*backend));
      speed_.profiled = profiled.get();
      *backend = std::move(profiled);
    }
    Result<models::ModelFiles> files = models::open_model(*path);
    if (!files) return report(files.error());
    Result<std::unique_ptr<models::Model>> model = models::load_model(std::move(*files), *backend);
    if (!model) return report(model.error());

    const lab::Setting setting = describe(**model);
    Result<std::vector<lab::SpeedResult>> results = lab::measure_speed(**model, speed_, setting.limits, show);
    if (!results) return report(results.error());
    if (json_) {
      fmt::print("{}\n", json::serialize(lab::to_json(setting, *results)));
    } else {
      fmt::print("{}", shown_on(STDOUT_FILENO, lab::to_markdown(setting, *results)));
    }
    return kSuccess;
  }

 private:
  Status read_lists() {
    struct List {
      const std::string& text;
      std::vector<int>& out;
      const char* option;
      int least;
    };
    for (const List& list :
         {List{prompts_, speed_.prompts, "pp", 1}, List{answers_, speed_.answers, "tg", 1},
          List{batches_, speed_.batches, "batch", 1}, List{depths_, speed_.depths, "depth", 0}}) {
      Result<std::vector<int>> values = read_list(list.text, list.option, list.least);
      if (!values) return values.error();
      list.out = std::move(*values);
    }
    const bool answers = !speed_.answers.empty() && !speed_.batches.empty();
    if (speed_.depths.empty() || (speed_.prompts.empty() && !answers))
      return Error{ErrorCode::InvalidArgument,
                   "nothing to measure: --depth, and one of --pp or --tg with --batch, must have numbers"};
    return {};
  }

  lab::Setting describe(const models::Model& model) const {
    lab::Setting setting{.model = model.files.path,
                         .parameters = models::parameter_count(model.spec()),
                         .weight_bytes = model.files.tensors.total_bytes(),
                         .backend = model.backend->name(),
                         .threads = device_.threads > 0 ? device_.threads : compute_cores().threads,
                         .kv_type = speed_.kv_type,
                         .limits = {}};
    // The limits of other devices are not for the processor to measure.
    if (model.backend->allocate(DType::F32, {1}).view.device == Device::Cpu)
      setting.limits = lab::measure_limits(setting.threads);
    return setting;
  }

  // For somebody who waits.
  static void show(const lab::SpeedResult& result) {
    if (isatty(STDERR_FILENO) == 0) return;
    fmt::print(stderr, "{}: {:.1f} tokens/s\n", result.test.name(), result.rate(result.median()));
  }

  std::string model_;
  std::string prompts_ = "512", answers_ = "128", batches_ = "1,2,3,4,6,8,16,32", depths_ = "0,4096";
  lab::SpeedOptions speed_;
  runtime::DeviceOptions device_;
  bool json_ = false, profile_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<BenchCommand>();
}

}  // namespace sluice::cli
