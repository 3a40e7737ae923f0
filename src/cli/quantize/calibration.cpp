#include "cli/quantize/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/sha256.h"
#include "cli/terminal/input.h"
#include "runtime/device.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

// The start of a digest, enough to tell texts apart.
std::string digest_of(const std::string& text) {
  const Sha256Digest digest = sha256(std::as_bytes(std::span(text.data(), text.size())));
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

void show_context(int done, int all) {
  fmt::print(stderr, "calibration: context {} of {}\n", done, all);
}

}  // namespace

Result<Calibration> calibrate(const std::string& path, const CalibrationOptions& options) {
  const Result<std::string> text = read_input(options.text);
  if (!text) return text.error();
  Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(path);
  if (!tokenizer) return tokenizer.error();
  Result<std::vector<Token>> tokens = tokenizer->encode(*text, {});
  if (!tokens) return tokens.error();
  lab::PerplexityOptions score;
  score.first = tokenizer->special().bos;
  if (score.first) tokens->insert(tokens->begin(), *score.first);
  Result<std::shared_ptr<kernels::Backend>> backend =
      runtime::make_backend({.device = "cpu", .threads = options.threads});
  if (!backend) return backend.error();
  Result<models::ModelFiles> files = models::open_model(path);
  if (!files) return files.error();
  score.context = std::min(score.context, files->spec.context);
  score.contexts = options.contexts;
  Result<std::unique_ptr<models::Model>> model = models::load_model(std::move(*files), *backend);
  if (!model) return model.error();
  Result<lab::Importance> found = lab::measure_importance(**model, *tokens, score, show_context);
  if (!found) return found.error();
  return Calibration{std::move(*found), fmt::format("{}, at most {} contexts of {} tokens, sha256 {}",
                                                    std::filesystem::path(options.text).filename().string(),
                                                    score.contexts, score.context, digest_of(*text))};
}

}  // namespace sluice::cli
