// sluice check: a model against the reference outputs that lie beside it.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/golden.h"
#include "cli/ranks.h"
#include "llm/engine_flags.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/parallel/worker.h"

namespace sluice::cli {

namespace {

class CheckCommand : public Command {
 public:
  std::string_view name() const override { return "check"; }
  std::string_view summary() const override {
    return "compare a model with the reference outputs in its folder";
  }

  void declare(OptionSet& options) override {
    options.add(folder_, "DIR", "folder with golden.json and golden.safetensors").at_position();
    options.add(model_, "model", "check this file or folder against DIR's references")
        .short_name('m')
        .shown_as("PATH");
    options
        .add(tolerance_, "tolerance",
             "largest relative error that passes; below 0: 1e-3, in 16 bits 2e-2, with KV in fp8 6e-2")
        .within(-1, 10);
    llm::declare_kv_type(options, kv_type_, "type of the KV cache; auto: what the device computes in");
    ranks_.declare(options);
    device_.declare(options);
  }

  int run() override {
    Result<std::shared_ptr<models::ModelGroup>> group = ranks_.join();
    if (!group) return report(group.error());
    group_ = std::move(*group);
    if (group_) device_.place = RankFlags::place();
    Result<bool> passed = check();
    if (!passed) return report(passed.error());
    if (follows()) return kSuccess;
    fmt::print("{}\n", *passed ? "PASS" : "FAIL");
    return *passed ? kSuccess : kFailure;
  }

 private:
  bool follows() const { return group_ != nullptr && !group_->leads(); }

  Result<bool> check() {
    // A rounding error that chooses another expert, or decays and norms of a state make large, says nothing about the arithmetic.
    if (device_.activations == kernels::Activations::Auto)
      device_.activations = kernels::Activations::WideWhereMagnified;
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(device_);
    if (!backend) return backend.error();
    Result<std::unique_ptr<models::Model>> model = load(*backend);
    if (!model) return model.error();
    if (follows()) {
      if (Status ended = runtime::run_worker(**model); !ended) return ended.error();
      return true;
    }
    const DType kv_type = kv_type_.value_or((*backend)->activation_type());
    if (Status status = llm::check_kv_type(kv_type, **backend); !status) return status.error();
    Result<std::vector<GoldenCase>> cases = read_golden(folder_, (*model)->spec().vocab);
    if (!cases) return cases.error();
    if (cases->empty()) return Error{ErrorCode::Corrupt, folder_ + "/golden.json: no cases"};

    // Of two logits nearer to each other than the error of 16 bits either may be the larger.
    const bool same_tokens = (*backend)->activation_type() == DType::F32 && kv_type == DType::F32;
    if (tolerance_ < 0) tolerance_ = kv_type == DType::F8_E4M3 ? 6e-2 : same_tokens ? 1e-3 : 2e-2;
    fmt::print("{} on {}, tolerance {:g}{}\n", (*model)->spec().family, (*backend)->name(), tolerance_,
               same_tokens ? "" : "; greedy tokens may differ");
    bool passed = true;
    for (size_t i = 0; i < cases->size(); ++i) {
      const size_t length = (*cases)[i].prompt.size();
      Result<GoldenVerdict> verdict = judge(**model, (*cases)[i], kv_type, tolerance_);
      if (!verdict) return verdict.error();
      const bool close = verdict->relative_error <= tolerance_;  // false for NaN
      const bool equal = verdict->equal_tokens == verdict->greedy_tokens;
      fmt::print("prompt {}: {} tokens, relative error {:.2e} {}, greedy {}/{} {}\n", i, length,
                 verdict->relative_error, close ? "ok" : "TOO LARGE", verdict->equal_tokens,
                 verdict->greedy_tokens, equal ? "ok" : "DIFFER");
      passed = passed && close && (equal || !same_tokens);
    }
    return passed;
  }

  Result<std::unique_ptr<models::Model>> load(const std::shared_ptr<kernels::Backend>& backend) {
    Result<models::ModelFiles> files = models::open_model(model_.empty() ? folder_ : model_);
    if (!files) return files.error();
    return models::load_model(
        std::move(*files), backend, [](float) {}, group_);
  }

  std::string folder_, model_;
  double tolerance_ = -1;
  std::optional<DType> kv_type_;
  runtime::DeviceOptions device_;
  RankFlags ranks_;
  std::shared_ptr<models::ModelGroup> group_;
};

}  // namespace

std::unique_ptr<Command> make_check() {
  return std::make_unique<CheckCommand>();
}

}  // namespace sluice::cli
