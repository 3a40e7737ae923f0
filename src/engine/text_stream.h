// Tokens of a choice to text: the stream decoder and the stop strings behind the engine's interface.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/events.h"
#include "tokenizer/tokenizer.h"

namespace sluice::engine {

struct TextOptions {
  std::vector<std::string> stop;  // strings that end the text and are not part of it
  bool include_stop = false;      // ... or are
  bool skip_special = true;       // control tokens are left out of the text
  std::vector<Token> shown = {};  // ... but for these, ascending: marks that a reader of the text needs
};

using TextFactory = std::function<std::unique_ptr<TextStream>(int choice)>;

struct TextMaker {
  TextFactory make;
  size_t bytes = 0;  // that its copies and the texts share
};

// The tokenizer outlives every text that is made. The error names a stop string over its limit.
Result<TextMaker> make_text_maker(const tokenizer::Tokenizer& tokenizer, TextOptions options);

}  // namespace sluice::engine
