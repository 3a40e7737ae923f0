// together MODEL PROMPT...: answers several prompts at once, each from a thread of its own; the session computes them in one
// batch. An answer ends early where its text has a second sentence.
#include <sluice/llm/session.h>

#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using sluice::Result;
using sluice::llm::Answer;
using sluice::llm::Session;

std::string ask(Session& session, const std::string& prompt) {
  std::string text;
  const auto until_second_sentence = [&](std::string_view piece) {
    text += piece;
    const size_t end = text.find(". ");
    return end == std::string::npos;
  };
  const Result<Answer> answer =
      session.generate(prompt, {"temperature=0", "max-tokens=32"}, until_second_sentence);
  if (!answer) return "error: " + answer.error().message;
  return answer->text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "together MODEL PROMPT...\n";
    return 2;
  }
  Result<std::unique_ptr<Session>> session = Session::open(argv[1], {"ctx-size=2048", "max-seqs=8"});
  if (!session) {
    std::cerr << session.error().message << "\n";
    return 1;
  }
  const std::vector<std::string> prompts(argv + 2, argv + argc);
  std::vector<std::string> answers(prompts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back([&, i] { answers[i] = ask(**session, prompts[i]); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < prompts.size(); ++i) std::cout << prompts[i] << "\n  " << answers[i] << "\n";
}
