#include "engine/choice_text.h"

#include <utility>

#include "text/stop_strings.h"
#include "text/stream_decoder.h"

namespace sluice::engine {

namespace {

class StreamedText : public ChoiceText {
 public:
  StreamedText(const text::Tokenizer& tokenizer, std::shared_ptr<const TextOptions> options,
               text::StopMatcher matcher)
      : options_(std::move(options)),
        decoder_(tokenizer, options_->skip_special),
        matcher_(std::move(matcher)) {}

  Result<Piece> push(std::span<const Token> tokens) override {
    std::string decoded;
    for (Token token : tokens) decoded += decoder_.push(token);
    return pass(std::move(decoded));
  }

  Result<std::string> finish() override {
    Piece last = pass(decoder_.finish());
    if (!last.stopped) last.text += matcher_.finish();
    return last.text;
  }

 private:
  Piece pass(std::string decoded) {
    if (matcher_.empty()) return {.text = std::move(decoded)};
    text::StopMatcher::Step step = matcher_.push(decoded);
    if (!step.stopped_by) return {.text = std::move(step.text)};
    const std::string& stop = options_->stop[*step.stopped_by];
    if (options_->include_stop) step.text += stop;
    return {.text = std::move(step.text), .stopped = true, .stop = stop};
  }

  std::shared_ptr<const TextOptions> options_;
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
};

}  // namespace

Result<TextMaker> make_text_maker(const text::Tokenizer& tokenizer, TextOptions options) {
  Result<text::StopMatcher> matcher = text::StopMatcher::make(options.stop);
  if (!matcher) return matcher.error();
  size_t bytes = matcher->bytes();
  for (const std::string& stop : options.stop) bytes += sizeof stop + stop.size();
  auto shared = std::make_shared<const TextOptions>(std::move(options));
  return TextMaker{[&tokenizer, shared = std::move(shared), matcher = std::move(*matcher)](int) {
                     return std::make_unique<StreamedText>(tokenizer, shared, matcher);
                   },
                   bytes};
}

}  // namespace sluice::engine
