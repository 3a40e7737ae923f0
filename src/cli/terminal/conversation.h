// The state of a chat: messages and settings, and the commands that change them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "llm/sampling_flags.h"
#include "llm/session.h"

namespace sluice::cli {

class Conversation {
 public:
  void set_system(std::string text);
  void say(std::string text) { messages_.push_back({"user", std::move(text)}); }
  void answer(std::string text) { messages_.push_back({"assistant", std::move(text)}); }
  void clear();  // keeps the system message
  // Takes the last answer away, so that it can be given again; false where there is none.
  bool take_back_answer();
  // Takes the last question away with whatever followed it.
  void take_back_question();

  bool has_system() const { return !messages_.empty() && messages_.front().role == "system"; }
  const std::vector<llm::Message>& messages() const { return messages_; }
  json::array to_json() const;

  Status save(const std::string& path) const;
  Status load(const std::string& path);

 private:
  std::vector<llm::Message> messages_;
};

// "temp 0.2": changes a setting; an error names the known ones and the range.
Status change_setting(llm::SamplingFlags& flags, std::string_view words);
// One line per setting.
std::string list_settings(llm::SamplingFlags& flags);

}  // namespace sluice::cli
