// Times workloads through the whole engine: scheduler, KV manager, executor, delivery; without tokenizer and sockets.
// Greedy, end tokens ignored, prompts of random tokens, no prefix cache. Rates are printed beside the least time that
// the GPU's memory and arithmetic allow (of models without experts: shapes.py knows the others' floors) and, for the shape of
// Llama 3.1 8B, beside what other engines reached on such a GPU: in bf16, or, for a file, with 4 bits (AWQ in vLLM, Q4_K in
// llama.cpp).
//   bench_engine FOLDER|FILE.gguf [OPTION=VALUE ...] decode|decodeBATCH|prefill|mixed|long|sampled|hosted ...
// deep: decode of 128 sequences of 4,096 tokens; deep16k: of 32 of 16,384; prefill32k: one prompt of 32,768 (with
// ctx-size=33000 for these two). hosted: what one more request that samples on the host costs 64 greedy ones.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string_view>
#include <variant>

#include "gpu_bench.h"
#include "kernels/cuda/cuda.h"
#include "llm/session.h"
#include "llm/session_options.h"

namespace sluice {
namespace {

constexpr double kBytesPerSecond = 4.39e12, kOperationsPerSecond = 790e12;

using bench::seconds;

struct Job {
  int prompt = 0, answer = 0;
  request::Sampling how = {.temperature = 0};
};

// What others reached, tok/s; 0: not known.
struct Peers {
  double vllm = 0, llama_cpp = 0;
};

class Bench {
 public:
  // stored_bytes: of all weights, as they are stored.
  Bench(llm::Session& session, double repetition, double stored_bytes)
      : session_(session), repetition_(repetition), vocab_(session.model().spec().vocab) {
    const models::ModelSpec& spec = session.model().spec();
    const auto all = static_cast<double>(models::parameter_count(spec));
    weights_ = all - double{1} * spec.vocab * spec.dim;
    weight_bytes_ = weights_ * stored_bytes / all;
    packed_ = stored_bytes < 1.5 * all;
    has_peers_ = spec.dim == 4096 && spec.layers.size() == 32 && spec.vocab == 128256;
    has_experts_ = std::any_of(spec.layers.begin(), spec.layers.end(), [](const models::LayerSpec& layer) {
      return std::holds_alternative<models::MoeFfn>(layer.ffn) ||
             std::holds_alternative<models::DenseBesideExperts>(layer.ffn);
    });
  }

  // Runs all jobs at once; seconds until the last has ended.
  double run(const std::vector<Job>& jobs) {
    std::atomic<int64_t> tokens{0}, failed{0};
    arrivals_.clear();
    const double start = seconds();
    for (const Job& job : jobs) {
      engine::Submission submission;
      for (int i = 0; i < job.prompt; ++i)
        submission.request.prompt.push_back(static_cast<Token>(random_() % static_cast<unsigned>(vocab_)));
      submission.request.sampling().max_tokens = job.answer;
      submission.request.sampling().ignore_eos = true;
      submission.request.sampling().repetition_penalty = repetition_;
      submission.request.sampling().method = job.how;
      const bool watched = &job == &jobs.back();
      submission.deliver = [&, watched](const engine::Event& event) {
        if (watched && std::holds_alternative<engine::Delta>(event)) arrivals_.push_back(seconds());
        if (const auto* delta = std::get_if<engine::Delta>(&event))
          tokens += static_cast<int64_t>(delta->tokens.size());
        if (const auto* end = std::get_if<engine::Finished>(&event); end != nullptr && end->error) ++failed;
      };
      if (const auto id = session_.engine().submit(std::move(submission)); !id) {
        fmt::print(stderr, "{}\n", id.error().message);
        ++failed;
      }
    }
    session_.engine().wait_idle();
    const double time = seconds() - start;
    int64_t wanted = 0;
    for (const Job& job : jobs) wanted += job.answer;
    if (failed > 0 || tokens != wanted)
      fmt::print("FAILED: {} requests, {} of {} tokens\n", failed.load(), tokens.load(), wanted);
    return time;
  }

  bool packed() const { return packed_; }

  static std::vector<Job> same(int count, int prompt, int answer,
                               const request::Sampling& how = {.temperature = 0}) {
    return std::vector<Job>(static_cast<size_t>(count), Job{prompt, answer, how});
  }

  // Rate of the steps in which all sequences run: the median time between two tokens of the one that was sent last.
  void decode(int batch, Peers peers, const request::Sampling& how = {.temperature = 0},
              const char* name = "decode", int prompt = 512) {
    const int answer = 128;
    const double first = run(same(batch, prompt, 1, how));
    run(same(batch, prompt, answer, how));
    const double step = percentile(gaps(), 50);
    const double floor = (weight_bytes_ + kv_bytes() * batch * (prompt + answer / 2.0)) / kBytesPerSecond;
    print(fmt::format("{} batch {}", name, batch), batch / step, batch / floor, peers,
          fmt::format("{:.3f} ms a step; gaps {}; first token of all {:.1f} ms", step * 1e3, describe_gaps(),
                      first * 1e3));
  }

