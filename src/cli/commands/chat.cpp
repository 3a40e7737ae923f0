// sluice chat: a conversation in the terminal, or one question through a pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/system/terminal.h"
#include "chat/chat_prompt.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/open_session.h"
#include "cli/terminal/conversation.h"
#include "cli/terminal/input.h"
#include "cli/terminal/line_editor.h"
#include "llm/call_flags.h"

namespace sluice::cli {

namespace {

std::atomic<bool> chat_interrupted{false};

constexpr std::string_view kHelp =
    "  /help             this list\n"
    "  /clear            forget the conversation, keep the system message\n"
    "  /system [TEXT]    set the system message; without text: the model's own\n"
    "  /set [NAME VALUE] change a setting; without arguments: show them\n"
    "  /regen            give the last answer again\n"
    "  /save FILE        write the conversation to a file\n"
    "  /load FILE        read a conversation from a file\n"
    "  /stats            what the engine has done so far\n"
    "  /exit             end (also /bye, Ctrl-D)\n"
    "  \"\"\"               starts and ends a message of several lines\n"
    "  Ctrl-C            stops the answer, not the program\n";

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state == nullptr && home == nullptr) return "";
  const std::filesystem::path folder = state != nullptr ? std::filesystem::path(state) / "sluice"
                                                        : std::filesystem::path(home) / ".local/state/sluice";
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  return ec ? "" : (folder / "history").string();
}

class ChatCommand : public Command {
 public:
  std::string_view name() const override { return "chat"; }
  std::string_view summary() const override { return "talk with a model in the terminal"; }

  void declare(OptionSet& options) override {
    options.add(session_options_.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    llm::declare_system(options, system_);
    sampling_.declare(options);
    session_options_.engine.declare(options);
  }

  int run() override {
    if (session_options_.engine.max_seqs == 0) session_options_.engine.max_seqs = 1;
    Result<std::unique_ptr<llm::Session>> session = open_session(session_options_);
    if (!session) return report(session.error());
    session_ = std::move(*session);
    if (!session_->has_chat_template())
      return report({ErrorCode::Unsupported,
                     "the model has no chat template; 'sluice run --raw' completes plain text"});
    sampling_.settle(session_->defaults());
    conversation_.set_system(system_);
    struct sigaction action {};
    action.sa_handler = [](int) { chat_interrupted = true; };
    sigaction(SIGINT, &action, nullptr);
    return isatty(STDIN_FILENO) != 0 ? interact() : answer_pipe();
  }

 private:
  int answer_pipe() {
    Result<std::string> text = read_input("-");
    if (!text) return report(text.error());
    if (text->empty()) return report({ErrorCode::InvalidArgument, "nothing on standard input"});
    conversation_.say(std::move(*text));
    return reply();
  }

  int interact() {
    const QuietTerminal quiet;  // of keys between a message and its answer, too
    LineEditor editor(history_path());
    fmt::print("{} — /help lists the commands\n", shown_on(STDOUT_FILENO, session_->model().files.path));
    while (true) {
      chat_interrupted = false;
      std::optional<std::string> line = editor.read("> ");
      if (!line) break;
      if (line->empty()) continue;
      if (line->starts_with("\"\"\"")) line = read_block(editor, line->substr(3));
      if (!line) break;
      if (line->starts_with('/')) {
        if (!command(*line)) break;
        continue;
      }
      conversation_.say(*line);
      if (reply() != kSuccess) conversation_.take_back_question();
    }
    fmt::print("\n");
    return kSuccess;
  }

  static std::optional<std::string> read_block(LineEditor& editor, std::string text) {
    while (!text.ends_with("\"\"\"")) {
      std::optional<std::string> more = editor.read(". ");
      if (!more) return std::nullopt;
      text += (text.empty() ? "" : "\n") + *more;
    }
    text.resize(text.size() - 3);
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }

  Result<request::Request> encode() const {
    Result<std::vector<Token>> tokens =
        session_->encode_chat({.variables = {{"messages", conversation_.to_json()}}});
    if (!tokens) return tokens.error();
    request::Request request;
    request.prompt = std::move(*tokens);
    return request;
  }

  // Answers the conversation as it stands; an exit code.
  int reply() {
    Result<request::Request> prompt = encode();
    Result<llm::Answer> answer =
        prompt ? stream_answer(*session_, std::move(*prompt), sampling_, chat_interrupted)
               : Result<llm::Answer>(prompt.error());
    if (!answer) return report(answer.error());
    fmt::print(stderr, "{}[{}]{}\n", dim(), describe_timings(*answer), plain());
    conversation_.answer(answer->text);
    totals_.prompt_tokens += answer->prompt_tokens;
    totals_.cached_tokens += answer->cached_tokens;
    totals_.generated_tokens += answer->generated_tokens;
    ++answers_;
    return kSuccess;
  }

  // False ends the program.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string verb = line.substr(0, space),
                      rest = space == std::string::npos ? "" : line.substr(space + 1);
    Status status;
    if (verb == "/exit" || verb == "/bye" || verb == "/quit") return false;
    if (verb == "/help" || verb == "/?") {
      fmt::print("{}", kHelp);
    } else if (verb == "/clear") {
      conversation_.clear();
    } else if (verb == "/system") {
      conversation_.set_system(rest);
    } else if (verb == "/set" && rest.empty()) {
      fmt::print("{}", list_settings(sampling_));
    } else if (verb == "/set") {
      status = change_setting(sampling_, rest);
    } else if (verb == "/regen") {
      if (conversation_.take_back_answer()) {
        reply();
      } else {
        fmt::print("there is no answer to give again\n");
      }
    } else if (verb == "/save" || verb == "/load") {
      status = rest.empty()      ? Status(Error{ErrorCode::InvalidArgument, verb + " needs a file name"})
               : verb == "/save" ? conversation_.save(rest)
                                 : conversation_.load(rest);
    } else if (verb == "/stats") {
      fmt::print("{} answers, {} prompt tokens ({} cached), {} generated tokens, {} messages\n", answers_,
                 totals_.prompt_tokens, totals_.cached_tokens, totals_.generated_tokens,
                 conversation_.messages().size());
    } else {
      fmt::print("unknown command {}; /help lists them\n", verb);
    }
    if (!status) report(status.error());
    return true;
  }

  static bool colours() { return isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr; }
  static const char* dim() { return colours() ? "\033[2m" : ""; }
  static const char* plain() { return colours() ? "\033[0m" : ""; }

  llm::SessionOptions session_options_;
  llm::SamplingFlags sampling_;
  std::string system_;
  std::unique_ptr<llm::Session> session_;
  Conversation conversation_;
  llm::Answer totals_;
  int answers_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_chat() {
  return std::make_unique<ChatCommand>();
}

}  // namespace sluice::cli
