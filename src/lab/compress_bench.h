// What prompts made shorter cost and give: answers and first tokens against the share that is kept, beside plain truncation
// and words dropped at random.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "compress/compressor.h"

namespace sluice::lab {

struct CompressCase {
  std::string name;
  std::string text;      // what is made shorter
  std::string question;  // behind it, as it is
  std::string expected;  // that a right answer holds
  std::string marked;    // a sentence of the text that the modes of compression are told to keep
  std::string schema;    // of the facts that `extract` takes from the text
  bool needle = false;   // one fact in a haystack, not one of many
};

struct CompressWorkload {
  int tokens = 2000;  // of a text, about
  int cases = 4;      // of each kind
  uint64_t seed = 1;
  std::string filler;  // sentences around the facts; empty: invented ones
};
// Needles in haystacks at depths from begin to end, then questions about one of many facts.
std::vector<CompressCase> make_compress_cases(const CompressWorkload& workload);

enum class ShorterBy : uint8_t { Nothing, Tokens, Prefill, Summary, Extract, Truncation, Random };
std::string_view name(ShorterBy way);
// Nothing where there is none of this name, and for the full prompt.
std::optional<ShorterBy> shorter_by(std::string_view name);

// What became of one text.
struct CompressOutcome {
  std::string name;
  int original_tokens = 0, kept_tokens = 0;
  double loss = 0;             // as below
  bool right = false;          // the answer holds what is expected
  std::string text, answered;  // the shorter text, and what was answered
};

struct CompressPoint {
  ShorterBy way = ShorterBy::Nothing;
  double ratio = 1;  // asked for
  // Means over the cases.
  double kept = 1;                    // share of the tokens
  double compress_s = 0, ttft_s = 0;  // seconds; the first token's includes the compression's
  double cached_ttft_s = 0;           // where the text was compressed before
  double loss = 0;  // nats per token of the full prompt's answer, over what the full prompt gives it
  double needles = 0, questions = 0;  // shares of answers that hold what is expected
  double marked = 1;                  // share of texts whose marked sentence stays byte by byte
  std::vector<CompressOutcome> outcomes;
};

struct CompressBench {
  compress::Model target;
  compress::PromptCompressor* compressor = nullptr;
  std::vector<CompressCase> cases;
  std::vector<double> ratios;
  std::vector<ShorterBy> ways;
  int answer_tokens = 16;
};

// `done` sees each point as it comes; the first is the full prompt.
Result<std::vector<CompressPoint>> run_compress_bench(const CompressBench& bench,
                                                      const std::function<void(const CompressPoint&)>& done);

std::string compress_header();
std::string compress_row(const CompressPoint& point);
// Each way at each ratio against the full prompt: times as multiples, losses against those of random dropping and of
// truncation.
std::string compress_verdict(const std::vector<CompressPoint>& points);
// A row for each text of the ways in which a model writes the shorter text; nothing where there is none.
std::string compress_texts(const std::vector<CompressPoint>& points);
json::array compress_json(const std::vector<CompressPoint>& points);
std::string compress_html(const std::vector<CompressPoint>& points, const std::string& workload);

}  // namespace sluice::lab
