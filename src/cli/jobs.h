// The lines of a batch job: requests in, answers out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/service.h"
#include "base/json.h"
#include "chat/formats/output_parser.h"
#include "engine/events.h"
#include "llm/session.h"

namespace sluice::cli {

// What the text of a job's answer is read by; no format: all of it is content.
struct JobReader {
  std::shared_ptr<const chat::OutputFormat> format;
  std::shared_ptr<const chat::ToolSet> tools;
  chat::AnswerStart start = chat::AnswerStart::Fresh;
};

struct Job {
  std::string id;
  double at = 0;                  // seconds after the start at which it is submitted
  engine::Submission submission;  // without deliver
  JobReader reader;
};

// The name of a line's answer: its `id`, as JSON where it is no string, or the line's number.
std::string job_id(const json::value& line, size_t number);

// One line of input: `id`, `prompt` (text or token ids) or `messages` with or without `tools`, `at`, and the API's
// parameters. `models` has the session's, none where it has no tokenizer. An error is the line's own.
Result<Job> read_job(std::string_view line, size_t number, const llm::Session& session,
                     const std::vector<api::ServedModel>& models);

// What came of a job, as it is written out.
class JobResult {
 public:
  explicit JobResult(std::string id) : id_(std::move(id)) {}

  void set_reader(JobReader reader) { reader_ = std::move(reader); }

  void take(const engine::Event& event);
  void fail(const Error& error) { error_ = error; }
  json::object to_json(const tokenizer::Tokenizer* tokenizer) const;
  int generated() const { return end_ ? end_->usage.generated_tokens : 0; }

 private:
  struct Choice {
    std::string text;
    std::vector<request::Sampled> tokens;
    std::optional<engine::ChoiceEnd> end;
  };
  Choice& choice(int index);
  void add_text(const Choice& choice, json::object& item) const;

  std::string id_;
  JobReader reader_;
  std::vector<Choice> choices_;
  std::vector<request::Sampled> prompt_logprobs_;
  std::optional<engine::Finished> end_;
  std::optional<Error> error_;
};

}  // namespace sluice::cli
