// Asking the engine something in a test, and what came of it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/fake_executor.h"

namespace sluice::sim {

using engine::Delta;
using engine::Engine;
using engine::Event;
using engine::Finished;
using engine::Submission;
using request::FinishReason;

inline engine::EngineOptions small_options() {
  engine::EngineOptions options;
  options.scheduler.max_seqs = 4;
  options.scheduler.max_step_tokens = 64;
  options.scheduler.end_tokens = {kEnd};
  options.kv_manager = {.block_size = 4, .groups = {{.window = 0, .blocks = {64}}}};
  options.vocab = kVocab;
  return options;
}

// What one request got.
struct Answer {
  std::vector<std::vector<Token>> tokens;
  std::vector<std::string> texts;
  std::vector<FinishReason> reasons;  // of choices
  std::vector<std::string> stops;     // the strings that ended choices
  std::vector<Finished> last;

  void take(Event event) {
    if (const auto* delta = std::get_if<Delta>(&event)) {
      const auto at = static_cast<size_t>(delta->choice);
      if (tokens.size() <= at) tokens.resize(at + 1), texts.resize(at + 1);
      for (const request::Sampled& sampled : delta->tokens) tokens[at].push_back(sampled.token);
      texts[at] += delta->text;
    }
    if (const auto* end = std::get_if<engine::ChoiceEnd>(&event)) {
      reasons.push_back(end->reason);
      stops.push_back(end->stop_string);
    }
    if (const auto* finished = std::get_if<Finished>(&event)) last.push_back(*finished);
  }
};

inline Submission ask(Answer& answer, int prompt, int max_tokens, Token first = 1) {
  Submission submission;
  for (int i = 0; i < prompt; ++i) submission.request.prompt.push_back(1 + (first + i) % (kVocab - 1));
  submission.request.sampling().max_tokens = max_tokens;
  submission.request.sampling().ignore_eos = true;
  submission.deliver = [&answer](Event event) { answer.take(std::move(event)); };
  return submission;
}

}  // namespace sluice::sim
