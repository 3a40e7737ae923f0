// sluice run: a prompt in, its completion out.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/open_session.h"
#include "cli/ranks.h"
#include "cli/terminal/input.h"
#include "cli/terminal/tool_answer.h"
#include "llm/call_flags.h"

namespace sluice::cli {

namespace {

std::atomic<bool> run_interrupted{false};

class RunCommand : public Command {
 public:
  std::string_view name() const override { return "run"; }
  std::string_view summary() const override { return "complete a prompt: text on stdout, timings on stderr"; }
  std::string_view examples() const override {
    return "sluice run MODEL 'Why is the sky blue?'\nsluice run -p 'The capital of France is' -n 16 --temp "
           "0\ncat letter.txt | sluice run -p "
           "'Summarise:' -f -";
  }

  void declare(OptionSet& options) override {
    options.add(named_, "MODEL", "file, folder or name; the default model where left out").at_position(false);
    options.add(words_, "PROMPT", "what to complete").at_position(false);
    options.add(session_.model, "model", "the same as MODEL").short_name('m').shown_as("MODEL");
    options.add(prompt_, "prompt", "the same as PROMPT; without both, the text from a pipe").short_name('p');
    options.add(file_, "file", "text to append from a file; - is standard input")
        .short_name('f')
        .shown_as("FILE");
    how_.declare(options);
    sampling_.declare(options);
    tools_.declare(options);
    ranks_.declare(options);
    session_.engine.declare(options);
  }

  int run() override {
    if (Status status = take_words(); !status) return report(status.error());
    if (const std::optional<int> code = ranks_.join_session(session_)) return *code;
    Result<std::string> prompt = read_prompt();
    if (!prompt) return report(prompt.error());
    if (session_.engine.max_seqs == 0) session_.engine.max_seqs = 1;
    Result<std::unique_ptr<llm::Session>> session = open_session(session_);
    if (!session) return report(session.error());
    sampling_.settle((*session)->defaults());
    std::signal(SIGINT, [](int) { run_interrupted = true; });
    Result<llm::Answer> answer = answer_prompt(**session, *prompt);
    if (!answer) return report(answer.error());
    fmt::print(stderr, "{}\n", describe_timings(*answer));
    return run_interrupted ? kInterrupted : kSuccess;
  }

 private:
  Result<llm::Answer> answer_prompt(llm::Session& session, const std::string& prompt) const {
    if (!tools_.file.empty())
      return stream_tool_answer(session, {prompt, how_, sampling_, tools_}, run_interrupted);
    Result<request::Request> request = session.encode_prompt(prompt, how_);
    if (!request) return request.error();
    return stream_answer(session, std::move(*request), sampling_, run_interrupted);
  }

  // The words that have no flag: MODEL and PROMPT, or the prompt alone where a flag names the model. A model that the
  // environment names gives way.
  Status take_words() {
    const char* usual = std::getenv("SLUICE_MODEL");
    const bool by_flag = !session_.model.empty() && (usual == nullptr || session_.model != usual);
    if (by_flag && !named_.empty()) words_.insert(words_.begin(), named_);
    if (!by_flag && !named_.empty()) session_.model = named_;
    if (words_.empty()) return {};
    if (!prompt_.empty())
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("the prompt is given twice: '{}' by --prompt and '{}' without a flag", prompt_,
                               fmt::join(words_, " "))};
    prompt_ = fmt::format("{}", fmt::join(words_, " "));
    return {};
  }

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
    if (text.empty())
      return Error{ErrorCode::InvalidArgument,
                   "no prompt: give -p TEXT, -f FILE or a pipe; 'sluice chat' talks in the terminal"};
    return text;
  }

  llm::SessionOptions session_;
  RankFlags ranks_;
  llm::PromptFlags how_;
  llm::SamplingFlags sampling_;
  ToolFlags tools_;
  std::string named_, prompt_, file_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<RunCommand>();
}

}  // namespace sluice::cli
