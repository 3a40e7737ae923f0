// sluice run: a prompt in, its completion out.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/input.h"

namespace sluice::cli {

namespace {

std::atomic<bool> run_interrupted{false};

class RunCommand : public Command {
 public:
  std::string_view name() const override { return "run"; }
  std::string_view summary() const override { return "complete a prompt: text on stdout, timings on stderr"; }
  std::string_view examples() const override {
    return "sluice run -p 'The capital of France is' -n 16 --temp 0\ncat letter.txt | sluice run -p "
           "'Summarise:' -f -";
  }

  void declare(OptionSet& options) override {
    options.add(session_.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(prompt_, "prompt", "what to complete; without it, the text from a pipe").short_name('p');
    options.add(file_, "file", "text to append from a file; - is standard input")
        .short_name('f')
        .shown_as("FILE");
    options.add(system_, "system",
                "system message; without it none, with 'auto' the one of the model's chat template");
    options.add(raw_, "raw", "complete the text as it is, without the chat template");
    sampling_.declare(options);
    session_.engine.declare(options);
  }

  int run() override {
    Result<std::string> prompt = read_prompt();
    if (!prompt) return report(prompt.error());
    if (session_.engine.max_seqs == 0) session_.engine.max_seqs = 1;
    Result<std::unique_ptr<Session>> session = Session::open(session_);
    if (!session) return report(session.error());
    Result<std::vector<Token>> tokens = encode(**session, *prompt);
    if (!tokens) return report(tokens.error());
    std::signal(SIGINT, [](int) { run_interrupted = true; });
    Result<Answer> answer = stream_answer(**session, std::move(*tokens), sampling_, run_interrupted);
    if (!answer) return report(answer.error());
    fmt::print(stderr, "{}\n", describe_timings(answer->end));
    return run_interrupted ? kInterrupted : kSuccess;
  }

 private:
  Result<std::string> read_prompt() const {
    std::string text = prompt_;
    if (!file_.empty()) {
      Result<std::string> content = read_input(file_);
      if (!content) return content.error();
      text += (text.empty() ? "" : "\n") + *content;
    }
    if (text.empty() && isatty(STDIN_FILENO) == 0) {
      Result<std::string> piped = read_input("-");
      if (!piped) return piped.error();
      text = *piped;
    }
    if (text.empty()) return Error{ErrorCode::InvalidArgument, "no prompt: give -p TEXT, -f FILE or a pipe"};
    return text;
  }

  Result<std::vector<Token>> encode(const Session& session, const std::string& prompt) const {
    const bool has_system = !system_.empty() && system_ != "auto";
    if (raw_ || !session.has_chat_template()) {
      if (!has_system) return session.encode_text(prompt);
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--system needs a chat template, which {}",
                               raw_ ? "--raw leaves out" : "this model does not have")};
    }
    json::array messages;
    if (has_system) messages.push_back({{"role", "system"}, {"content", system_}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    return system_.empty() ? session.encode_without_persona(messages)
                           : session.encode_chat({.variables = {{"messages", messages}}});
  }

  SessionOptions session_;
  SamplingFlags sampling_;
  std::string prompt_, file_, system_;
  bool raw_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<RunCommand>();
}

}  // namespace sluice::cli
