#include "api/openai/embeddings.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "api/core/answer_json.h"
#include "api/core/errors.h"
#include "api/fields/sampling_fields.h"
#include "api/openai/completions.h"
#include "api/prompt/base64.h"

namespace sluice::api {

namespace {

Status one_of(std::string_view name, std::string_view value, std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return {};
  return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is '{}'; it must be one of {}", name,
                                                       clipped(value), fmt::join(words, ", "))};
}

Status read_encoding(const json::value& value, ParsedRequest& parsed) {
  parsed.base64 = value.get_string() == "base64";
  return one_of("encoding_format", to_text(value), {"float", "base64"});
}

Status read_pooling(const json::value& value, ParsedRequest& parsed) {
  parsed.pooling.of = value.get_string() == "last" ? request::Pooling::Of::Last : request::Pooling::Of::Mean;
  return one_of("pooling", to_text(value), {"mean", "last"});
}

constexpr Field kEmbedding[] = {
    required(used("input", {}, "a string, a list of strings, a list of token ids or a list of such lists",
                  read_embedding_input)),
    used("encoding_format", {Kind::Text}, "\"float\", or \"base64\" for little-endian 32-bit floats",
         read_encoding)
        .by_default("float"),
    used("dimensions", integer(1, 1 << 20), "keep this many numbers, brought back to length 1",
         into<&ParsedRequest::dimensions>)
        .by_default("all"),
    used("pooling", {Kind::Text}, "\"mean\" of all positions, or the \"last\" one", read_pooling)
        .by_default("mean"),
    used("truncate_prompt_tokens", integer(-1), "keep this many tokens of a longer text; -1: what fits",
         into<&ParsedRequest::truncate_prompt_tokens>),
    used("add_special_tokens", {Kind::Boolean}, "put the tokens around the text that the model expects",
         into<&ParsedRequest::add_special_tokens>)
        .by_default("true"),
    used("priority", integer(-1000000, 1000000), "lower goes first", into<&ParsedRequest::priority>)
        .by_default("0"),
    ignored("user", "who asks, for the operator's statistics"),
    ignored("embd_normalize", "embeddings have length 1"),
    unsupported("messages", "texts are embedded as they are"),
};

std::string to_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(bits >> shift & 255U);
  }
  return out;
}

class EmbeddingAnswer : public WholeAnswer {
 public:
  using WholeAnswer::WholeAnswer;

 private:
  std::string compose() const override {
    json::array data;
    for (size_t i = 0; i < parts().size(); ++i) {
      const std::vector<float> values = shorten_embedding(parts()[i].embedding, parsed());
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", parsed().base64 ? json::value(to_base64(to_bytes(values)))
                                                    : json::value(embedding_json(values))}});
    }
    return write_json(json::object{
        {"object", "list"},
        {"data", std::move(data)},
        {"model", setup().model->id},
        {"usage", {{"prompt_tokens", usage().prompt_tokens}, {"total_tokens", usage().prompt_tokens}}}});
  }
};

}  // namespace

Status read_embedding_input(const json::value& value, ParsedRequest& parsed) {
  return read_prompts(value, "input", parsed);
}

std::vector<float> shorten_embedding(std::vector<float> values, const ParsedRequest& parsed) {
  const auto wanted = static_cast<size_t>(parsed.dimensions.value_or(0));
  if (wanted == 0 || wanted >= values.size()) return values;
  values.resize(wanted);
  double square = 0;
  for (const float value : values) square += double{value} * double{value};
  if (square > 0)
    for (float& value : values) value = static_cast<float>(value / std::sqrt(square));
  return values;
}

json::array embedding_json(const std::vector<float>& values) {
  json::array out;
  out.reserve(values.size());
  for (const float value : values) out.push_back(shortest(value));
  return out;
}

Reply embed(const Call& call, ParsedRequest parsed, MakeWriter make_writer) {
  Problem problem;
  EngineJob prepared;
  prepared.model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  const ServedModel& model = *prepared.model;
  if (model.embedding > 0 && parsed.dimensions.value_or(0) > model.embedding)
    return invalid_value("dimensions", fmt::format("'dimensions' is {}; the model has {}", *parsed.dimensions,
                                                   model.embedding));
  AnswerSetup setup{.parsed = std::move(parsed),
                    .model = &model,
                    .request_id = call.context.request_id,
                    .created = call.context.now_s,
                    .clock = call.context.clock};
  if ((problem = encode_prompts(call, model, setup.parsed, Purpose::Run, setup.prompts))) return *problem;
  for (const std::vector<Token>& prompt : setup.prompts) {
    if (prompt.size() > static_cast<size_t>(model.context))
      return context_overflow(call.operation->dialect,
                              {.context = model.context, .prompt = static_cast<int64_t>(prompt.size())});
    engine::Submission& submission =
        prepared.submissions.emplace_back(make_submission(call, setup.parsed, prompt));
    submission.request.task = setup.parsed.pooling;
  }
  setup.parsed.prompts.clear();
  prepared.writer = make_writer(std::move(setup));
  return prepared;
}

const RequestSchema& embedding_schema() {
  static const RequestSchema schema{"EmbeddingRequest", {kEmbedding, model_field()}};
  return schema;
}

Reply embeddings(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, embedding_schema(), parsed)) return *problem;
  return embed(call, std::move(parsed), [](AnswerSetup setup) -> std::unique_ptr<AnswerWriter> {
    return std::make_unique<EmbeddingAnswer>(std::move(setup));
  });
}

}  // namespace sluice::api
