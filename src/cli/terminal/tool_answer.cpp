#include "cli/terminal/tool_answer.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "api/fields/tool_fields.h"
#include "base/system/file.h"
#include "chat/formats/output_parser.h"
#include "cli/served_model.h"
#include "engine/engine.h"
#include "engine/event_queue.h"

namespace sluice::cli {

namespace {

constexpr size_t kMostToolBytes = size_t{4} << 20;
constexpr std::chrono::milliseconds kToolPatience(50);

Status read_tool_flags(const ToolFlags& tools, api::ParsedRequest& draft) {
  Result<std::string> text = read_regular_file(tools.file, kMostToolBytes);
  if (!text) return text.error();
  Result<json::value> list = parse_json(*text, tools.file);
  if (!list) return list.error();
  if (!list->is_array())
    return Error{ErrorCode::InvalidArgument, fmt::format("{}: not a list of tools", tools.file)};
  if (Status status = api::read_tools(*list, draft); !status) return status;
  const bool is_mode = tools.choice == "auto" || tools.choice == "none" || tools.choice == "required";
  const json::value named{{"type", "function"}, {"function", {{"name", tools.choice}}}};
  return api::read_tool_choice(is_mode ? json::value(tools.choice) : named, draft);
}

Result<api::ParsedRequest> draft_of(const ToolQuestion& question) {
  api::ParsedRequest draft;
  if (Status status = read_tool_flags(question.tools, draft); !status) return status.error();
  Result<std::optional<request::Constraint>> constraint = question.sampling.constraint();
  if (!constraint) return constraint.error();
  draft.constraint = std::move(*constraint);
  draft.stop = question.sampling.stop;
  draft.max_tokens = -1;
  if (!question.how.system.empty())
    draft.chat.messages.push_back({{"role", "system"}, {"content", question.how.system}});
  draft.chat.messages.push_back({{"role", "user"}, {"content", question.prompt}});
  return draft;
}

// Writes the parts of an answer as they become certain.
class ToolAnswerWriter {
 public:
  explicit ToolAnswerWriter(const api::AnswerSetup& setup) {
    if (setup.output != nullptr) parser_ = chat::make_output_parser(setup.output, setup.tools, setup.start);
  }

  void take(std::string_view text) {
    std::vector<chat::OutputPiece> pieces;
    if (parser_ != nullptr)
      parser_->push(text, pieces);
    else
      pieces.emplace_back(chat::ContentPiece{std::string(text)});
    show(pieces);
  }

  chat::ParsedOutput finish() {
    std::vector<chat::OutputPiece> pieces;
    if (parser_ != nullptr) parser_->finish(pieces);
    show(pieces);
    if (!whole_.reasoning.empty()) fmt::print(stderr, "\n");
    if (!whole_.content.empty() && !whole_.content.ends_with('\n')) fmt::print("\n");
    for (const chat::ToolCall& call : whole_.calls) {
      Result<json::value> arguments = parse_json(call.arguments, "arguments");
      fmt::print("{}\n", write_json(json::object{
                             {"name", call.name},
                             {"arguments", arguments ? *arguments : json::value(call.arguments)}}));
    }
    std::fflush(stdout);
    return std::move(whole_);
  }

 private:
  void show(const std::vector<chat::OutputPiece>& pieces) {
    for (const chat::OutputPiece& piece : pieces) {
      whole_.add(piece);
      if (const auto* content = std::get_if<chat::ContentPiece>(&piece)) fmt::print("{}", content->text);
      if (const auto* thought = std::get_if<chat::ReasoningPiece>(&piece))
        fmt::print(stderr, "{}", thought->text);
    }
    std::fflush(stdout);
  }

  std::unique_ptr<chat::OutputParser> parser_;
  chat::ParsedOutput whole_;
};

llm::Answer answer_of(const engine::Finished& finished) {
  llm::Answer answer;
  answer.prompt_tokens = finished.usage.prompt_tokens;
  answer.cached_tokens = finished.usage.cached_tokens;
  answer.generated_tokens = finished.usage.generated_tokens;
  answer.queue_s = finished.timings.queue;
  answer.first_token_s = finished.timings.ttft;
  answer.per_token_s = finished.timings.tpot;
  answer.total_s = finished.timings.latency;
  return answer;
}

}  // namespace

void ToolFlags::declare(OptionSet& options) {
  options.add(file, "tools", "functions that the answer may call, a JSON list; calls are lines of JSON")
      .shown_as("FILE");
  options.add(choice, "tool-choice", "auto, none, required, or the name of the function to call");
}

Result<llm::Answer> stream_tool_answer(llm::Session& session, const ToolQuestion& question,
                                       const std::atomic<bool>& interrupted) {
  if (question.how.raw || !session.has_chat_template())
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--tools needs a chat template, which {}",
                             question.how.raw ? "--raw leaves out" : "this model does not have")};
  Result<api::ParsedRequest> draft = draft_of(question);
  if (!draft) return draft.error();
  Result<api::ServedModel> served = served_model(session);
  if (!served) return served.error();
  Result<PreparedDraft> prepared = prepare_draft({*served}, std::move(*draft));
  if (!prepared) return prepared.error();
  engine::Submission& submission = prepared->submission;
  request::SamplingParams params =
      question.sampling.params(session.room_after(submission.request.prompt.size()));
  params.constraint = std::move(submission.request.sampling().constraint);
  submission.request.task = std::move(params);
  auto queue = std::make_shared<engine::EventQueue>();
  submission.deliver = [queue](engine::Event event) { queue->push(std::move(event)); };
  Result<engine::RequestId> id = session.engine().submit(std::move(submission));
  if (!id) return id.error();
  ToolAnswerWriter writer(prepared->setup);
  while (true) {
    if (interrupted) session.engine().cancel(*id);
    std::optional<engine::Event> event = queue->pop_for(kToolPatience);
    if (!event) continue;
    if (const auto* delta = std::get_if<engine::Delta>(&*event)) writer.take(delta->text);
    const auto* finished = std::get_if<engine::Finished>(&*event);
    if (finished == nullptr) continue;
    if (finished->error) return *finished->error;
    writer.finish();
    return answer_of(*finished);
  }
}

}  // namespace sluice::cli
