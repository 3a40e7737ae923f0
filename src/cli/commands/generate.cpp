// sluice generate: a file of requests in, a file of answers out, in one run of the engine.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "cli/command.h"
#include "cli/jobs.h"
#include "cli/open_session.h"
#include "cli/ranks.h"
#include "cli/served_model.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

std::atomic<bool> interrupted{false};

struct Arrived {
  size_t job;
  engine::Event event;
};

// Events of all jobs, for the thread that writes.
class Mailbox {
 public:
  void push(Arrived event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  std::deque<Arrived> take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrived> events_;
};

// Ids of the answers that a file already holds, and the length of its complete lines.
struct Done {
  std::set<std::string> ids;
  std::streamoff bytes = 0;
};

Done read_done(const std::string& path) {
  Done done;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Result<json::value> value = parse_json(line, path);
    if (!value || !value->is_object()) break;
    if (const auto id = get_string(value->get_object(), "id"); id && *id) done.ids.insert(**id);
    done.bytes += static_cast<std::streamoff>(line.size()) + 1;
  }
  return done;
}

class GenerateCommand : public Command {
 public:
  std::string_view name() const override { return "generate"; }
  std::string_view summary() const override { return "answer a file of requests (JSON lines) in one run"; }
  std::string_view examples() const override {
    return "sluice generate --input in.jsonl --output out.jsonl --resume";
  }

  void declare(OptionSet& options) override {
    options
        .add(input_, "input",
             "requests, one JSON object a line: id, prompt or messages, tools, parameters, at")
        .short_name('i')
        .shown_as("FILE");
    options.add(output_, "output", "answers, one JSON object a line").short_name('o').shown_as("FILE");
    options.add(session_options_.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(session_options_.amateur, "amateur", "second, weaker model for contrastive decoding")
        .shown_as("MODEL");
    options.add(metrics_, "metrics", "write what the engine counted here at the end, as JSON")
        .shown_as("FILE");
    options.add(resume_, "resume", "keep the answers that the output already has");
    options.add(force_, "force", "write over an output that is there");
    session_options_.engine.target_tbt = 0;  // nobody reads along
    ranks_.declare(options);
    session_options_.engine.declare(options);
  }

  int run() override {
    if (input_.empty() || output_.empty())
      return report({ErrorCode::InvalidArgument, "--input and --output are needed"});
    if (const std::optional<int> code = ranks_.join_session(session_options_)) return *code;
    if (Status status = check_output(); !status) return report(status.error());
    session_options_.needs_tokenizer = false;
    Result<std::unique_ptr<llm::Session>> session = open_session(session_options_);
    if (!session) return report(session.error());
    session_ = std::move(*session);
    if (session_->has_tokenizer()) {
      Result<api::ServedModel> served = served_model(*session_);
      if (!served) return report(served.error());
      models_.push_back(std::move(*served));
    }
    std::signal(SIGINT, [](int) { interrupted = true; });
    std::signal(SIGTERM, [](int) { interrupted = true; });
    if (Status status = open_files(); !status) return report(status.error());
    if (Status status = run_jobs(); !status) return report(status.error());
    if (Status status = write_metrics(); !status) return report(status.error());
    show_progress(true);
    return interrupted ? kInterrupted : kSuccess;
  }

 private:
  // What was computed before is not lost to a second call. Devices and pipes hold nothing.
  Status check_output() const {
    std::error_code ec;
    if (resume_ || force_ || !std::filesystem::is_regular_file(output_, ec)) return {};
    if (std::filesystem::file_size(output_, ec) == 0) return {};
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("output '{}' exists; --resume keeps its answers, --force writes over it", output_)};
  }

