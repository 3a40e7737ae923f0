// sluice bench serve: load on a server or on an engine of this process, and what its clients see.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/system/file.h"
#include "cli/command.h"
#include "cli/lab/load_flags.h"
#include "cli/open_session.h"
#include "lab/html/page.h"
#include "lab/load/drive.h"
#include "llm/session.h"
#include "llm/session_options.h"
#include "models/model.h"

namespace sluice::cli {

namespace {

constexpr size_t kReportBytes = size_t{1} << 30;

void show_progress(const lab::LoadProgress& progress) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r{:.0f} s: {} done, {} running, {} tokens ", progress.seconds, progress.ended,
             progress.running, progress.tokens);
  std::fflush(stderr);
}

Result<json::object> read_report(const std::string& path) {
  Result<std::string> text = read_regular_file(path, kReportBytes);
  if (!text) return text.error();
  Result<json::value> value = parse_json(*text, path, {.bytes = kReportBytes});
  if (!value) return value.error();
  if (!value->is_object()) return Error{ErrorCode::Corrupt, path + ": not a report"};
  return std::move(value->as_object());
}

class BenchServeCommand : public Command {
 public:
  std::string_view name() const override { return "bench serve"; }
  std::string_view summary() const override {
    return "put load on a server, or on a model in this process, and report TTFT, TPOT and throughput";
  }
  std::string_view examples() const override {
    return "sluice bench serve --url http://127.0.0.1:8080 --request-rate 4 --num-prompts 200 --slo "
           "ttft:500ms,tpot:60ms --html load.html\n"
           "sluice bench serve --compare ours.json,theirs.json --html both.html";
  }

  void declare(OptionSet& options) override {
    options.add(url_, "url", "the server; left out: a model in this process")
        .also("base-url")
        .shown_as("URL");
    options.add(session_.model, "model", "with --url its name there, else file, folder or name")
        .short_name('m')
        .shown_as("MODEL");
    options.add(key_, "api-key", "of the server").shown_as("KEY");
    load_.declare(options);
    options.add(output_, "output", "write the report as JSON").also("result-filename").shown_as("FILE");
    options.add(html_, "html", "write the report as a page").shown_as("FILE");
    options.add(label_, "label", "what a comparison calls this run").shown_as("TEXT");
    options.add(compare_, "compare", "make one page (--html) of reports that were written before")
        .shown_as("FILES");
    session_.engine.declare(options);
  }

  int run() override {
    if (!compare_.empty()) return compare();
    Result<lab::WorkloadOptions> workload = load_.resolve();
    if (!workload) return report(workload.error());
    const Result<lab::ServiceLimits> limits = load_.limits();
    if (!limits) return report(limits.error());
    Result<lab::LoadResult> result = url_.empty() ? run_here(*workload) : run_there(*workload);
    if (!result) return report(result.error());
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K");
    result->label = label_.empty() ? result->backend : label_;
    result->limits = *limits;
    result->request_rate = load_.rate;
    result->concurrency = workload->concurrency;
    result->settings = {{"burstiness", workload->burstiness}, {"seed", workload->seed},
                        {"input_len", load_.input},           {"output_len", load_.output},
                        {"dataset", load_.dataset},           {"num_warmups", workload->warmups},
                        {"shared_prefix", workload->prefix},  {"turns", workload->turns}};
    const json::object written = lab::load_json(*result);
    if (Status status = write_load_report(written, output_, html_); !status) return report(status.error());
    for (const lab::LoadRecord& record : result->records) {
      if (record.error.empty()) continue;
      fmt::print(stderr, "sluice: a request failed: {}\n", record.error);
      return kFailure;
    }
    return kSuccess;
  }

 private:
  Result<lab::LoadResult> run_there(const lab::WorkloadOptions& options) const {
    Result<lab::LoadTarget> target = lab::parse_load_target(url_);
    if (!target) return target.error();
    target->api_key = key_;
    target->model = session_.model;
    if (target->model.empty()) {
      Result<std::string> found = lab::first_model(*target);
      if (!found) return found.error();
      target->model = *found;
    }
    lab::Workload workload(options);
    Result<lab::LoadResult> result = lab::drive_server(*target, workload, show_progress);
    if (!result) return result.error();
    result->backend = url_;
    result->model = target->model;
    return result;
  }

  Result<lab::LoadResult> run_here(lab::WorkloadOptions options) {
    session_.queue.requests = size_t{1} << 20;
    session_.queue.tokens = size_t{1} << 30;
    Result<std::unique_ptr<llm::Session>> session = open_session(session_);
    if (!session) return session.error();
    options.vocab = std::min(options.vocab, (*session)->model().spec().vocab);
    options.first_token = std::min(options.first_token, options.vocab / 2);
    lab::Workload workload(options);
    const lab::EncodeText encode = [&](const std::string& text) { return (*session)->encode_text(text); };
    lab::LoadResult result = lab::drive_engine((*session)->engine(), workload, encode, show_progress);
    result.backend = "sluice";
    result.model = (*session)->model().files.path;
    return result;
  }

  int compare() const {
    if (html_.empty()) return report({ErrorCode::InvalidArgument, "--compare needs --html FILE"});
    std::vector<json::object> reports;
    for (size_t begin = 0; begin < compare_.size();) {
      const size_t end = std::min(compare_.find(',', begin), compare_.size());
      Result<json::object> one = read_report(compare_.substr(begin, end - begin));
      if (!one) return report(one.error());
      reports.push_back(std::move(*one));
      begin = end + 1;
    }
    const Status status = lab::write_text_file(html_, lab::load_html(reports));
    return status ? kSuccess : report(status.error());
  }

  std::string url_, key_, output_, html_, label_, compare_;
  LoadFlags load_;
  llm::SessionOptions session_;
};

}  // namespace

std::unique_ptr<Command> make_bench_serve() {
  return std::make_unique<BenchServeCommand>();
}

}  // namespace sluice::cli
