#include "lab/schemes.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/load/drive.h"
#include "llm/session.h"
#include "models/model.h"

namespace sluice::lab {

namespace {

struct SchemeChoice {
  const char *name, *policy;
  std::vector<std::string> settings;
  bool cached = true;
};

std::vector<SchemeChoice> scheme_choices(int kv_tokens) {
  std::vector<SchemeChoice> out{{"no KV cache, batch 1", "-", {"kv-cache=off", "max-seqs=1"}, false}};
  struct Base {
    const char* name;
    std::vector<std::string> settings;
  };
  const std::vector<Base> bases{
      {"static padded", {"scheme=static", "layout=padded"}},
      {"dynamic padded", {"scheme=dynamic", "layout=padded"}},
      {"iteration padded", {"scheme=iteration", "layout=padded"}},
      {"iteration packed", {"scheme=iteration", "layout=packed"}},
      {"continuous separate", {"scheme=continuous", "prefill=separate"}},
      {"continuous mixed", {"scheme=continuous", "prefill=mixed"}},
  };
  for (const Base& base : bases) {
    for (const char* policy : {"preallocate", "on-demand"}) {
      SchemeChoice choice{base.name, policy, base.settings};
      choice.settings.push_back(fmt::format("kv-policy={}", policy));
      out.push_back(std::move(choice));
    }
  }
  out.push_back(
      {"continuous mixed, swap",
       "on-demand",
       {"scheme=continuous", "preempt=swap", fmt::format("swap-tokens={}", std::max(1024, kv_tokens))}});
  out.push_back({"continuous mixed, prefix cache", "on-demand", {"scheme=continuous", "prefix-cache=on"}});
  return out;
}

// Watches an engine while it is under load.
class Watcher {
 public:
  explicit Watcher(engine::Engine& engine, SchemeResult& out) : engine_(engine), out_(out) { look(0); }

  void look(double seconds) {
    constexpr size_t kMostSteps = 4000;
    engine::Trace::Page page = engine_.trace(cursor_);
    for (auto& step : page.steps)
      if (out_.steps.size() < kMostSteps) out_.steps.push_back(std::move(step));
    const engine::Metrics& metrics = engine_.metrics();
    const double blocks = std::max<double>(1, double(metrics.kv_blocks.value()));
    const double used = double(std::max(metrics.kv_used.value(), metrics.kv_promised.value()));
    out_.kv_over_time.emplace_back(seconds, used / blocks);
  }

 private:
  engine::Engine& engine_;
  SchemeResult& out_;
  engine::Trace::Cursor cursor_;
};

void take_metrics(SchemeResult& out, const engine::Metrics& metrics) {
  out.generated = double(metrics.generated_tokens.value());
  out.ttft_p50 = metrics.ttft.quantile(0.5);
  out.ttft_p99 = metrics.ttft.quantile(0.99);
  out.tpot_p50 = metrics.tpot.quantile(0.5);
  out.tbt_p50 = metrics.tbt.quantile(0.5);
  out.tbt_p99 = metrics.tbt.quantile(0.99);
  const double computed = std::max<double>(1, double(metrics.computed_tokens.value()));
  out.padding = 1 - double(metrics.run_tokens.value()) / computed;
  out.kv_share = metrics.kv_share.mean();
  out.batch = metrics.batch_size.mean();
  out.cached = double(metrics.cached_tokens.value());
  out.preempted = metrics.preempted_dropped.value() + metrics.preempted_swapped.value();
}

Result<SchemeResult> run_scheme(const SchemeOptions& options, const SchemeChoice& choice) {
  llm::SessionOptions session_options = options.session;
  session_options.engine.prefix_cache = false;
  session_options.needs_tokenizer = false;
  OptionSet known;
  session_options.engine.declare(known);
  if (Status status = set_values(known, choice.settings); !status) return status.error();
  Result<std::unique_ptr<llm::Session>> session = llm::Session::open(session_options);
  if (!session) return session.error();
  WorkloadOptions load = options.workload;
  if (!choice.cached) load.requests = std::min<int64_t>(load.requests, options.no_cache_requests);
  load.vocab = std::min(load.vocab, (*session)->model().spec().vocab);
  load.first_token = std::min(load.first_token, load.vocab / 2);
  SchemeResult out{.name = choice.name, .policy = choice.policy};
  Watcher watcher((*session)->engine(), out);
  Workload workload(load);
  const EncodeText encode = [&](const std::string& text) { return (*session)->encode_text(text); };
  out.start = Clock::now();
  const LoadResult result =
      drive_engine((*session)->engine(), workload, encode,
                   [&](const LoadProgress& progress) { watcher.look(progress.seconds); });
  watcher.look(seconds_since(out.start));
  for (const LoadRecord& record : result.records) {
    if (!record.error.empty()) return Error{ErrorCode::Internal, record.error};
    out.longest = std::max(out.longest, record.output);
  }
  out.requests = static_cast<int64_t>(result.records.size());
  out.seconds = result.duration;
  take_metrics(out, (*session)->engine().metrics());
  return out;
}

}  // namespace

Result<std::vector<SchemeResult>> run_schemes(const SchemeOptions& options,
                                              const std::function<void(const SchemeResult&)>& done) {
  std::vector<SchemeResult> out;
  for (const SchemeChoice& choice : scheme_choices(options.session.engine.kv_tokens)) {
    Result<SchemeResult> result = run_scheme(options, choice);
    if (!result)
      return Error{result.error().code,
                   fmt::format("{} ({}): {}", choice.name, choice.policy, result.error().message)};
    done(*result);
    out.push_back(std::move(*result));
  }
  return out;
}

}  // namespace sluice::lab
