#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace sluice {

namespace {

const std::shared_ptr<spdlog::logger>& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l%$ %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      break;
  }
  return spdlog::level::off;
}

// Messages on their way to the thread that writes them.
class Backlog {
 public:
  explicit Backlog(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {
    std::thread([this] { run(); }).detach();
  }

  void push(LogLevel level, std::string_view message) {
    {
      const std::lock_guard lock(mutex_);
      if (lines_.size() >= kMost) {
        ++dropped_;
        return;
      }
      lines_.emplace_back(level, message);
    }
    changed_.notify_all();
  }

  uint64_t dropped() const { return dropped_; }

  bool flush(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return lines_.empty() && !writing_; });
  }

 private:
  static constexpr size_t kMost = 8192;

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !lines_.empty(); });
      std::deque<std::pair<LogLevel, std::string>> batch = std::exchange(lines_, {});
      writing_ = true;
      lock.unlock();
      for (const auto& [level, text] : batch) logger_->log(to_spdlog(level), text);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
    }
  }

  const std::shared_ptr<spdlog::logger> logger_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<LogLevel, std::string>> lines_;
  bool writing_ = false;
  std::atomic<uint64_t> dropped_{0};
};

// Never destroyed: its thread may be held up in a write when the program ends.
std::atomic<Backlog*> backlog{nullptr};

}  // namespace

void set_log_level(LogLevel level) {
  logger()->set_level(to_spdlog(level));
}

void log_message(LogLevel level, std::string_view message) {
  if (Backlog* behind = backlog) {
    if (logger()->should_log(to_spdlog(level))) behind->push(level, message);
    return;
  }
  logger()->log(to_spdlog(level), message);
}

void write_log_in_background() {
  if (backlog == nullptr) backlog = new Backlog(logger());
}

uint64_t dropped_log_messages() {
  const Backlog* behind = backlog;
  return behind == nullptr ? 0 : behind->dropped();
}

bool flush_log() {
  Backlog* behind = backlog;
  return behind == nullptr || behind->flush(std::chrono::milliseconds(1000));
}

}  // namespace sluice
