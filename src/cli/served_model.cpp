#include "cli/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "chat/formats/model_format.h"
#include "llm/engine_flags.h"
#include "models/model.h"

namespace sluice::cli {

Result<api::ServedModel> served_model(const llm::Session& session, std::string_view tool_format) {
  const llm::EngineSetup& setup = session.setup();
  api::ServedModel served;
  served.tokenizer = &session.tokenizer();
  served.grammars = session.grammars();
  served.pictures = session.pictures();
  served.chat_template = session.has_chat_template() ? &session.chat_template() : nullptr;
  if (session.has_chat_template()) {
    Result<chat::ModelFormat> format =
        chat::make_model_format(session.chat_template(), session.tokenizer(), tool_format);
    if (!format) return format.error();
    served.format = std::make_shared<chat::ModelFormat>(std::move(*format));
  }
  served.context = setup.context;
  served.embedding = session.model().spec().dim;
  served.max_sequences = std::min(setup.scheduler.max_seqs, setup.scheduler.max_step_tokens);
  served.vocab = session.model().spec().vocab;
  served.defaults = session.defaults();
  return served;
}

Result<PreparedDraft> prepare_draft(const std::vector<api::ServedModel>& models, api::ParsedRequest draft) {
  static constexpr api::Operation kOperation{.method = "POST", .path = "/v1/chat/completions"};
  const api::Call call{.operation = &kOperation, .rest = {}, .body = {}, .models = models, .context = {}};
  api::EngineJob job{.model = &models.front()};
  PreparedDraft prepared;
  if (api::Problem problem = api::prepare_answer(call, std::move(draft), job, prepared.setup))
    return Error{ErrorCode::InvalidArgument, problem->message, problem->param};
  api::settle_first(job);
  prepared.submission = std::move(job.submissions.front());
  return prepared;
}

json::array calls_json(const std::vector<chat::ToolCall>& calls) {
  json::array out;
  for (size_t i = 0; i < calls.size(); ++i) {
    const chat::ToolCall& call = calls[i];
    out.push_back({{"id", call.id.empty() ? fmt::format("call_{}", i) : call.id},
                   {"type", "function"},
                   {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return out;
}

}  // namespace sluice::cli