  void prefill(int count, int prompt, Peers peers) {
    run(same(count, prompt, 1));
    const double time = run(same(count, prompt, 1));
    const double tokens = double{1} * count * prompt;
    const models::ModelSpec& spec = session_.model().spec();
    const double operations = 2 * tokens * (weights_ - double{1} * spec.vocab * spec.dim) +
                              2 * tokens * prompt * static_cast<double>(spec.layers.size()) * spec.dim;
    print(fmt::format("prefill {} x {}", count, prompt), tokens / time,
          tokens * kOperationsPerSecond / operations, peers, fmt::format("{:.1f} ms", time * 1e3));
  }

  void requests(const char* name, const std::vector<Job>& jobs, Peers peers) {
    const double time = run(jobs);
    double out = 0;
    for (const Job& job : jobs) out += job.answer;
    print(name, out / time, 0, peers, fmt::format("{:.2f} s; gaps {}", time, describe_gaps()));
  }

  // The time between the first and the last token of a greedy request: 64 of them alone, 65, and 64 beside one that
  // samples on the host. Three rounds in turn, medians.
  void hosted() {
    const int prompt = 512, answer = 256;
    std::vector<Job> beside = same(65, prompt, answer);
    beside.front().how = {.temperature = 1, .typical_p = 0.9, .seed = 1};
    const std::vector<Job> loads[] = {same(64, prompt, answer), same(65, prompt, answer), beside};
    std::vector<double> steps[std::size(loads)];
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < std::size(loads); ++i) {
        run(loads[i]);
        steps[i].push_back((arrivals_.back() - arrivals_.front()) / (answer - 1));
      }
    }
    for (auto& all : steps) std::sort(all.begin(), all.end());
    const double alone = steps[0][1];
    const char* names[] = {"64 greedy", "65 greedy", "64 greedy and one sampled on the host"};
    for (size_t i = 0; i < std::size(loads); ++i)
      print(names[i], 64 / steps[i][1], 0, {},
            fmt::format("{:.3f} ms a step, {:.3f} of 64 alone", steps[i][1] * 1e3, steps[i][1] / alone));
  }

  // Evenly spread lengths in random order: the sum does not depend on luck.
  static std::vector<Job> mixed(int count) {
    std::vector<Job> jobs;
    for (int i = 0; i < count; ++i) jobs.push_back({64 + 960 * i / (count - 1), 128});
    std::shuffle(jobs.begin(), jobs.end(), std::mt19937(11));
    return jobs;
  }

 private:
  double kv_bytes() const {
    return static_cast<double>(
        models::kv_bytes_per_token(session_.model().spec(), session_.setup().executor.memory.type));
  }
  void print(const std::string& name, double rate, double floor, Peers peers, const std::string& more) const {
    if (!has_peers_) peers = {};
    if (has_experts_) floor = 0;
    const auto number = [](double value) {
      return value > 0 ? fmt::format("{:.0f}", value) : std::string("-");
    };
    fmt::print("| {} | {:.0f} | {} | {} | {} | {} |\n", name, rate, number(floor), number(peers.vllm),
               number(peers.llama_cpp), more);
    std::fflush(stdout);
  }

  // Seconds between the tokens of the last request, shortest first.
  std::vector<double> gaps() const {
    std::vector<double> all;
    for (size_t i = 1; i < arrivals_.size(); ++i) all.push_back(arrivals_[i] - arrivals_[i - 1]);
    std::sort(all.begin(), all.end());
    return all;
  }
  static double percentile(const std::vector<double>& sorted, size_t percent) {
    return sorted.empty() ? 0 : sorted[std::min(sorted.size() * percent / 100, sorted.size() - 1)];
  }
  // Median, 99th percentile, longest.
  std::string describe_gaps() const {
    const std::vector<double> all = gaps();
    return fmt::format("{:.3f} / {:.3f} / {:.3f} ms", percentile(all, 50) * 1e3, percentile(all, 99) * 1e3,
                       percentile(all, 100) * 1e3);
  }

  llm::Session& session_;
  double repetition_;
  std::vector<double> arrivals_;  // of the last request's tokens
  int vocab_;
  double weights_ = 0, weight_bytes_ = 0;  // that a step reads
  bool packed_ = false;                    // in clearly less than two bytes each
  bool has_peers_ = false, has_experts_ = false;
  std::mt19937 random_{7};
};

