#include "cli/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "formats/safetensors/safetensors.h"
#include "runtime/scorer.h"
#include "tensor/blocks.h"

namespace sluice::cli {

namespace {

Result<std::vector<Token>> read_tokens(const json::object& object, std::string_view key, int vocab) {
  const json::value* list = object.if_contains(json::string_view(key.data(), key.size()));
  if (list == nullptr || !list->is_array())
    return Error{ErrorCode::Corrupt, fmt::format("golden.json: '{}' is missing or not a list", key)};
  std::vector<Token> tokens;
  for (const json::value& item : list->get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() >= vocab)
      return Error{ErrorCode::Corrupt,
                   fmt::format("golden.json: '{}' holds a token outside 0 to {}", key, vocab - 1)};
    tokens.push_back(static_cast<Token>(item.get_int64()));
  }
  return tokens;
}

Result<std::vector<float>> read_logits(const formats::TensorStore& tensors, size_t index, size_t positions,
                                       int vocab) {
  const std::string name = fmt::format("logits.{}", index);
  Result<TensorView> view = tensors.find(name);
  if (!view) return view.error();
  if (view->rank != 2 || view->dim(0) != static_cast<int64_t>(positions) || view->dim(1) != vocab)
    return Error{ErrorCode::Corrupt, fmt::format("golden.safetensors: '{}' is {}, must be [{}, {}]", name,
                                                 view->describe(), positions, vocab)};
  std::vector<float> logits(positions * static_cast<size_t>(vocab));
  dequantize_row(view->dtype, view->data, logits.data(), view->elements());
  return logits;
}

}  // namespace

Result<std::vector<GoldenCase>> read_golden(const std::string& folder, int vocab) {
  const std::string path = folder + "/golden.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::NotFound, path + ": no such file"};
  std::ostringstream text;
  text << file.rdbuf();
  Result<json::value> value = parse_json(text.str(), path);
  if (!value) return value.error();
  const json::value* list = value->is_object() ? value->get_object().if_contains("cases") : nullptr;
  if (list == nullptr || !list->is_array())
    return Error{ErrorCode::Corrupt, path + ": 'cases' is missing or not a list"};
  Result<formats::Safetensors> tensors = formats::open_safetensors(folder + "/golden.safetensors");
  if (!tensors) return tensors.error();

  std::vector<GoldenCase> cases;
  for (const json::value& item : list->get_array()) {
    if (!item.is_object()) return Error{ErrorCode::Corrupt, path + ": a case is not an object"};
    Result<std::vector<Token>> prompt = read_tokens(item.get_object(), "prompt", vocab);
    if (!prompt) return prompt.error();
    Result<std::vector<Token>> greedy = read_tokens(item.get_object(), "greedy", vocab);
    if (!greedy) return greedy.error();
    Result<std::vector<float>> logits = read_logits(tensors->tensors, cases.size(), prompt->size(), vocab);
    if (!logits) return logits.error();
    cases.push_back({std::move(*prompt), std::move(*greedy), std::move(*logits)});
  }
  return cases;
}

Token followed_token(std::span<const float> logits, Token reference, double tolerance) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double squares = 0;
  for (const float logit : logits) squares += double{logit} * logit;
  const double size = std::sqrt(squares / static_cast<double>(logits.size()));
  const double behind = double{*best} - logits[static_cast<size_t>(reference)];
  return behind <= tolerance * size ? reference : static_cast<Token>(best - logits.begin());
}

Result<GoldenVerdict> judge(const models::Model& model, const GoldenCase& golden, DType kv_type,
                            double tolerance) {
  runtime::Scorer scorer(model, static_cast<int>(golden.prompt.size() + golden.greedy.size()), kv_type);
  Result<std::vector<float>> logits = scorer.append(golden.prompt);
  if (!logits) return logits.error();
  GoldenVerdict verdict{.greedy_tokens = golden.greedy.size()};
  double difference = 0, size = 0;
  for (size_t i = 0; i < golden.logits.size(); ++i) {
    const double reference = golden.logits[i], ours = (*logits)[i];
    difference += (ours - reference) * (ours - reference);
    size += reference * reference;
  }
  verdict.relative_error = std::sqrt(difference / size);

  std::vector<float> last(logits->end() - model.spec().vocab, logits->end());
  for (Token wanted : golden.greedy) {
    const Token best = followed_token(last, wanted, tolerance);
    if (best != wanted) break;
    if (++verdict.equal_tokens == golden.greedy.size()) break;
    Result<std::vector<float>> next = scorer.append_last({&best, 1});
    if (!next) return next.error();
    last = std::move(*next);
  }
  return verdict;
}

}  // namespace sluice::cli
