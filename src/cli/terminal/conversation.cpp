#include "cli/terminal/conversation.h"

#include <fmt/format.h>

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
  for (const llm::Message& message : messages_)
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
  std::vector<llm::Message> loaded;
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

Status change_setting(llm::SamplingFlags& flags, std::string_view words) {
  OptionSet set;
  flags.declare(set);
  const size_t space = words.find(' ');
  const std::string name(words.substr(0, space));
  const std::string_view value =
      space == std::string_view::npos ? std::string_view() : words.substr(space + 1);
  if (const Option* option = set.find(name)) return set_value(*option, value);
  std::vector<std::string> known;
  for (const Option& option : set.options()) known.push_back(option.name);
  return Error{ErrorCode::InvalidArgument,
               fmt::format("no setting '{}'; known are: {}", name, fmt::join(known, ", "))};
}

std::string list_settings(llm::SamplingFlags& flags) {
  OptionSet set;
  flags.declare(set);
  std::string text;
  for (const Option& option : set.options())
    text += fmt::format("  {:<16} {:<8} {}\n", option.name, option.default_text(), option.help);
  return text;
}

}  // namespace sluice::cli
