// sluice render: a conversation through a chat template, as the bytes a model would see.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "base/system/file.h"
#include "base/system/terminal.h"
#include "chat/chat_template.h"
#include "cli/command.h"
#include "cli/terminal/input.h"
#include "llm/model_store.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

// "2025-07-26T12:30:00": the clock that strftime_now() shows.
Result<std::chrono::local_seconds> parse_clock(const json::value& value) {
  using namespace std::chrono;
  const json::string* text = value.if_string();
  int parts[6] = {};
  const int read = text == nullptr ? 0
                                   : std::sscanf(text->c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &parts[0],
                                                 &parts[1], &parts[2], &parts[3], &parts[4], &parts[5]);
  const year_month_day date{year(parts[0]), month(static_cast<unsigned>(parts[1])),
                            day(static_cast<unsigned>(parts[2]))};
  const auto within = [](int number, int end) { return number >= 0 && number < end; };
  if (read != 6 || !date.ok() || !within(parts[3], 24) || !within(parts[4], 60) || !within(parts[5], 60)) {
    return Error{ErrorCode::InvalidArgument, fmt::format("'now' is {}, must be like \"2025-07-26T12:30:00\"",
                                                         json::serialize(value).substr(0, 60))};
  }
  return local_seconds(local_days(date)) + hours(parts[3]) + minutes(parts[4]) + seconds(parts[5]);
}

class RenderCommand : public Command {
 public:
  std::string_view name() const override { return "render"; }
  std::string_view summary() const override { return "print a conversation as a chat template renders it"; }
  std::string_view examples() const override {
    return "sluice render -m model.gguf --input conversation.json\n"
           "sluice render --template chat.jinja --input conversation.json";
  }
  void declare(OptionSet& options) override {
    options.add(template_, "template", "template to use instead of a model's own").shown_as("FILE");
    options.add(model_, "model", "model whose template is used; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options
        .add(
            input_, "input",
            "JSON object: 'messages', and any other key is a variable of the template; 'now' sets its clock; "
            "'-' reads stdin")
        .shown_as("FILE");
  }

  int run() override {
    Result<json::object> variables = read_variables();
    if (!variables) return report(variables.error());
    chat::RenderOptions options;
    if (const json::value* now = variables->if_contains("now")) {
      Result<std::chrono::local_seconds> clock = parse_clock(*now);
      if (!clock) return report(clock.error());
      options.now = *clock;
      variables->erase("now");
    }
    Result<std::string> source = template_.empty() ? model_template(*variables) : read_template();
    if (!source) return report(source.error());
    return print_rendering(std::move(*source), *variables, options);
  }

 private:
  Result<json::object> read_variables() const {
    if (input_.empty()) return Error{ErrorCode::InvalidArgument, "render needs --input FILE"};
    Result<std::string> bytes = read_input(input_);
    if (!bytes) return bytes.error();
    Result<json::value> value = parse_json(*bytes, input_);
    if (!value) return value.error();
    if (!value->is_object())
      return Error{ErrorCode::InvalidArgument, fmt::format("{}: must hold a JSON object", input_)};
    return std::move(value->as_object());
  }

  Result<std::string> read_template() const {
    if (template_ == "-") return read_input(template_);
    Result<std::string> text = read_regular_file(template_, kMostInputBytes);
    if (!text) return Error{text.error().code, "template " + text.error().message};
    return text;
  }

  // The model's template, and its bos and eos tokens as variables where the input does not set them. With tools,
  // a template made for them comes first.
  Result<std::string> model_template(json::object& variables) const {
    Result<std::string> path = llm::resolve_model(model_);
    if (!path) return path.error();
    Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(*path);
    if (!tokenizer) return tokenizer.error();
    const auto set_token = [&](std::string_view name, std::optional<Token> id) {
      if (id && !variables.contains(name)) variables[name] = tokenizer->spelling(*id);
    };
    set_token("bos_token", tokenizer->special().bos);
    set_token("eos_token", tokenizer->special().eos);
    const json::value* tools = variables.if_contains("tools");
    const tokenizer::TemplateSource* found = nullptr;
    if (tools != nullptr && !tools->is_null()) found = tokenizer->find_chat_template("tool_use");
    if (found == nullptr) found = tokenizer->find_chat_template();
    if (found == nullptr) return Error{ErrorCode::NotFound, fmt::format("{} has no chat template", *path)};
    return found->source;
  }

  // A template that does not parse or that refuses the conversation is an answer, not misuse.
  static int print_rendering(std::string source, const json::object& variables,
                             const chat::RenderOptions& options) {
    const Result<chat::ChatTemplate> parsed = chat::ChatTemplate::parse(std::move(source));
    const Result<chat::Rendering> rendering =
        parsed ? parsed->render(variables, options) : Result<chat::Rendering>(parsed.error());
    if (!rendering) {
      report(rendering.error());
      return kFailure;
    }
    const std::string text = shown_on(STDOUT_FILENO, rendering->text());
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      return report({ErrorCode::Io, "cannot write to stdout"});
    }
    return kSuccess;
  }

  std::string template_, model_, input_;
};

}  // namespace

std::unique_ptr<Command> make_render() {
  return std::make_unique<RenderCommand>();
}

}  // namespace sluice::cli