  Status open_files() {
    std::ifstream in(input_, std::ios::binary);
    in.peek();  // a folder opens, and fails here
    if (!in.is_open() || in.bad())
      return Error{ErrorCode::NotFound, fmt::format("input '{}' cannot be read", input_)};
    const Done done = resume_ ? read_done(output_) : Done();
    // A line that was cut off while it was written is written again.
    if (resume_ && access(output_.c_str(), F_OK) == 0 && truncate(output_.c_str(), done.bytes) != 0)
      return Error{ErrorCode::Io, fmt::format("output '{}' cannot be resumed", output_)};
    out_.open(output_, std::ios::binary | (resume_ ? std::ios::app : std::ios::trunc));
    if (!out_) return Error{ErrorCode::Io, fmt::format("output '{}' cannot be written", output_)};
    size_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      add_line(line, number, done);
    }
    total_ = results_.size();
    return {};
  }

  void add_line(const std::string& line, size_t number, const Done& done) {
    Result<Job> job = read_job(line, number, *session_, models_);
    const std::string id = job ? job->id : line_id(line, number);
    if (done.ids.contains(id)) return;
    results_.emplace_back(id);
    if (job) {
      results_.back().set_reader(std::move(job->reader));
      jobs_.push_back({results_.size() - 1, std::move(*job)});
    } else {
      results_.back().fail(job.error());
      failed_.push_back(results_.size() - 1);
    }
  }

  // The id of a line that is no good request.
  static std::string line_id(const std::string& line, size_t number) {
    const Result<json::value> value = parse_json(line, "line");
    return job_id(value ? *value : json::value(), number);
  }

  Status run_jobs() {
    for (size_t index : failed_) write(index);
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [](const auto& a, const auto& b) { return a.second.at < b.second.at; });
    start_ = Clock::now();
    size_t next = 0;
    while (out_ && (next < jobs_.size() || !running_.empty())) {
      if (interrupted) cancel_all();
      while (!interrupted && next < jobs_.size() && seconds_since(start_) >= jobs_[next].second.at) {
        if (!submit(jobs_[next])) break;
        ++next;
      }
      if (interrupted && running_.empty()) break;
      if (next == jobs_.size() && !closed_) {
        session_->engine().close();
        closed_ = true;
      }
      for (Arrived& arrived : mailbox_->take(patience(next))) take(arrived);
      show_progress(false);
    }
    if (!out_.flush()) return Error{ErrorCode::Io, fmt::format("output '{}' cannot be written", output_)};
    return {};
  }

  std::chrono::milliseconds patience(size_t next) const {
    if (next >= jobs_.size()) return std::chrono::milliseconds(100);
    const double wait = jobs_[next].second.at - seconds_since(start_);
    return std::chrono::milliseconds(std::clamp(static_cast<int>(wait * 1000), 1, 100));
  }

  // False where the engine's queue is full: the job is tried again later.
  bool submit(std::pair<size_t, Job>& entry) {
    const size_t index = entry.first;
    engine::Submission submission = entry.second.submission;
    submission.deliver = [mailbox = mailbox_, index](engine::Event event) {
      mailbox->push({index, std::move(event)});
    };
    Result<engine::RequestId> id = session_->engine().submit(std::move(submission));
    if (id) {
      running_.emplace(index, *id);
    } else if (id.error().code == ErrorCode::Unavailable && !session_->engine().health().failed) {
      return false;
    } else {
      results_[index].fail(id.error());
      write(index);
    }
    entry.second.submission = {};
    return true;
  }

  void take(const Arrived& arrived) {
    results_[arrived.job].take(arrived.event);
    if (!std::holds_alternative<engine::Finished>(arrived.event)) return;
    running_.erase(arrived.job);
    if (std::get<engine::Finished>(arrived.event).reason != engine::FinishReason::Cancelled)
      write(arrived.job);
  }

  void cancel_all() {
    for (const auto& [index, id] : running_) session_->engine().cancel(id);
  }

  void write(size_t index) {
    out_ << json::serialize(
                results_[index].to_json(session_->has_tokenizer() ? &session_->tokenizer() : nullptr))
         << "\n";
    out_.flush();
    generated_ += results_[index].generated();
    results_[index] = JobResult("");
    ++written_;
  }

  // Counters by name; histograms with count, mean, quantiles and largest value.
  Status write_metrics() const {
    if (metrics_.empty()) return {};
    const engine::Metrics& metrics = session_->engine().metrics();
    json::object out{{"seconds", seconds_since(start_)}};
    for (const engine::Metrics::NamedCounter& entry : metrics.counters())
      out[entry.name] = entry.counter->value();
    for (const engine::Metrics::NamedHistogram& entry : metrics.histograms()) {
      const engine::Histogram& histogram = *entry.histogram;
      out[entry.name] = {{"count", histogram.count()},      {"mean", histogram.mean()},
                         {"p50", histogram.quantile(0.50)}, {"p90", histogram.quantile(0.90)},
                         {"p99", histogram.quantile(0.99)}, {"max", histogram.max()}};
    }
    std::ofstream file(metrics_, std::ios::binary | std::ios::trunc);
    file << json::serialize(out) << "\n";
    if (!file.flush()) return Error{ErrorCode::Io, fmt::format("metrics '{}' cannot be written", metrics_)};
    return {};
  }

  void show_progress(bool last) {
    if (isatty(STDERR_FILENO) == 0 || total_ == 0) return;
    if (!last && seconds_between(shown_, Clock::now()) < 0.2) return;
    shown_ = Clock::now();
    const int width = 30, filled = static_cast<int>(written_ * width / total_);
    fmt::print(stderr, "\r[{:=>{}}{:>{}}] {}/{} answers, {:.0f} tok/s{}", "", filled, "", width - filled,
               written_, total_, static_cast<double>(generated_) / std::max(1e-3, seconds_since(start_)),
               last ? "\n" : "");
    std::fflush(stderr);
  }

  llm::SessionOptions session_options_;
  RankFlags ranks_;
  std::string input_, output_, metrics_;
  bool resume_ = false, force_ = false;
  std::unique_ptr<llm::Session> session_;
  std::vector<api::ServedModel> models_;  // the session's, where it has a tokenizer
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::ofstream out_;
  std::deque<JobResult> results_;
  std::vector<std::pair<size_t, Job>> jobs_;
  std::vector<size_t> failed_;
  std::unordered_map<size_t, engine::RequestId> running_;
  TimePoint start_{}, shown_{};
  size_t total_ = 0, written_ = 0;
  int64_t generated_ = 0;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate() {
  return std::make_unique<GenerateCommand>();
}

}  // namespace sluice::cli
