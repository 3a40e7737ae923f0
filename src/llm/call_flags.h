// Settings of single calls besides those of sampling, declared once for the program's flags and for the library.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "request/request.h"
#include "tokenizer/tokenizer.h"

namespace sluice::llm {

// How a prompt becomes tokens.
struct PromptFlags {
  std::string system;  // empty: the chat template's own, where it has one
  bool raw = false;
  std::vector<std::string> images;  // files that the prompt is about, before its words

  void declare(OptionSet& options);
};
void declare_system(OptionSet& options, std::string& system);

void declare_encoding(OptionSet& options, tokenizer::EncodeOptions& encode);
void declare_decoding(OptionSet& options, bool& skips_special);
void declare_pooling(OptionSet& options, request::Pooling& pooling);

}  // namespace sluice::llm
