// What guesses gain on texts that repeat and cost on texts that do not, by workload, batch and proposer, beside what the
// engine's control expected of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine.h"
#include "request/speculation.h"

namespace sluice::lab {

struct SpeculateWorkload {
  std::string_view name;
  std::vector<std::string> prompts;
};
// Texts to repeat, edit and sum up, code to go on with and to write, and questions of chats.
std::vector<SpeculateWorkload> speculate_workloads();

struct SpeculateBench {
  engine::Engine* engine = nullptr;
  std::function<Result<std::vector<Token>>(const std::string&)> encode;
  std::vector<SpeculateWorkload> workloads;
  std::vector<request::Speculation> proposers;  // Off is among what is run anyhow
  std::vector<int> batches;
  int tokens = 128;  // of an answer
  int rounds = 5;
  bool forced = false;  // the engine forces how often drafts are right: answers differ
};

struct SpeculatePoint {
  std::string_view workload;
  int batch = 1;
  request::Speculation proposer = request::Speculation::Off;
  double tokens_per_second = 0;  // median over the rounds
  double gain = 1;               // median of the ratios to the run without drafts of the same round
  double expected = 1;           // gain that the control expected: right drafts and longer steps
  double tokens_per_pass = 1;    // of a sequence
  double exposed = 0;            // share of the time in which the device had nothing to do
  uint64_t drafted = 0, accepted = 0;
};

// The rounds run each proposer and none in turn, with as many requests at any time as the batch has; prompts are in the prefix
// cache before the clock starts. A run of each proposer before them is not measured: on a GPU it records steps of new
// shapes. An error names an answer that is another one with drafts. `done` sees each point as it comes.
Result<std::vector<SpeculatePoint>> run_speculate_bench(
    const SpeculateBench& bench, const std::function<void(const SpeculatePoint&)>& done);

std::string speculate_header();
std::string speculate_row(const SpeculatePoint& point);
json::array speculate_json(const std::vector<SpeculatePoint>& points);

}  // namespace sluice::lab
