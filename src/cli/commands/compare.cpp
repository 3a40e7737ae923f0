// sluice compare: how far two models, quantisations, KV types or back-ends are from each other on a text.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "cli/command.h"
#include "cli/terminal/input.h"
#include "lab/compare.h"
#include "llm/model_store.h"
#include "runtime/device.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

constexpr double kNormal95 = 1.96;  // standard errors to each side of a mean

class CompareCommand : public Command {
 public:
  std::string_view name() const override { return "compare"; }
  std::string_view summary() const override {
    return "measure how far two models, quantisations, KV types or devices are from each other";
  }
  std::string_view examples() const override {
    return "sluice compare f16.gguf q4_k_m.gguf -f /usr/share/common-licenses/GPL-3\n"
           "sluice compare MODEL MODEL --kv-type-b int8 -f TEXT";
  }

  void declare(OptionSet& options) override {
    options.add(first_, "A", "the model that is the measure: file, folder or name").at_position();
    options.add(second_, "B", "the model that is held to it").at_position();
    options.add(file_, "file", "the text, or - for stdin").short_name('f').shown_as("FILE");
    options.add(score_.context, "context", "tokens of one context; the second half is scored")
        .short_name('c')
        .within(4, 1 << 20);
    options.add(score_.contexts, "contexts", "contexts that are run; 0: all that the text fills")
        .within(0, 1 << 20);
    declare_kv(options, first_kv_, "kv-type", "type of the KV cache of A");
    declare_kv(options, second_kv_, "kv-type-b", "type of the KV cache of B");
    options.add(second_device_, "device-b", "where B computes; empty: where A does").shown_as("NAME");
    options.add_choice<bool>(json_, "format", "lines, or JSON", {{"text", false}, {"json", true}});
    device_.declare(options);
  }

  int run() override {
    Result<lab::Comparison> found = compare();
    if (!found) return report(found.error());
    print(*found);
    return kSuccess;
  }

 private:
  static void declare_kv(OptionSet& options, DType& target, std::string name, std::string help) {
    options.add_choice<DType>(
        target, std::move(name), std::move(help),
        {{"f16", DType::F16}, {"bf16", DType::BF16}, {"f32", DType::F32}, {"int8", DType::I8}});
  }

  Result<std::vector<Token>> tokens_of(const std::string& model, const std::string& text) {
    Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(model);
    if (!tokenizer) return tokenizer.error();
    score_.first = tokenizer->special().bos;
    Result<std::vector<Token>> tokens = tokenizer->encode(text, {});
    if (!tokens || !score_.first) return tokens;
    tokens->insert(tokens->begin(), *score_.first);
    return tokens;
  }

  Result<std::unique_ptr<models::Model>> load(const std::string& path, const runtime::DeviceOptions& device) {
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(device);
    if (!backend) return backend.error();
    Result<models::ModelFiles> files = models::open_model(path);
    if (!files) return files.error();
    return models::load_model(std::move(*files), *backend);
  }

  Result<lab::Comparison> compare() {
    const Result<std::string> first = llm::resolve_model(first_), second = llm::resolve_model(second_);
    if (!first) return first.error();
    if (!second) return second.error();
    const Result<std::string> text = read_input(file_);
    if (!text) return text.error();
    const Result<std::vector<Token>> other = tokens_of(*second, *text), tokens = tokens_of(*first, *text);
    if (!tokens) return tokens.error();
    if (!other) return other.error();
    if (*tokens != *other)
      return Error{ErrorCode::InvalidArgument,
                   "the models cut the text into different tokens: there is nothing to compare"};
    runtime::DeviceOptions device_b = device_;
    if (!second_device_.empty()) device_b.device = second_device_;
    Result<std::unique_ptr<models::Model>> a = load(*first, device_);
    if (!a) return a.error();
    Result<std::unique_ptr<models::Model>> b = load(*second, device_b);
    if (!b) return b.error();
    return lab::compare_models({**a, first_kv_}, {**b, second_kv_}, *tokens, score_, show);
  }

  void print(const lab::Comparison& found) const {
    if (json_) {
      fmt::print("{}\n", json::serialize(json::object{{"kl_divergence", found.divergence.value()},
                                                      {"kl_error", found.divergence.error()},
                                                      {"kl_max", found.largest_divergence},
                                                      {"top1_agreement", found.same_best.value()},
                                                      {"top1_error", found.same_best.error()},
                                                      {"perplexity_a", found.first.value()},
                                                      {"perplexity_a_error", found.first.error()},
                                                      {"perplexity_b", found.second.value()},
                                                      {"perplexity_b_error", found.second.error()},
                                                      {"log_ratio", found.log_ratio.value()},
                                                      {"log_ratio_error", found.log_ratio.error()},
                                                      {"contexts", found.first.contexts},
                                                      {"scored", found.first.scored},
                                                      {"seconds", found.first.seconds}}));
      return;
    }
    fmt::print("perplexity A        {:.4f} +- {:.4f}\n", found.first.value(),
               kNormal95 * found.first.error());
    fmt::print("perplexity B        {:.4f} +- {:.4f}\n", found.second.value(),
               kNormal95 * found.second.error());
    fmt::print("B to A              {:+.3f} % +- {:.3f}\n", 100 * found.log_ratio.value(),
               100 * kNormal95 * found.log_ratio.error());
    fmt::print("KL divergence       {:.6f} +- {:.6f} nats, largest {:.4f}\n", found.divergence.value(),
               kNormal95 * found.divergence.error(), found.largest_divergence);
    fmt::print("same best token     {:.2f} % +- {:.2f}\n", 100 * found.same_best.value(),
               100 * kNormal95 * found.same_best.error());
    fmt::print("{} contexts of {}, {} tokens scored, {:.1f} s; ranges are 95 % confidence\n",
               found.first.contexts, score_.context, found.first.scored, found.first.seconds);
  }

  // For somebody who waits.
  static void show(const lab::Comparison& so_far) {
    if (isatty(STDERR_FILENO) == 0) return;
    fmt::print(stderr, "context {}: KL {:.6f}, same best token {:.2f} %, perplexity {:.4f} and {:.4f}\n",
               so_far.first.contexts, so_far.divergence.value(), 100 * so_far.same_best.value(),
               so_far.first.value(), so_far.second.value());
  }

  std::string first_, second_, file_ = "-", second_device_;
  DType first_kv_ = DType::F16, second_kv_ = DType::F16;
  lab::PerplexityOptions score_;
  runtime::DeviceOptions device_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compare() {
  return std::make_unique<CompareCommand>();
}

}  // namespace sluice::cli