int run_all(llm::Session& session, double repetition, double stored_bytes,
            const std::vector<std::string_view>& what) {
  Bench bench(session, repetition, stored_bytes);
  bench.run(Bench::same(8, 64, 16));
  fmt::print("| workload | tok/s | limit | vLLM 0.25.1 | llama.cpp | |\n|---|---|---|---|---|---|\n");
  constexpr struct {
    int batch;
    Peers peers, four_bits;
  } kDecode[] = {{1, {206, 210}, {253, 290}},         {8, {1551, 1209}, {1922, 734}},
                 {32, {5484, 3896}, {0, 3210}},       {64, {9530, 6257}, {9485, 4418}},
                 {128, {14992, 8985}, {14936, 5015}}, {256, {18897, 0}, {}}};
  const bool packed = bench.packed();
  for (const std::string_view name : what) {
    for (const auto& one : kDecode)
      if (name == "decode" || name == fmt::format("decode{}", one.batch))
        bench.decode(one.batch, packed ? one.four_bits : one.peers);
    if (name == "sampled") {
      for (const int batch : {1, 128})
        bench.decode(batch, {}, {.temperature = 0.8, .top_k = 50, .top_p = 0.9, .seed = 1}, "sampled");
    }
    if (name == "hosted") bench.hosted();
    if (name == "deep") bench.decode(128, {}, {.temperature = 0}, "4,096 deep: decode", 4096);
    if (name == "deep16k") bench.decode(32, {}, {.temperature = 0}, "16,384 deep: decode", 16384);
    if (name == "prefill32k") bench.prefill(1, 32768, {});
    if (name == "prefill") bench.prefill(16, 2048, packed ? Peers{47093, 11840} : Peers{43148, 31000});
    if (name == "mixed") bench.requests("256 requests, 64-1024 in, 128 out", Bench::mixed(256), {6485, 0});
    if (name == "long128")
      bench.requests("128 requests, 1000 in, 1000 out", Bench::same(128, 1000, 1000), {});
    if (name == "long")
      bench.requests("256 requests, 1000 in, 1000 out", Bench::same(256, 1000, 1000), {9779, 0});
  }
  return 0;
}

constexpr std::string_view kWorkloads[] = {
    "decode", "decode1", "decode8", "decode32", "decode64", "decode128", "decode256", "sampled",
    "hosted", "prefill", "mixed",   "long128",  "long",     "deep",      "deep16k",   "prefill32k"};

int refuse(std::string_view message) {
  fmt::print(stderr,
             "bench_engine: {}\nbench_engine FOLDER|FILE.gguf [repetition=X] [NAME=VALUE as in 'sluice serve "
             "--help' ...] WORKLOAD ...\nworkloads: {}\n",
             message, fmt::join(kWorkloads, " "));
  return 2;
}

// Of a GGUF file, or of a folder's safetensors.
double bytes_of(const std::string& model) {
  if (std::filesystem::is_regular_file(model)) return static_cast<double>(std::filesystem::file_size(model));
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(model))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<double>(entry.file_size());
  return bytes;
}

int main_of(int count, char** arguments) {
  const double start = seconds();
  if (count < 3) return refuse("a model and a workload are needed");
  const std::string folder = arguments[1];
  llm::SessionOptions options;
  options.model = folder;
  options.needs_tokenizer = false;
  options.engine.prefix_cache = false;
  options.engine.target_tbt = 0;  // throughput is what is measured
  options.engine.context = 4096;
  options.engine.device.device = "cuda";
  double repetition = 1;
  OptionSet known;
  options.engine.declare(known);
  known.add(repetition, "repetition", "penalty of tokens seen before");
  std::vector<std::string> settings;
  for (; count > 2 && std::string_view(arguments[2]).find('=') != std::string_view::npos;
       --count, ++arguments)
    settings.emplace_back(arguments[2]);
  if (Status status = set_values(known, settings); !status) return refuse(status.error().message);
  for (int i = 2; i < count; ++i)
    if (std::find(std::begin(kWorkloads), std::end(kWorkloads), arguments[i]) == std::end(kWorkloads))
      return refuse(fmt::format("unknown workload '{}'", arguments[i]));
  Result<std::unique_ptr<llm::Session>> session = llm::Session::open(options);
  if (!session) {
    fmt::print(stderr, "{}\n", session.error().message);
    return 1;
  }
  fmt::print("# {}; ready after {:.2f} s; {} positions of KV\n", (*session)->model().backend->name(),
             seconds() - start, (*session)->setup().kv_tokens);
  const double stored_bytes = bytes_of(folder);
  const int result = run_all(**session, repetition, stored_bytes, {arguments + 2, arguments + count});
  if (auto* gpu = dynamic_cast<kernels::CudaBackend*>((*session)->model().backend.get()))
    fmt::print("# {} steps recorded\n", gpu->graphs());
  return result;
}

}  // namespace
}  // namespace sluice

int main(int count, char** arguments) {
  return sluice::bench::run_reporting([&] { return sluice::main_of(count, arguments); });
}
