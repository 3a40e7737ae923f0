#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/system/terminal.h"

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

std::atomic<LogFormat> log_format{LogFormat::Text};

std::string text_line(std::string_view message, std::initializer_list<LogField> fields) {
  std::string line(message);
  for (const LogField& field : fields) {
    line += fmt::format(" {}=", field.name);
    if (const auto* text = std::get_if<std::string_view>(&field.value)) line += *text;
    if (const auto* number = std::get_if<int64_t>(&field.value)) line += std::to_string(*number);
    if (const auto* number = std::get_if<double>(&field.value)) line += fmt::format("{:.1f}", *number);
  }
  return line;
}

// UTC, with milliseconds.
std::string time_text() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto second = std::chrono::floor<std::chrono::seconds>(now);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(second);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text.data(), (now - second).count());
}

std::string json_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  const spdlog::string_view_t name = spdlog::level::to_string_view(to_spdlog(level));
  json::object line{
      {"time", time_text()}, {"level", std::string_view(name.data(), name.size())}, {"message", message}};
  for (const LogField& field : fields)
    std::visit([&](const auto& value) { line[field.name] = value; }, field.value);
  std::string text = write_json(line);
  // A path may hold bytes that are no UTF-8, which no reader of JSON takes.
  const auto foreign = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  if (std::any_of(text.begin(), text.end(), foreign) && !parse_json(text, "line"))
    std::replace_if(text.begin(), text.end(), foreign, '?');
  return text;
}

// Never destroyed: its thread may be held up in a write when the program ends.
std::atomic<Backlog*> backlog{nullptr};

}  // namespace

void set_log_level(LogLevel level) {
  logger()->set_level(to_spdlog(level));
}

void set_log_format(LogFormat format) {
  log_format = format;
  logger()->set_pattern(format == LogFormat::Json ? "%v" : "%^%l%$ %v");
}

void log_message(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (!logger()->should_log(to_spdlog(level))) return;
  const std::string line =
      shown_on(STDERR_FILENO, log_format == LogFormat::Json ? json_line(level, message, fields)
                                                            : text_line(message, fields));
  if (Backlog* behind = backlog) return behind->push(level, line);
  logger()->log(to_spdlog(level), line);
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
