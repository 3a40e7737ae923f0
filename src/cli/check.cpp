// sluice check: a model against the reference outputs that lie beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/golden.h"
#include "models/model.h"
#include "runtime/device.h"

namespace sluice::cli {

namespace {

// Whether one of the lengths lies beyond where the model's rope changes, and the other does not.
bool has_other_rope(const models::ModelSpec& spec, size_t length, size_t other) {
  return std::any_of(spec.ropes.begin(), spec.ropes.end(), [&](const models::Rope& rope) {
    const auto limit = static_cast<size_t>(rope.other_beyond);
    return limit > 0 && (length > limit) != (other > limit);
  });
}

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
    declare_kv_type(options, kv_type_, "type of the KV cache; auto: what the device computes in");
    device_.declare(options);
  }

  int run() override {
    Result<bool> passed = check();
    if (!passed) return report(passed.error());
    fmt::print("{}\n", *passed ? "PASS" : "FAIL");
    return *passed ? kSuccess : kFailure;
  }

 private:
  Result<bool> check() {
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(device_);
    if (!backend) return backend.error();
    Result<std::unique_ptr<models::Model>> model = load(*backend, 0);
    if (!model) return model.error();
    const DType kv_type = kv_type_.value_or((*backend)->activation_type());
    if (Status status = check_kv_type(kv_type, **backend); !status) return status.error();
    Result<std::vector<GoldenCase>> cases = read_golden(folder_, (*model)->spec().vocab);
    if (!cases) return cases.error();
    if (cases->empty()) return Error{ErrorCode::Corrupt, folder_ + "/golden.json: no cases"};

    // Of two logits nearer to each other than the error of 16 bits either may be the larger.
    const bool same_tokens = (*backend)->activation_type() == DType::F32 && kv_type == DType::F32;
    if (tolerance_ < 0) tolerance_ = kv_type == DType::F8_E4M3 ? 6e-2 : same_tokens ? 1e-3 : 2e-2;
    fmt::print("{} on {}, tolerance {:g}{}\n", (*model)->spec().family, (*backend)->name(), tolerance_,
               same_tokens ? "" : "; greedy tokens may differ");
    bool passed = true;
    size_t context = 0;
    for (size_t i = 0; i < cases->size(); ++i) {
      const size_t length = (*cases)[i].prompt.size();
      if (has_other_rope((*model)->spec(), context, length)) {
        model = load(*backend, static_cast<int>(length));
        if (!model) return model.error();
      }
      context = length;
      Result<GoldenVerdict> verdict = judge(**model, (*cases)[i], kv_type);
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

  // Set up for so many positions; 0: for no length in particular.
  Result<std::unique_ptr<models::Model>> load(const std::shared_ptr<kernels::Backend>& backend, int context) {
    Result<models::ModelFiles> files =
        models::open_model(model_.empty() ? folder_ : model_, {.serving_context = context});
    if (!files) return files.error();
    return models::load_model(std::move(*files), backend);
  }

  std::string folder_, model_;
  double tolerance_ = -1;
  std::optional<DType> kv_type_;
  runtime::DeviceOptions device_;
};

}  // namespace

std::unique_ptr<Command> make_check() {
  return std::make_unique<CheckCommand>();
}

}  // namespace sluice::cli
