// What Ollama's clients ask about the models.
#include <fmt/format.h>

#include "api/core/generation.h"
#include "api/fields/sampling_fields.h"
#include "api/ollama/ollama.h"
#include "api/ollama/ollama_answer.h"
#include "base/sha256.h"

namespace sluice::api {

namespace {

// The version of Ollama whose API this is: clients refuse older ones.
constexpr std::string_view kVersion = "0.13.4";

std::string people_count(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return parameters >= 1000000000 ? fmt::format("{:.1f}B", count / 1e9) : fmt::format("{:.0f}M", count / 1e6);
}

std::string digest_of(const std::string& name) {
  return fmt::format("{:02x}", fmt::join(sha256(std::as_bytes(std::span(name))), ""));
}

json::object details(const ServedModel& model) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", model.architecture},
          {"families", json::array{json::string(model.architecture)}},
          {"parameter_size", people_count(model.parameters)},
          {"quantization_level", model.quantization}};
}

json::object entry(const ServedModel& model) {
  return {{"name", model.id},
          {"model", model.id},
          {"modified_at", to_rfc3339(std::chrono::seconds(model.created))},
          {"size", model.bytes},
          {"digest", digest_of(model.id)},
          {"details", details(model)}};
}

constexpr Field kShow[] = {
    used("name", {Kind::Text}, "an older name of model", into<&ParsedRequest::model>),
    ignored("verbose", "the answer is always the same"),
};

}  // namespace

const RequestSchema& ollama_show_schema() {
  static const RequestSchema schema{"OllamaShowRequest", {kShow, model_field()}};
  return schema;
}

Reply ollama_version(const Call&) {
  return Answer{.body = write_json(json::object{{"version", json::string(kVersion)}})};
}

Reply ollama_tags(const Call& call) {
  json::array models;
  for (const ServedModel& model : call.models) models.push_back(entry(model));
  return Answer{.body = write_json(json::object{{"models", std::move(models)}})};
}

Reply ollama_processes(const Call& call) {
  json::array models;
  for (const ServedModel& model : call.models) {
    json::object one = entry(model);
    one.erase("modified_at");
    one["expires_at"] = "2318-01-01T00:00:00Z";  // models stay loaded
    one["size_vram"] = 0;
    one["context_length"] = model.context;
    models.push_back(std::move(one));
  }
  return Answer{.body = write_json(json::object{{"models", std::move(models)}})};
}

Reply ollama_show(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, ollama_show_schema(), parsed)) return *problem;
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  const tokenizer::TemplateSource* source = model->tokenizer->find_chat_template();
  json::object info{{"general.architecture", model->architecture},
                    {"general.parameter_count", model->parameters}};
  info[model->architecture + ".context_length"] = model->context;
  if (model->embedding > 0) info[model->architecture + ".embedding_length"] = model->embedding;
  return Answer{
      .body = write_json(json::object{{"modelfile", ""},
                                      {"parameters", ""},
                                      {"template", source == nullptr ? std::string() : source->source},
                                      {"details", details(*model)},
                                      {"model_info", std::move(info)},
                                      {"capabilities", json::array{"completion", "embedding"}},
                                      {"modified_at", to_rfc3339(std::chrono::seconds(model->created))}})};
}

}  // namespace sluice::api
