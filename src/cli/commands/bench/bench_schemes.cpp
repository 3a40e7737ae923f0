// sluice bench schemes and sluice bench sweep: one load under many settings.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/lab/load_flags.h"
#include "lab/html/page.h"
#include "lab/schemes.h"
#include "lab/sweep.h"

namespace sluice::cli {

namespace {

std::string workload_text(const LoadFlags& load) {
  return fmt::format("{} requests, input {}, output {}, rate {}, concurrency {}, shared prefix {}, seed {}{}",
                     load.workload.requests, load.input, load.output, load.rate, load.workload.concurrency,
                     load.workload.prefix, load.workload.seed,
                     load.dataset.empty() ? "" : ", " + load.dataset);
}

class BenchSchemesCommand : public Command {
 public:
  BenchSchemesCommand() {
    load_.input = "8-128";
    load_.output = "8-256";
    load_.workload.concurrency = 64;
    options_.session.engine.max_seqs = 16;
    options_.session.engine.max_step_tokens = 512;
    options_.session.engine.kv_tokens = 3072;
  }
  std::string_view name() const override { return "bench schemes"; }
  std::string_view summary() const override {
    return "run one workload under every scheduling scheme, layout, KV policy and preemption";
  }
  std::string_view examples() const override {
    return "sluice bench schemes --html schemes.html\nsluice bench schemes --num-prompts 16 --shared-prefix "
           "64";
  }
  void declare(OptionSet& options) override {
    options.add(options_.session.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    load_.declare(options);
    options.add(options_.no_cache_requests, "no-cache-requests", "requests of the row without KV cache")
        .within(1, 1e6);
    options.add(json_, "output", "write the figures as JSON").shown_as("FILE");
    options.add(html_, "html", "write them as a page with lanes and KV use").shown_as("FILE");
    options.add(svg_, "svg", "draw the first seconds of three schemes as a picture").shown_as("FILE");
    options_.session.engine.declare(options);
  }
  int run() override {
    Result<lab::WorkloadOptions> workload = load_.resolve();
    if (!workload) return report(workload.error());
    options_.workload = std::move(*workload);
    const std::string text = workload_text(load_);
    fmt::print("{}; without KV cache {} of them.\n\n{}", text, options_.no_cache_requests,
               lab::schemes_header());
    const auto results = lab::run_schemes(options_, [](const lab::SchemeResult& result) {
      fmt::print("{}", lab::schemes_row(result));
      std::fflush(stdout);
    });
    if (!results) return report(results.error());
    if (!json_.empty())
      if (Status status = lab::write_text_file(json_, write_json(lab::schemes_json(*results)) + "\n");
          !status)
        return report(status.error());
    Status status;
    if (!svg_.empty()) status = lab::write_text_file(svg_, lab::schemes_svg(*results));
    if (status && !html_.empty()) status = lab::write_text_file(html_, lab::schemes_html(*results, text));
    return status ? kSuccess : report(status.error());
  }

 private:
  LoadFlags load_;
  lab::SchemeOptions options_;
  std::string json_, html_, svg_;
};

class BenchSweepCommand : public Command {
 public:
  std::string_view name() const override { return "bench sweep"; }
  std::string_view summary() const override {
    return "run one workload over a grid of settings: the frontier of throughput and latency, and the best "
           "point";
  }
  std::string_view examples() const override {
    return "sluice bench sweep --grid max-seqs=4,8,16,32 --grid max-step-tokens=128,512 --slo "
           "ttft:1s,tpot:60ms "
           "--results sweep.jsonl --html sweep.html";
  }
  void declare(OptionSet& options) override {
    options.add(options_.session.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options
        .add(grid_, "grid",
             "an option and its values: max-seqs=8,16, threads=1,2, kv-type=f16,int8, model=A.gguf,B.gguf; "
             "may be "
             "repeated")
        .shown_as("NAME=LIST");
    load_.declare(options);
    options
        .add(options_.results, "results", "keep every point in this file and run only those it does not hold")
        .shown_as("FILE");
    options.add(html_, "html", "write the frontier as a page").shown_as("FILE");
    options_.session.engine.declare(options);
  }
  int run() override {
    Result<lab::WorkloadOptions> workload = load_.resolve();
    if (!workload) return report(workload.error());
    const Result<lab::ServiceLimits> limits = load_.limits();
    if (!limits) return report(limits.error());
    options_.workload = std::move(*workload);
    options_.limits = *limits;
    options_.workload_key = workload_text(load_);
    if (grid_.empty())
      return report({ErrorCode::InvalidArgument, "--grid NAME=LIST is needed at least once"});
    for (const std::string& text : grid_) {
      Result<lab::SweepAxis> axis = lab::SweepAxis::parse(text);
      if (!axis) return report(axis.error());
      options_.axes.push_back(std::move(*axis));
    }
    const auto points = lab::run_sweep(options_, [](const lab::SweepPoint& point) {
      fmt::print(stderr, "{}: {:.1f} tokens/s, TPOT {:.1f} ms\n", point.flags(), point.tokens_per_second,
                 point.tpot_p50);
    });
    if (!points) return report(points.error());
    fmt::print("{}", lab::sweep_text(*points));
    if (html_.empty()) return kSuccess;
    const Status status = lab::write_text_file(html_, lab::sweep_html(*points, options_.workload_key));
    return status ? kSuccess : report(status.error());
  }

 private:
  LoadFlags load_;
  lab::SweepOptions options_;
  std::vector<std::string> grid_;
  std::string html_;
};

}  // namespace

std::unique_ptr<Command> make_bench_schemes() {
  return std::make_unique<BenchSchemesCommand>();
}

std::unique_ptr<Command> make_bench_sweep() {
  return std::make_unique<BenchSweepCommand>();
}

}  // namespace sluice::cli
