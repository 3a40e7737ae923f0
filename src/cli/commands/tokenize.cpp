// sluice tokenize and sluice detokenize: text to token ids and back.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "base/json.h"
#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/terminal/input.h"
#include "llm/call_flags.h"
#include "llm/model_store.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8_stream.h"

namespace sluice::cli {

namespace {

Result<tokenizer::Tokenizer> open_tokenizer(const std::string& reference) {
  Result<std::string> path = llm::resolve_model(reference);
  if (!path) return path.error();
  return tokenizer::load_tokenizer(*path);
}

void declare_model(OptionSet& options, std::string& model) {
  options
      .add(model, "model",
           "model, vocabulary or folder with tokenizer files; the default model where left out")
      .short_name('m')
      .shown_as("MODEL");
}

class TokenizeCommand : public Command {
 public:
  std::string_view name() const override { return "tokenize"; }
  std::string_view summary() const override { return "turn the text on stdin into token ids"; }
  std::string_view examples() const override {
    return "echo -n 'Hello world' | sluice tokenize -m model.gguf --json";
  }
  void declare(OptionSet& options) override {
    declare_model(options, model_);
    options.add(is_json_, "json",
                "one JSON array: id, piece, its bytes and the bytes of the input it stands for");
    llm::declare_encoding(options, encode_);
  }

  int run() override {
    Result<tokenizer::Tokenizer> tokenizer = open_tokenizer(model_);
    if (!tokenizer) return report(tokenizer.error());
    const Result<std::string> input = read_input("-");
    if (!input) return report(input.error());
    return is_json_ ? print_json(*tokenizer, *input) : print_ids(*tokenizer, *input);
  }

 private:
  int print_ids(const tokenizer::Tokenizer& tokenizer, const std::string& input) const {
    const auto ids = tokenizer.encode(input, encode_);
    if (!ids) return report(ids.error());
    fmt::print("{}\n", fmt::join(*ids, " "));
    return kSuccess;
  }

  int print_json(const tokenizer::Tokenizer& tokenizer, const std::string& input) const {
    const auto tokens = tokenizer.encode_with_ranges(input, encode_);
    if (!tokens) return report(tokens.error());
    json::array list;
    for (const tokenizer::TokenRange& token : *tokens) {
      const std::string_view piece = tokenizer.piece_bytes(token.id);
      json::array bytes;
      for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
      list.push_back({{"id", token.id},
                      {"piece", unicode::to_valid_utf8(piece)},
                      {"bytes", std::move(bytes)},
                      {"begin", token.begin},
                      {"end", token.end}});
    }
    fmt::print("{}\n", shown_on(STDOUT_FILENO, json::serialize(list)));
    return kSuccess;
  }

  std::string model_;
  bool is_json_ = false;
  tokenizer::EncodeOptions encode_;
};

constexpr std::string_view kSeparators = " \t\r\n,[]";

// Numbers between separators: "1 2 3", "[1, 2, 3]".
Result<std::vector<Token>> parse_ids(std::string_view input, int64_t vocab_size) {
  std::vector<Token> ids;
  const auto is_separator = [](char c) { return kSeparators.find(c) != std::string_view::npos; };
  for (size_t at = 0; at < input.size();) {
    if (is_separator(input[at])) {
      ++at;
      continue;
    }
    int64_t id = -1;
    const auto [end, error] = std::from_chars(input.data() + at, input.data() + input.size(), id);
    const size_t next = static_cast<size_t>(end - input.data());
    const bool is_number = error == std::errc() && (next == input.size() || is_separator(input[next]));
    if (!is_number || id < 0 || id >= vocab_size) {
      const std::string_view rest = input.substr(at);
      const std::string_view word = rest.substr(0, std::min<size_t>(rest.find_first_of(kSeparators), 20));
      return Error{ErrorCode::InvalidArgument, fmt::format("'{}' at byte {} is not a token id in [0, {})",
                                                           unicode::to_valid_utf8(word), at, vocab_size)};
    }
    ids.push_back(static_cast<Token>(id));
    at = next;
  }
  return ids;
}

class DetokenizeCommand : public Command {
 public:
  std::string_view name() const override { return "detokenize"; }
  std::string_view summary() const override { return "turn the token ids on stdin into text"; }
  std::string_view examples() const override { return "echo 1 2 3 | sluice detokenize -m model.gguf"; }
  void declare(OptionSet& options) override {
    declare_model(options, model_);
    llm::declare_decoding(options, skips_special_);
  }

  int run() override {
    Result<tokenizer::Tokenizer> tokenizer = open_tokenizer(model_);
    if (!tokenizer) return report(tokenizer.error());
    const Result<std::string> input = read_input("-");
    if (!input) return report(input.error());
    const auto ids = parse_ids(*input, tokenizer->vocab_size());
    if (!ids) return report(ids.error());
    fmt::print("{}", shown_on(STDOUT_FILENO, tokenizer->decode(*ids, skips_special_)));
    return kSuccess;
  }

 private:
  std::string model_;
  bool skips_special_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokenize() {
  return std::make_unique<TokenizeCommand>();
}
std::unique_ptr<Command> make_detokenize() {
  return std::make_unique<DetokenizeCommand>();
}

}  // namespace sluice::cli
