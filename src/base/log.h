// Diagnostics for people, on stderr; never prompts, keys or other content of requests.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sluice {

enum class LogLevel { Debug, Info, Warning, Error, Off };
// Text: "info message". Json: an object a line, {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"message"}.
enum class LogFormat : uint8_t { Text, Json };

// A named value of a message. Text shows it as " name=value", JSON as a field of its own.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

void set_log_level(LogLevel level);
// Call it before other threads log.
void set_log_format(LogFormat format);
void log_message(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

// From now on a thread of its own writes the messages, so that a reader of stderr who stops reading stops nobody else:
// when many wait, further ones are dropped and counted. Call it once, before other threads log.
void write_log_in_background();
uint64_t dropped_log_messages();
// Waits until everything is written, though not for long; false: nobody reads it, and an orderly exit would wait for them.
bool flush_log();

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::Debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::Info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::Warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::Error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice
