#include "cli/lab/load_flags.h"

#include <fmt/format.h>

#include "lab/html/page.h"

namespace sluice::cli {

void LoadFlags::declare(OptionSet& options) {
  options.add(workload.requests, "num-prompts", "requests in all").within(1, 1e9);
  options.add(duration, "duration", "seconds in which requests are sent, in place of a number; 0: the number")
      .within(0, 1e6);
  options.add(workload.concurrency, "concurrency", "most requests at once; 0: 16 in a closed loop, else any")
      .also("max-concurrency")
      .within(0, 1 << 20);
  options.add(rate, "request-rate", "requests a second, of a Poisson process; 0: a closed loop")
      .within(0, 1e9);
  options
      .add(workload.burstiness, "burstiness",
           "shape of the gaps' gamma distribution: 1 Poisson, less: bursts")
      .within(0.01, 1e3);
  options.add(workload.ramp, "ramp", "seconds over which the rate grows to its height").within(0, 1e6);
  options.add(workload.warmups, "num-warmups", "first requests that do not count").within(0, 1 << 20);
  options.add(input, "input-len", "tokens of a prompt: 128, 16-128 or lognormal:MEAN:DEVIATION")
      .also("random-input-len")
      .shown_as("LAW");
  options.add(output, "output-len", "tokens of an answer, likewise")
      .also("random-output-len")
      .shown_as("LAW");
  options.add(workload.prefix, "shared-prefix", "tokens that the prompts of a group begin with")
      .also("random-prefix-len")
      .within(0, 1 << 20);
  options.add(workload.prefix_groups, "prefix-groups", "groups with a prefix of their own")
      .within(1, 1 << 20);
  options.add(workload.turns, "turns", "requests of a conversation, each with the prompt before it")
      .within(1, 1 << 12);
  options
      .add(workload.turn_gap, "turn-gap",
           "requests from one turn of a conversation to the next: so many conversations go on together")
      .within(1, 1 << 24);
  options.add(workload.prefix_skew, "prefix-skew", "exponent of Zipf's law of the groups' sizes; 0: equal")
      .within(0, 10);
  options
      .add(
          dataset, "dataset",
          "requests of a file: ShareGPT's conversations, or a trace of Mooncake (JSON lines) or Azure (CSV), "
          "whose times are kept unless --request-rate or --concurrency is given")
      .also("dataset-path")
      .shown_as("FILE");
  options.add(slo, "slo", "what a good request keeps to: ttft:200ms,tpot:30ms,e2el:2s")
      .also("goodput")
      .shown_as("LIMITS");
  options.add(workload.seed, "seed", "of lengths, times and tokens").within(0, 0x1p53);
}

Result<lab::WorkloadOptions> LoadFlags::resolve() const {
  lab::WorkloadOptions out = workload;
  Result<lab::LengthLaw> in = lab::LengthLaw::parse(input, "input-len");
  if (!in) return in.error();
  Result<lab::LengthLaw> answer = lab::LengthLaw::parse(output, "output-len");
  if (!answer) return answer.error();
  out.input = *in;
  out.output = *answer;
  if (rate > 0) out.rate = rate;
  if (duration > 0) out.duration = duration;
  if (!dataset.empty()) {
    Result<std::vector<lab::ListedRequest>> listed = lab::read_requests_file(dataset);
    if (!listed) return listed.error();
    out.listed = std::move(*listed);
    out.listed_times = out.listed.back().at > 0 && rate == 0 && out.concurrency == 0;
  }
  if (rate == 0 && !out.listed_times && out.concurrency == 0) out.concurrency = 16;
  return out;
}

Status write_load_report(const json::object& report, const std::string& json_file,
                         const std::string& html_file) {
  fmt::print("{}", lab::load_text(report));
  if (!json_file.empty())
    if (Status status = lab::write_text_file(json_file, write_json(report) + "\n"); !status) return status;
  if (html_file.empty()) return {};
  return lab::write_text_file(html_file, lab::load_html({report}));
}

}  // namespace sluice::cli
