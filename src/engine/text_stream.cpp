#include "engine/text_stream.h"

#include <utility>

#include "chat/stop_strings.h"
#include "tokenizer/stream_decoder.h"

namespace sluice::engine {

namespace {

class StreamedText : public TextStream {
 public:
  StreamedText(const tokenizer::Tokenizer& tokenizer, std::shared_ptr<const TextOptions> options,
               chat::StopMatcher matcher)
      : options_(std::move(options)),
        decoder_(tokenizer, options_->skip_special, options_->shown),
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
    chat::StopMatcher::Step step = matcher_.push(decoded);
    if (!step.stopped_by) return {.text = std::move(step.text)};
    const std::string& stop = options_->stop[*step.stopped_by];
    if (options_->include_stop) step.text += stop;
    return {.text = std::move(step.text), .stopped = true, .stop = stop};
  }

  std::shared_ptr<const TextOptions> options_;
  tokenizer::StreamDecoder decoder_;
  chat::StopMatcher matcher_;
};

}  // namespace

Result<TextMaker> make_text_maker(const tokenizer::Tokenizer& tokenizer, TextOptions options) {
  Result<chat::StopMatcher> matcher = chat::StopMatcher::make(options.stop);
  if (!matcher) return matcher.error();
  size_t bytes = matcher->bytes() + options.shown.size() * sizeof(Token);
  for (const std::string& stop : options.stop) bytes += sizeof stop + stop.size();
  auto shared = std::make_shared<const TextOptions>(std::move(options));
  return TextMaker{[&tokenizer, shared = std::move(shared), matcher = std::move(*matcher)](int) {
                     return std::make_unique<StreamedText>(tokenizer, shared, matcher);
                   },
                   bytes};
}

}  // namespace sluice::engine
