#include "rig.h"

#include <gtest/gtest.h>

namespace sluice::runtime::test {

namespace {

std::unique_ptr<models::Model> load(const std::string& name, std::shared_ptr<kernels::Backend> backend,
                                    std::shared_ptr<models::ModelGroup> group = nullptr) {
  Result<models::ModelFiles> files = models::open_model(name.starts_with('/') ? name : kData + "/" + name);
  if (!files) throw std::runtime_error(files.error().message);
  Result<std::unique_ptr<models::Model>> model = models::load_model(
      std::move(*files), std::move(backend), [](float) {}, std::move(group));
  if (!model) throw std::runtime_error(model.error().message);
  return std::move(*model);
}

void take(Answer& answer, const engine::Event& event) {
  const auto room = [](auto& list, int index) -> auto& {
    if (list.size() <= static_cast<size_t>(index)) list.resize(static_cast<size_t>(index) + 1);
    return list[static_cast<size_t>(index)];
  };
  if (const auto* delta = std::get_if<engine::Delta>(&event)) {
    auto& tokens = room(answer.choices, delta->choice);
    tokens.insert(tokens.end(), delta->tokens.begin(), delta->tokens.end());
    answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), delta->prompt_logprobs.begin(),
                                  delta->prompt_logprobs.end());
  } else if (const auto* end = std::get_if<engine::ChoiceEnd>(&event)) {
    room(answer.scores, end->choice) = end->score;
  } else if (const auto* vector = std::get_if<engine::Embedding>(&event)) {
    answer.vectors.push_back(vector->values);
  } else {
    answer.ends.push_back(std::get<engine::Finished>(event));
  }
}

}  // namespace

std::vector<Token> Answer::tokens(size_t choice) const {
  std::vector<Token> out;
  if (choice < choices.size())
    for (const request::Sampled& sampled : choices[choice]) out.push_back(sampled.token);
  return out;
}

Rig::Rig(const RigOptions& options) {
  if (options.ahead) backend = std::make_shared<AheadBackend>();
  const std::shared_ptr<kernels::Backend> on = options.on ? options.on : backend;
  model = load(options.model, on, options.group);
  if (!options.amateur.empty()) amateur = load(options.amateur, on);
  if (!options.draft.empty()) draft = load(options.draft, on);
  if (options.head || !options.eagle.empty()) {
    Result<models::Head> found =
        options.head ? models::load_mtp_head(*model) : models::load_eagle3_head(options.eagle, *model);
    if (!found) throw std::runtime_error(found.error().message);
    head.emplace(std::move(*found));
  }
  ExecutorOptions executor_options{
      .memory = {.block_size = options.block_size, .type = options.kv_type, .blocks = {}},
      .tiers = {.disk_folder = options.disk_folder},
      .eos_tokens = options.end_tokens,
      .padding = options.scheduler.layout == sched::Layout::Padded,
      .grammars = options.grammars,
      .speculation = options.speculation,
      .draft = draft.get(),
      .head = head ? &*head : nullptr,
      .warm_up = options.warm_up};
  engine::EngineOptions engine_options{.scheduler = options.scheduler,
                                       .kv_manager = {.block_size = options.block_size,
                                                      .groups = {},
                                                      .model = options.model,
                                                      .prefix_cache = options.prefix_cache},
                                       .queue = {},
                                       .vocab = model->spec().vocab};
  engine_options.scheduler.end_tokens = options.end_tokens;
  engine_options.kv_manager.checkpoint_interval = options.checkpoint_interval;
  engine_options.kv_manager.message_ends = options.message_ends;
  const KvGroups groups = kv_groups(model->spec());
  for (int window : groups.windows)
    engine_options.kv_manager.groups.push_back({.window = window, .blocks = options.blocks});
  if (groups.states) {
    kv::KvGroup& states = engine_options.kv_manager.groups.emplace_back();
    states = {.holds = kv::KvGroup::Holds::State, .blocks = options.blocks};
    if (options.state_slots > 0) states.blocks[0] = options.state_slots;
  }
  for (size_t i = 0; i < groups.count(); ++i) {
    executor_options.memory.blocks.push_back(engine_options.kv_manager.groups[i].blocks[0]);
    executor_options.tiers.host_blocks.push_back(options.blocks[1]);
    executor_options.tiers.disk_blocks.push_back(options.blocks[2]);
  }
  Result<std::unique_ptr<ModelExecutor>> made = ModelExecutor::make(*model, amateur.get(), executor_options);
  if (!made) throw std::runtime_error(made.error().message);
  executor = std::move(*made);
  engine_options.scheduler.stages = executor->stages();
  engine = std::make_unique<engine::Engine>(std::move(engine_options), *executor);
}

size_t Rig::submit(request::Request request) {
  auto answer = answers_.emplace_back(std::make_shared<Answer>());
  engine::Submission submission;
  submission.request = std::move(request);
  submission.deliver = [answer](const engine::Event& event) { take(*answer, event); };
  const Result<engine::RequestId> id = engine->submit(std::move(submission));
  if (!id) throw std::runtime_error(id.error().message);
  return answers_.size() - 1;
}

bool Rig::step() {
  const bool more = engine->step();
  engine->kv_manager().check();
  return more;
}

void Rig::finish() {
  for (int steps = 0; step(); ++steps) ASSERT_LT(steps, 20000) << "the engine does not come to an end";
  for (const auto& answer : answers_) EXPECT_EQ(answer->ends.size(), 1u) << "terminal events of a request";
}

Answer Rig::run(request::Request request) {
  const size_t index = submit(std::move(request));
  finish();
  return *answers_[index];
}

std::shared_ptr<grammar::GrammarStore> character_grammars(int vocab) {
  std::vector<std::string> tokens;
  for (int i = 0; i < vocab; ++i) tokens.emplace_back(1, static_cast<char>(' ' + i % 95));
  for (size_t i = 95; i < tokens.size(); ++i) tokens[i].clear();
  return std::make_shared<grammar::GrammarStore>(
      std::make_shared<const grammar::Vocabulary>(std::move(tokens), std::vector<Token>{}));
}

request::Request greedy_request(std::vector<Token> prompt, int max_tokens) {
  request::Request request;
  request.prompt = std::move(prompt);
  request.sampling().max_tokens = max_tokens;
  request.sampling().method = request::Sampling{.temperature = 0};
  return request;
}

std::vector<Token> words(size_t count, uint32_t seed) {
  std::vector<Token> out;
  for (uint32_t state = seed * 2654435761u + 1; out.size() < count;) {
    state = state * 1664525u + 1013904223u;
    out.push_back(static_cast<Token>(3 + (state >> 16) % 88));
  }
  return out;
}

std::vector<Token> few_words(size_t count, uint32_t seed) {
  std::vector<Token> tokens = words(count, seed);
  for (Token& token : tokens) token = 3 + token % 60;
  return tokens;
}

}  // namespace sluice::runtime::test
