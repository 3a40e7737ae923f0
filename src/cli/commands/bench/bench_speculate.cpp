// sluice bench speculate: what guesses gain, by workload, batch and proposer.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/lab/lists.h"
#include "cli/open_session.h"
#include "lab/html/page.h"
#include "lab/speculate/speculate_bench.h"

namespace sluice::cli {

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

class BenchSpeculateCommand : public Command {
 public:
  std::string_view name() const override { return "bench speculate"; }
  std::string_view summary() const override {
    return "measure what speculation gains by workload, batch and proposer, beside what was expected";
  }
  std::string_view examples() const override {
    return "sluice bench speculate --proposers suffix,auto --batch 1,16 --rounds 9\n"
           "sluice bench speculate -m large.gguf --speculate draft:small.gguf --proposers draft --workloads "
           "chat,code\n"
           "sluice bench speculate -m 8b --speculate draft:0.5b --proposers draft --workloads chat --batch "
           "1,8,32 "
           "--force-acceptance 0.8";
  }
  void declare(OptionSet& options) override {
    options.add(session_.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(proposers_, "proposers", "who guesses, each beside a run without drafts").shown_as("LIST");
    options
        .add(workloads_, "workloads", "repeat, edit, summarise, repeat code, code, chat; all where left out")
        .shown_as("LIST");
    options.add(batches_, "batch", "sequences that answer at once").shown_as("LIST");
    options.add(bench_.tokens, "tokens", "of an answer").within(1, 1 << 16);
    options.add(bench_.rounds, "rounds", "runs of each; the median counts").within(1, 1000);
    options.add(json_, "output", "write the figures as JSON").shown_as("FILE");
    options
        .add(forced_, "force-acceptance",
             "drafts are right with this probability, whatever the model says: answers are of no use")
        .within(0, 1)
        .shown_as("SHARE");
    session_.engine.declare(options);
  }

  int run() override {
    if (Status status = read_lists(); !status) return report(status.error());
    for (const int batch : bench_.batches)
      session_.engine.max_seqs = std::max(session_.engine.max_seqs, batch);
    session_.engine.forced_acceptance = forced_.value_or(-1);
    bench_.forced = forced_.has_value();
    Result<std::unique_ptr<llm::Session>> session = open_session(session_);
    if (!session) return report(session.error());
    bench_.engine = &(*session)->engine();
    bench_.encode = [&](const std::string& text) { return (*session)->encode_text(text); };
    fmt::print("answers of {} tokens, greedy; medians of {} rounds\n\n{}", bench_.tokens, bench_.rounds,
               lab::speculate_header());
    const auto points = lab::run_speculate_bench(bench_, [](const lab::SpeculatePoint& point) {
      fmt::print("{}", lab::speculate_row(point));
      std::fflush(stdout);
    });
    if (!points) return report(points.error());
    if (json_.empty()) return kSuccess;
    const Status status = lab::write_text_file(json_, write_json(lab::speculate_json(*points)) + "\n");
    return status ? kSuccess : report(status.error());
  }

 private:
  Status read_lists() {
    Result<std::vector<int>> batches = read_list(batches_, "--batch", 1);
    if (!batches) return batches.error();
    bench_.batches = std::move(*batches);
    for (const std::string& text : split(proposers_)) {
      const std::optional<request::Speculation> proposer = request::speculation_named(text);
      if (!proposer)
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("--proposers has '{}'; it must be {}", text, request::speculation_names())};
      bench_.proposers.push_back(*proposer);
    }
    bench_.workloads = lab::speculate_workloads();
    if (workloads_.empty()) return {};
    const std::vector<std::string> wanted = split(workloads_);
    const auto known = bench_.workloads;
    bench_.workloads.clear();
    for (const std::string& text : wanted) {
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.name == text; });
      if (found == known.end())
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("--workloads has '{}', which is not one of them", text)};
      bench_.workloads.push_back(*found);
    }
    return {};
  }

  llm::SessionOptions session_;
  lab::SpeculateBench bench_;
  std::optional<double> forced_;
  std::string proposers_ = "ngram,suffix,lookahead,auto", workloads_, batches_ = "1,16", json_;
};

}  // namespace

std::unique_ptr<Command> make_bench_speculate() {
  return std::make_unique<BenchSpeculateCommand>();
}

}  // namespace sluice::cli
