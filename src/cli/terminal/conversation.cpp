#include "cli/terminal/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "cli/terminal/input.h"

namespace sluice::cli {

void Conversation::set_system(std::string text) {
  const bool present = has_system();
  if (text.empty()) {
    if (present) messages_.erase(messages_.begin());
  } else if (present) {
    messages_.front().content = std::move(text);
  } else {
    messages_.insert(messages_.begin(), {"system", std::move(text)});
  }
}

void Conversation::clear() {
  messages_.resize(has_system() ? 1 : 0);
}

bool Conversation::take_back_answer() {
  if (messages_.empty() || messages_.back().role != "assistant") return false;
  messages_.pop_back();
  return true;
}

void Conversation::take_back_question() {
  while (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
  if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
}

json::array Conversation::to_json() const {
  json::array out;
  for (const Message& message : messages_)
    out.push_back({{"role", message.role}, {"content", message.content}});
  return out;
}

Status Conversation::save(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  file << json::serialize(json::object{{"messages", to_json()}}) << "\n";
  if (!file.flush()) return Error{ErrorCode::Io, fmt::format("'{}' cannot be written", path)};
  return {};
}

Status Conversation::load(const std::string& path) {
  const Result<std::string> text = read_input(path);
  if (!text) return text.error();
  Result<json::value> value = parse_json(*text, path);
  if (!value) return value.error();
  const json::value* list = value->is_object() ? value->get_object().if_contains("messages") : nullptr;
  if (list == nullptr || !list->is_array())
    return Error{ErrorCode::Corrupt, path + ": 'messages' is missing or not a list"};
  std::vector<Message> loaded;
  for (const json::value& item : list->get_array()) {
    if (!item.is_object()) return Error{ErrorCode::Corrupt, path + ": a message is not an object"};
    auto role = get_string(item.get_object(), "role"), content = get_string(item.get_object(), "content");
    if (!role || !content || !*role || !*content)
      return Error{ErrorCode::Corrupt, path + ": a message needs 'role' and 'content' as strings"};
    loaded.push_back({**role, **content});
  }
  messages_ = std::move(loaded);
  return {};
}

namespace {

struct SetValue {
  const Option& option;
  std::string_view text;

  Status operator()(bool* target) const {
    if (text != "on" && text != "off") return wrong("on or off");
    *target = text == "on";
    return {};
  }
  Status operator()(std::string* target) const {
    *target = text;
    return {};
  }
  Status operator()(std::vector<std::string>* target) const {
    *target = text.empty() ? std::vector<std::string>() : std::vector<std::string>{std::string(text)};
    return {};
  }
  Status operator()(const Choice& choice) const {
    for (size_t i = 0; i < choice.names.size(); ++i) {
      if (choice.names[i] != text) continue;
      choice.set(i);
      return {};
    }
    return wrong(fmt::format("one of {}", fmt::join(choice.names, ", ")));
  }
  template <class Number>
  Status operator()(std::optional<Number>* target) const {
    Number value{};
    Status status = (*this)(&value);
    if (status) *target = value;
    return status;
  }
  template <class Number>
  Status operator()(Number* target) const {
    double value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      return wrong("a number");
    // Doubles are exact up to 2^53, far beyond any setting.
    if (std::is_integral_v<Number> && (value != std::floor(value) || std::abs(value) > 0x1p53))
      return wrong("a whole number");
    if (option.least < option.most && (value < option.least || value > option.most))
      return wrong(fmt::format("{} to {}", option.least, option.most));
    *target = static_cast<Number>(value);
    return {};
  }
  Status wrong(std::string_view wanted) const {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is '{}', must be {}", option.name, text, wanted)};
  }
};

}  // namespace

Status change_setting(SamplingFlags& flags, std::string_view words) {
  OptionSet set;
  flags.declare(set);
  const size_t space = words.find(' ');
  const std::string name(words.substr(0, space));
  const std::string_view value =
      space == std::string_view::npos ? std::string_view() : words.substr(space + 1);
  std::vector<std::string> known;
  for (const Option& option : set.options()) {
    const auto& others = option.aliases;
    if (option.name == name || std::find(others.begin(), others.end(), name) != others.end())
      return std::visit(SetValue{option, value}, option.target);
    known.push_back(option.name);
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("no setting '{}'; known are: {}", name, fmt::join(known, ", "))};
}

std::string list_settings(SamplingFlags& flags) {
  OptionSet set;
  flags.declare(set);
  std::string text;
  for (const Option& option : set.options())
    text += fmt::format("  {:<16} {:<8} {}\n", option.name, option.default_text(), option.help);
  return text;
}

}  // namespace sluice::cli
