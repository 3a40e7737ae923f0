// sluice compress: a text made shorter, as requests with `compress` have it.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "base/json.h"
#include "cli/command.h"
#include "cli/open_session.h"
#include "cli/terminal/input.h"
#include "compress/compressor.h"
#include "unicode/utf8_stream.h"

namespace sluice::cli {

namespace {

class CompressCommand : public Command {
 public:
  std::string_view name() const override { return "compress"; }
  std::string_view summary() const override { return "make a text shorter for a prompt"; }
  std::string_view examples() const override {
    return "sluice compress -f report.txt --question 'What did it cost?' --ratio 0.4\n"
           "sluice compress -f report.txt --mode extract --schema facts.json";
  }

  void declare(OptionSet& options) override {
    options.add(session_.model, "model", "the model that the text is for; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(compressor_, "compressor", "small model that scores the text; --model where left out")
        .shown_as("MODEL");
    options.add(file_, "file", "the text, or - for stdin").short_name('f').shown_as("FILE");
    options.add(task_.question, "question", "what the text is read for; its last lines where left out")
        .short_name('q')
        .shown_as("TEXT");
    std::vector<std::pair<std::string, compress::Mode>> modes;
    modes.reserve(std::size(compress::kModes));
    for (const compress::ModeName& row : compress::kModes) modes.emplace_back(row.name, row.mode);
    options.add_choice<compress::Mode>(
        task_.mode, "mode",
        "leave out what says least, run chunks that a look-ahead attends to, summarise, or extract",
        std::move(modes));
    options.add(ratio_, "ratio", "share of the tokens that stays; 0.5 without --max-tokens").within(0, 1);
    options.add(max_tokens_, "max-tokens", "tokens that stay, instead of a share").within(1, 1 << 24);
    options.add(task_.min_keep, "min-keep", "the text is not made shorter than this many tokens")
        .within(0, 1 << 24);
    options.add(keep_, "keep", "text that stays byte by byte; may be repeated").shown_as("TEXT");
    options.add(schema_, "schema", "JSON schema of the facts, for --mode extract").shown_as("FILE");
    options.add_choice<bool>(json_, "format", "the text, with figures on stderr, or JSON",
                             {{"text", false}, {"json", true}});
    session_.engine.declare(options);
  }

  int run() override {
    if (Status status = settle(); !status) return report(status.error());
    Result<std::string> text = read_input(file_);
    if (!text) return report(text.error());
    text = unicode::to_valid_utf8(*text);
    compress::Task task{.options = {}, .texts = {{.text = *text}}, .caller = {}};
    if (Status status = mark(task.texts.front()); !status) return report(status.error());
    task.options = task_;
    Result<std::unique_ptr<llm::Session>> session = open_session(session_);
    if (!session) return report(session.error());
    std::unique_ptr<llm::Session> small;
    if (!compressor_.empty()) {
      Result<std::unique_ptr<llm::Session>> opened = open_compressor(compressor_, session_);
      if (!opened) return report(opened.error());
      small = std::move(*opened);
    }
    compress::ModelCompressor compressor(compress_model(**session),
                                         compress_model(small ? *small : **session));
    if (task_.mode == compress::Mode::Prefill) return keep_tokens(**session, compressor, task);
    const Result<compress::Compressed> made = compressor.compress(task);
    if (!made) return report(made.error());
    print(*made, made->texts.front(), {});
    return kSuccess;
  }

 private:
  int keep_tokens(llm::Session& session, compress::ModelCompressor& compressor, const compress::Task& task) {
    const Result<std::vector<Token>> prompt =
        session.tokenizer().encode(task.texts.front().text, {.add_special = true});
    if (!prompt) return report(prompt.error());
    const Result<compress::KeptTokens> made = compressor.keep_tokens(task, *prompt);
    if (!made) return report(made.error());
    print(*made, made->text, made->kept);
    return kSuccess;
  }

  Status settle() {
    if (ratio_ && max_tokens_)
      return Error{ErrorCode::InvalidArgument, "--ratio and --max-tokens must not both be given"};
    if (ratio_ && *ratio_ <= 0)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--ratio is {}; it must be above 0 and at most 1", *ratio_)};
    task_.ratio = ratio_;
    task_.max_tokens = max_tokens_;
    const bool extracts = task_.mode == compress::Mode::Extract;
    if (extracts != !schema_.empty())
      return Error{ErrorCode::InvalidArgument, extracts ? "--mode extract needs --schema FILE"
                                                        : "--schema is read with --mode extract alone"};
    if (!extracts) return {};
    Result<std::string> schema = read_input(schema_);
    if (!schema) return schema.error();
    Result<json::value> parsed = parse_json(*schema, schema_);
    if (!parsed) return parsed.error();
    task_.schema = write_json(*parsed);
    return {};
  }

  Status mark(compress::Text& text) {
    for (const std::string& keep : keep_) {
      size_t at = keep.empty() ? std::string_view::npos : text.text.find(keep);
      if (at == std::string_view::npos)
        return Error{ErrorCode::InvalidArgument, fmt::format("--keep '{}' is not in the text", keep)};
      for (; at != std::string_view::npos; at = text.text.find(keep, at + keep.size()))
        text.marked.push_back({at, at + keep.size()});
    }
    if (!task_.question.empty()) return {};
    text.question = compress::question_of(text.text);
    task_.question = std::string(text.text.substr(text.question.begin, text.question.size()));
    return {};
  }

  // `positions`: of the tokens that are run, where they are not all that the text has.
  template <class Made>
  void print(const Made& made, const std::string& text, const std::vector<int32_t>& positions) const {
    if (json_) {
      json::object out{{"mode", json::string(compress::name(task_.mode))},
                       {"original_tokens", made.original_tokens},
                       {"kept_tokens", made.kept_tokens},
                       {"seconds", made.seconds},
                       {"text", text}};
      if (task_.mode == compress::Mode::Prefill)
        out["positions"] = json::array(positions.begin(), positions.end());
      fmt::print("{}\n", write_json(out));
      return;
    }
    fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
    std::fflush(stdout);
    fmt::print(stderr, "{} of {} tokens kept ({:.0f} %), {:.1f} s\n", made.kept_tokens, made.original_tokens,
               made.original_tokens == 0 ? 100.0 : 100.0 * made.kept_tokens / made.original_tokens,
               made.seconds);
  }

  llm::SessionOptions session_;
  std::string compressor_, file_ = "-", schema_;
  compress::Options task_;
  std::optional<double> ratio_;
  std::optional<int> max_tokens_;
  std::vector<std::string> keep_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compress() {
  return std::make_unique<CompressCommand>();
}

}  // namespace sluice::cli
