#include "cli/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sluice::cli {

namespace {

// Of several rows of a flag the first holds whose option the verb takes.
struct ForeignFlag {
  std::string_view flag;
  std::string_view ours = {};    // the option that means the same
  std::string_view answer = {};  // what there is instead, as the end of a sentence that starts with the flag
};

constexpr std::string_view kKvType =
    "is '--kv-type' here, of keys and values together: f16, bf16, f32, int8, or fp8 on a GPU";
constexpr std::string_view kGpuLayers =
    "is '--device' here: cuda keeps every layer on the GPU, cpu none of them";
constexpr std::string_view kFlash = "is not needed: attention never stores its scores; leave it out";
constexpr std::string_view kMapped = "is not needed: weights are always mapped; leave it out";
constexpr std::string_view kTemplate =
    "is not needed: the model's own chat template is always used; leave it out";
constexpr std::string_view kStep = "is '--max-step-tokens' here, the tokens of one step";
constexpr std::string_view kMainGpu = "is '--device cuda:N' here, the GPU of index N";
constexpr std::string_view kOneGpu =
    "is not offered: a model runs on one GPU, or over ranks that mpirun starts by '--tp', '--ep', '--cp' and "
    "'--pp'";
constexpr std::string_view kNoAdapter = "is not offered: adapters are not supported";

constexpr auto kFlags = std::to_array<ForeignFlag>({
    // llama.cpp
    {"-ctk", {}, kKvType},
    {"-ctv", {}, kKvType},
    {"--cache-type-k", {}, kKvType},
    {"--cache-type-v", {}, kKvType},
    {"-ngl", {}, kGpuLayers},
    {"--gpu-layers", {}, kGpuLayers},
    {"--n-gpu-layers", {}, kGpuLayers},
    {"-fa", {}, kFlash},
    {"--flash-attn", {}, kFlash},
    {"-np", "max-seqs"},
    {"--parallel", "max-seqs"},
    {"-b", "max-step-tokens"},
    {"--batch-size", "max-step-tokens"},
    {"-ub", {}, kStep},
    {"--ubatch-size", {}, kStep},
    {"-tb", {}, "is not offered: '--threads' is for prompts and answers alike"},
    {"--threads-batch", {}, "is not offered: '--threads' is for prompts and answers alike"},
    {"--threads-http", "http-threads"},
    {"--n-predict", "max-tokens"},
    {"--n-predict", "max-output-tokens"},
    {"--predict", "max-tokens"},
    {"--predict", "max-output-tokens"},
    {"-n", "max-output-tokens"},
    {"-sys", "system"},
    {"--system-prompt", "system"},
    {"-r", "stop"},
    {"--reverse-prompt", "stop"},
    {"-dev", "device"},
    {"-a", "alias"},
    {"-to", "request-timeout"},
    {"--timeout", "request-timeout"},
    {"-cnv", {}, "is the verb 'chat' here"},
    {"-i", {}, "is the verb 'chat' here"},
    {"--interactive", {}, "is the verb 'chat' here"},
    {"--jinja", {}, kTemplate},
    {"--no-mmap", {}, kMapped},
    {"--mmap", {}, kMapped},
    {"--mlock", {}, "is not offered: weights stay in the page cache"},
    {"-cb", {}, "is '--scheme continuous' here, which is the default"},
    {"--cont-batching", {}, "is '--scheme continuous' here, which is the default"},
    {"--metrics", {}, "is not needed: /metrics is always there; leave it out"},
    {"--embedding", {}, "is not needed: /v1/embeddings is always there; leave it out"},
    {"--embeddings", {}, "is not needed: /v1/embeddings is always there; leave it out"},
    {"-sm", {}, kOneGpu},
    {"--split-mode", {}, kOneGpu},
    {"-ts", {}, kOneGpu},
    {"--tensor-split", {}, kOneGpu},
    {"-mg", {}, kMainGpu},
    {"--main-gpu", {}, kMainGpu},
    {"--lora", {}, kNoAdapter},
    {"-md", {}, "is '--speculate draft:MODEL' here"},
    {"--model-draft", {}, "is '--speculate draft:MODEL' here"},
    // vLLM
    {"--max-model-len", "ctx-size"},
    {"--max-num-seqs", "max-seqs"},
    {"--max-num-batched-tokens", "max-step-tokens"},
    {"--gpu-memory-utilization", "gpu-memory"},
    {"--kv-cache-dtype", {}, kKvType},
    {"--tensor-parallel-size", "tp"},
    {"-tp", "tp"},
    {"--enable-expert-parallel", {}, "is '--ep N' here, the number of ranks that share the experts"},
    {"--decode-context-parallel-size", "cp"},
    {"-dcp", "cp"},
    {"--pipeline-parallel-size", "pp"},
    {"-pp", "pp"},
});
// Its value names a repository.
constexpr auto kHubFlags = std::to_array<std::string_view>({"-hf", "-hfr", "--hf-repo"});

bool is_switch(const Option& option) {
  return std::holds_alternative<bool*>(option.target);
}

// The option that the word is a flag of; null where there is none.
const Option* option_of(std::string_view word, const OptionSet& options) {
  for (const Option& option : options.options()) {
    if (option.positional) continue;
    const auto is_name = [&](std::string_view name) { return word == fmt::format("--{}", name); };
    if (is_name(option.name) || std::any_of(option.aliases.begin(), option.aliases.end(), is_name) ||
        (option.letter != 0 && word == fmt::format("-{}", option.letter)))
      return &option;
  }
  return nullptr;
}

const ForeignFlag* foreign_flag(std::string_view word, const OptionSet& options) {
  const ForeignFlag* first = nullptr;
  for (const ForeignFlag& row : kFlags) {
    if (row.flag != word) continue;
    if (row.ours.empty() || option_of(fmt::format("--{}", row.ours), options) != nullptr) return &row;
    if (first == nullptr) first = &row;
  }
  return first;
}

Error refusal(std::string_view flag, std::string_view answer) {
  return {ErrorCode::InvalidArgument, fmt::format("'{}' {}", flag, answer)};
}

}  // namespace

Result<std::vector<std::string>> translate_flags(std::vector<std::string> words, const OptionSet& options) {
  const bool takes_model = option_of("--model", options) != nullptr;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const size_t equals = words[i].starts_with("--") ? words[i].find('=') : std::string::npos;
    const std::string flag = words[i].substr(0, equals);
    const std::string rest = equals == std::string::npos ? "" : words[i].substr(equals);
    if (const Option* option = option_of(flag, options)) {
      if (!is_switch(*option) && rest.empty()) ++i;  // its value
      continue;
    }
    const bool is_hub = std::find(kHubFlags.begin(), kHubFlags.end(), flag) != kHubFlags.end();
    if (is_hub && takes_model && (!rest.empty() || i + 1 < words.size())) {
      const std::string repository = rest.empty() ? words[i + 1] : rest.substr(1);
      words[i] = "--model=hf:" + repository;
      if (rest.empty()) words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      continue;
    }
    const ForeignFlag* row = foreign_flag(flag, options);
    if (row == nullptr) continue;
    if (row->ours.empty()) return refusal(flag, row->answer);
    if (option_of("--" + std::string(row->ours), options) == nullptr)
      return refusal(flag, fmt::format("is '--{}' here, which this verb does not take", row->ours));
    words[i] = fmt::format("--{}{}", row->ours, rest);
    if (rest.empty()) ++i;
  }
  return words;
}

}  // namespace sluice::cli
