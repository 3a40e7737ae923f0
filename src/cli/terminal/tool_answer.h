// An answer that may call tools, written out while it comes.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "llm/call_flags.h"
#include "llm/sampling_flags.h"
#include "llm/session.h"

namespace sluice::cli {

struct ToolFlags {
  std::string file;  // a JSON list of tools, as chats have them
  std::string choice = "auto";

  void declare(OptionSet& options);
};

struct ToolQuestion {
  std::string_view prompt;
  const llm::PromptFlags& how;
  const llm::SamplingFlags& sampling;
  const ToolFlags& tools;
};

// Streams the content to stdout and the reasoning to stderr; each call is a line of JSON on stdout: {name, arguments}.
Result<llm::Answer> stream_tool_answer(llm::Session& session, const ToolQuestion& question,
                                       const std::atomic<bool>& interrupted);

}  // namespace sluice::cli
