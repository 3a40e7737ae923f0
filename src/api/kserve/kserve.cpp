#include "api/kserve/kserve.h"

#include <array>

#include "api/core/answer_json.h"
#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/sampling_fields.h"
#include "api/openai/models.h"
#include "base/version.h"

namespace sluice::api {

namespace {

constexpr int kDefaultTokens = 16;
// Models have one version each.
constexpr std::string_view kModelVersion = "1";

Status read_text_input(const json::value& value, ParsedRequest& parsed) {
  parsed.prompts.emplace_back(to_text(value));
  return {};
}

// A piece of the answer, or all of it.
json::object output(const AnswerSetup& setup, std::string_view text) {
  json::object out{{"model_name", setup.model->id}, {"model_version", json::string(kModelVersion)}};
  if (!setup.parsed.request_id.empty()) out["id"] = setup.parsed.request_id;
  out["text_output"] = json::string(text);
  return out;
}

void add_details(const engine::ChoiceEnd& end, const engine::Usage& usage, json::object& out) {
  out["details"] = {{"finish_reason", json::string(finish_reason(end.reason))},
                    {"prompt_tokens", usage.prompt_tokens},
                    {"cached_tokens", usage.cached_tokens},
                    {"generated_tokens", usage.generated_tokens}};
}

class GenerateAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::string compose() const override {
    const Choice& choice = parts().front().choices.front();
    json::object out = output(setup(), choice.text);
    add_details(choice.end, usage(), out);
    return write_json(out);
  }
};

class GenerateStream : public AnswerBase {
 public:
  using AnswerBase::AnswerBase;
  std::string_view content_type() const override { return "text/event-stream"; }
  std::string_view ping() const override { return ": ping\n\n"; }

 private:
  void on_delta(size_t, const AnswerDelta& delta, std::string& out) override {
    if (!delta.raw.text.empty()) append_event(out, write_json(output(setup(), delta.raw.text)));
  }
  void on_choice_end(size_t, const engine::ChoiceEnd& end, std::string&) override { end_ = end; }
  void on_complete(std::string& out) override {
    json::object last = output(setup(), "");
    add_details(end_, usage(), last);
    append_event(out, write_json(last));
  }
  void on_failure(const ApiError& error, std::string& out) override {
    append_event(out, write_error(Dialect::Kserve, error, setup().request_id));
  }

  engine::ChoiceEnd end_;
};

Reply generate_text(const Call& call, bool stream) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, kserve_generate_schema(), parsed)) return *problem;
  if (parsed.n != 1) return unsupported_parameter("n", "'n' is not supported here; use /v1/completions");
  parsed.model = call.rest;
  parsed.stream = stream;
  if (!parsed.max_tokens) parsed.max_tokens = kDefaultTokens;
  return generate(call, std::move(parsed), make_either<GenerateAnswer, GenerateStream>);
}

json::object text_tensor(std::string_view name) {
  return {{"name", json::string(name)}, {"datatype", "BYTES"}, {"shape", json::array{1}}};
}

}  // namespace

const RequestSchema& kserve_generate_schema() {
  static const std::array fields = {
      required(used("text_input", {Kind::Text}, "the text to go on with", read_text_input)),
      nested("parameters", "how tokens are chosen; Triton's clients send these fields beside text_input",
             sampling_fields()),
      used("id", {Kind::Text}, "is repeated in the answer", into<&ParsedRequest::request_id>),
      ignored("stream", "the path says it"),
  };
  static const RequestSchema schema{"GenerateRequest", {fields, sampling_fields(), speculate_field()}};
  return schema;
}

Reply kserve_server(const Call&) {
  return Answer{.body =
                    write_json(json::object{{"name", "sluice"},
                                            {"version", json::string(build_info().version)},
                                            {"extensions", json::array{"generate", "model_repository"}}})};
}

Reply kserve_model(const Call& call) {
  const ServedModel* model = find_model(call, call.rest);
  if (model == nullptr) return model_not_found(call, call.rest);
  return Answer{.body = write_json(json::object{{"name", model->id},
                                                {"versions", json::array{json::string(kModelVersion)}},
                                                {"platform", "sluice"},
                                                {"inputs", json::array{text_tensor("text_input")}},
                                                {"outputs", json::array{text_tensor("text_output")}},
                                                {"parameters",
                                                 {{"architecture", model->architecture},
                                                  {"quantization", model->quantization},
                                                  {"context", model->context}}}})};
}

Reply kserve_generate(const Call& call) {
  return generate_text(call, false);
}

Reply kserve_generate_stream(const Call& call) {
  return generate_text(call, true);
}

}  // namespace sluice::api
