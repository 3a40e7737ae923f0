// sluice perplexity: how well a model predicts a text.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "cli/command.h"
#include "cli/terminal/input.h"
#include "lab/perplexity.h"
#include "llm/model_store.h"
#include "runtime/device.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

class PerplexityCommand : public Command {
 public:
  std::string_view name() const override { return "perplexity"; }
  std::string_view summary() const override { return "measure how well a model predicts a text"; }
  std::string_view examples() const override {
    return "sluice perplexity -m MODEL -f /usr/share/common-licenses/GPL-3 --context 512";
  }

  void declare(OptionSet& options) override {
    options.add(model_, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(file_, "file", "the text, or - for stdin").short_name('f').shown_as("FILE");
    options.add(score_.context, "context", "tokens of one context; the second half is scored")
        .short_name('c')
        .within(4, 1 << 20);
    options.add(score_.contexts, "contexts", "contexts that are run; 0: all that the text fills")
        .within(0, 1 << 20);
    options.add_choice<DType>(
        score_.kv_type, "kv-type", "type of the KV cache",
        {{"f16", DType::F16}, {"bf16", DType::BF16}, {"f32", DType::F32}, {"int8", DType::I8}});
    options.add_choice<bool>(json_, "format", "a line, or JSON", {{"text", false}, {"json", true}});
    device_.declare(options);
  }

  int run() override {
    Result<std::string> path = llm::resolve_model(model_);
    if (!path) return report(path.error());
    Result<std::vector<Token>> text = read_text(*path);
    if (!text) return report(text.error());
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(device_);
    if (!backend) return report(backend.error());
    Result<models::ModelFiles> files = models::open_model(*path);
    if (!files) return report(files.error());
    Result<std::unique_ptr<models::Model>> model = models::load_model(std::move(*files), *backend);
    if (!model) return report(model.error());
    Result<lab::Perplexity> found = lab::measure_perplexity(**model, *text, score_, show);
    if (!found) return report(found.error());
    print(*found);
    return kSuccess;
  }

 private:
  // Every context begins with the token that begins a text, where the vocabulary has one.
  Result<std::vector<Token>> read_text(const std::string& model) {
    Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(model);
    if (!tokenizer) return tokenizer.error();
    const Result<std::string> input = read_input(file_);
    if (!input) return input.error();
    score_.first = tokenizer->special().bos;
    Result<std::vector<Token>> tokens = tokenizer->encode(*input, {});
    if (!tokens || !score_.first) return tokens;
    tokens->insert(tokens->begin(), *score_.first);
    return tokens;
  }

  void print(const lab::Perplexity& found) const {
    if (json_) {
      fmt::print("{}\n", json::serialize(json::object{{"perplexity", found.value()},
                                                      {"error", found.error()},
                                                      {"contexts", found.contexts},
                                                      {"scored", found.scored},
                                                      {"seconds", found.seconds}}));
    } else {
      fmt::print("perplexity {:.4f} +- {:.4f} ({} contexts of {}, {} tokens scored, {:.1f} s)\n",
                 found.value(), found.error(), found.contexts, score_.context, found.scored, found.seconds);
    }
  }

  // For somebody who waits.
  static void show(const lab::Perplexity& so_far) {
    if (isatty(STDERR_FILENO) == 0) return;
    fmt::print(stderr, "context {}: {:.4f}\n", so_far.contexts, so_far.value());
  }

  std::string model_, file_ = "-";
  lab::PerplexityOptions score_;
  runtime::DeviceOptions device_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_perplexity() {
  return std::make_unique<PerplexityCommand>();
}

}  // namespace sluice::cli
