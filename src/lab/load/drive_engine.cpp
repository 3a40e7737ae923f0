// Requests straight to an engine of this process.
#include <algorithm>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "lab/load/drive.h"

namespace sluice::lab {

namespace {

constexpr double kProgressInterval = 0.1;

class EngineLoad {
 public:
  EngineLoad(engine::Engine& engine, Workload& workload, const EncodeText& encode)
      : engine_(engine), dispatcher_(workload), encode_(encode) {}

  LoadResult run(const OnLoadProgress& progress) {
    std::unique_lock lock(mutex_);
    double shown = 0;
    while (!dispatcher_.done(now())) {
      while (std::optional<LoadRequest> request = dispatcher_.take(now())) {
        lock.unlock();
        send(std::move(*request));
        lock.lock();
      }
      if (dispatcher_.done(now())) break;
      if (dispatcher_.exhausted(now())) engine_.close();  // a batch that waits to fill up starts
      const double wait = std::min(dispatcher_.next_time(now()), now() + kProgressInterval);
      changed_.wait_until(lock, start_ + std::chrono::duration_cast<Clock::duration>(Seconds(wait)));
      if (now() - shown >= kProgressInterval)
        progress({shown = now(), ended_, dispatcher_.running(), tokens_});
    }
    LoadResult result;
    double begin = std::numeric_limits<double>::infinity(), end = 0;
    for (const LoadRecord& record : records_) {
      begin = std::min(begin, record.start);
      end = std::max(end, record.end);
    }
    result.records = std::move(records_);
    result.duration = result.records.empty() ? 0 : end - begin;
    return result;
  }

 private:
  double now() const { return seconds_since(start_); }

  void send(LoadRequest request) {
    auto record = std::make_shared<LoadRecord>();
    if (!request.text.empty()) {
      Result<std::vector<Token>> tokens = encode_(request.text);
      if (!tokens) return end(*record, request.counted, tokens.error().message);
      request.prompt = std::move(*tokens);
    }
    record->input = static_cast<int>(request.prompt.size());
    engine::Submission submission;
    submission.request.prompt = std::move(request.prompt);
    request::SamplingParams& sampling = submission.request.sampling();
    sampling.max_tokens = request.output;
    sampling.ignore_eos = true;
    sampling.method = request::Sampling{.temperature = 0};
    submission.deliver = [this, record, counted = request.counted](const engine::Event& event) {
      if (const auto* delta = std::get_if<engine::Delta>(&event)) {
        const double at = now();
        if (delta->tokens.empty()) return;
        if (record->output == 0) record->first = at;
        record->output += static_cast<int>(delta->tokens.size());
        record->arrivals.push_back(static_cast<float>(at));
        record->end = at;
        const std::lock_guard lock(mutex_);
        tokens_ += static_cast<int64_t>(delta->tokens.size());
      } else if (const auto* finished = std::get_if<engine::Finished>(&event)) {
        end(*record, counted, finished->error ? finished->error->message : "");
      }
    };
    record->start = now();
    const auto id = engine_.submit(std::move(submission));
    if (!id) end(*record, request.counted, id.error().message);
  }

  void end(LoadRecord& record, bool counted, std::string error) {
    const std::lock_guard lock(mutex_);
    record.error = std::move(error);
    if (record.output == 0) record.first = record.end = now();
    if (counted) records_.push_back(std::move(record));
    dispatcher_.ended();
    ++ended_;
    changed_.notify_one();  // under the lock: whoever waits may be gone right after it
  }

  engine::Engine& engine_;
  Dispatcher dispatcher_;
  const EncodeText& encode_;
  TimePoint start_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<LoadRecord> records_;
  int64_t ended_ = 0, tokens_ = 0;
};

}  // namespace

LoadResult drive_engine(engine::Engine& engine, Workload& workload, const EncodeText& encode,
                        const OnLoadProgress& progress) {
  return EngineLoad(engine, workload, encode).run(progress);
}

}  // namespace sluice::lab
