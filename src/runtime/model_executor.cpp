#include "runtime/model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

#include "base/system/memory.h"

namespace sluice::runtime {

namespace {

constexpr auto kFileCheckInterval = std::chrono::milliseconds(100);
// What requests are told; reset() names the file.
Error files_changed() {
  return {ErrorCode::Internal, "the step failed: the model's file changed on disk"};
}

// What the step fails with, where anything is thrown.
template <class Body>
std::optional<Error> failure_of(Body body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Internal, fmt::format("the step failed: {}", problem.what())};
  }
  return std::nullopt;
}

Status can_contrast(const models::ModelSpec& model, const models::ModelSpec& amateur) {
  if (amateur.vocab != model.vocab)
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the amateur has a vocabulary of {}, the model of {}", amateur.vocab, model.vocab)};
  if (rope_sets(amateur) != rope_sets(model))
    return Error{ErrorCode::Unsupported, "the amateur's rope changes at other lengths than the model's"};
  if (kv_groups(amateur).windows != kv_groups(model).windows)
    return Error{ErrorCode::Unsupported, "the amateur's attention windows differ from the model's"};
  if (kv_groups(amateur).states != kv_groups(model).states)
    return Error{ErrorCode::Unsupported, "only one of amateur and model has layers that keep a state"};
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::make(const models::Model& model,
                                                           const models::Model* amateur,
                                                           const ExecutorOptions& options) {
  auto executor = std::unique_ptr<ModelExecutor>(new ModelExecutor(model));
  try {
    if (Status status = executor->set_up(amateur, options); !status) return status.error();
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Unavailable, fmt::format("cannot start: {}", problem.what())};
  }
  return executor;
}

Status ModelExecutor::set_up(const models::Model* amateur, const ExecutorOptions& options) {
  padding_ = options.padding;
  const bool spare = options.padding || model_.backend->async_device() != nullptr;
  std::unique_ptr<StepRunner> target, contrast;
  // The groups of states, which are last, are left out where the model keeps none.
  const auto make = [&](const models::Model& model, std::unique_ptr<StepRunner>& out) -> Status {
    const size_t groups = kv_groups(model.spec()).count();
    KvMemoryOptions memory = options.memory;
    TierOptions tiers = options.tiers;
    for (std::vector<int>* blocks : {&memory.blocks, &tiers.host_blocks, &tiers.disk_blocks})
      blocks->resize(std::min(blocks->size(), groups));
    Result<std::unique_ptr<StepRunner>> made = StepRunner::make(model, memory, tiers, spare);
    if (!made) return made.error();
    out = std::move(*made);
    return {};
  };
  if (Status made = make(model_, target); !made) return made;
  if (amateur != nullptr) {
    if (Status status = can_contrast(model_.spec(), amateur->spec()); !status) return status;
    if (Status made = make(*amateur, contrast); !made) return made;
  }
  std::unique_ptr<StepRunner> draft;
  if (const models::Model* guesses = options.head != nullptr ? options.head->model.get() : options.draft) {
    if (Status status = DraftModel::check(guesses->spec(), model_.spec()); !status) return status;
    if (Status made = make(*guesses, draft); !made) return made;
  }
  alone_ = contrast == nullptr && draft == nullptr;
  memory_ = &target->runner().memory();
  pipeline_.emplace(std::move(target), std::move(contrast),
                    StepPipeline::Options{options.eos_tokens, options.grammars, options.speculation,
                                          std::move(draft), options.head, options.picture_bytes});
  if (pipeline_->ahead() == nullptr || options.warm_up.tokens <= 0) return {};
  std::vector<WarmUp> all;
  const auto add = [&](StepRunner& model, bool drafts) {
    const std::span<const BlockId> blocks = model.spare_blocks();
    all.push_back({*pipeline_->ahead(), model.runner(), {blocks.begin(), blocks.end()}, drafts});
  };
  add(pipeline_->target(), false);
  if (pipeline_->draft() != nullptr && options.head == nullptr) add(pipeline_->draft()->runner(), true);
  for (const WarmUp& warm : all) run_largest_step(warm, options.warm_up);
  run_common_steps(all, options.warm_up);
  return {};
}

Status ModelExecutor::check_files() {
  const TimePoint now = Clock::now();
  if (!files_ || now - files_checked_ < kFileCheckInterval) return files_;
  files_checked_ = now;
  files_ = model_.files.tensors.unchanged();
  if (files_ && pipeline_->draft() != nullptr) files_ = pipeline_->draft()->model().files.tensors.unchanged();
  StepRunner* contrast = pipeline_->contrast();
  if (files_ && contrast != nullptr) files_ = contrast->runner().model().files.tensors.unchanged();
  return files_;
}

void ModelExecutor::submit(const request::Step& step) {
  SLUICE_CHECK(!step.padding || padding_);
  Submitted now;
  now.failure = check_files() ? failure_of([&] { pipeline_->run(step, submitted_, now); }) : files_changed();
  if (now.failure && !step_failure_) step_failure_ = now.failure->message;
  submitted_.push_back(std::move(now));
}

Result<std::vector<request::Outcome>> ModelExecutor::collect() {
  SLUICE_CHECK(!submitted_.empty());
  Submitted oldest = std::move(submitted_.front());
  submitted_.pop_front();
  if (!oldest.failure) oldest.failure = failure_of([&] { pipeline_->synchronize(oldest); });
  if (oldest.failure && !step_failure_) step_failure_ = oldest.failure->message;
  if (!check_files()) return files_changed();
  if (oldest.failure) return *oldest.failure;
  return std::move(oldest.outcomes);
}

std::vector<int64_t> ModelExecutor::block_bytes() const {
  const KvGroups groups = kv_groups(model_.spec());
  if (model_.group || !alone_ || rope_sets(model_.spec()).count > 1) return {};
  std::vector<int64_t> bytes;
  for (size_t group = 0; group < groups.count(); ++group)
    bytes.push_back(memory_->block_bytes(static_cast<int>(group)));
  return bytes;
}

bool ModelExecutor::read_block(int group, request::Place place, std::span<std::byte> out) {
  return pipeline_->target().runner().mover().read_block(group, place, out);
}

void ModelExecutor::write_blocks(std::span<const request::BlockMove> moves,
                                 std::span<const sched::BlockWrite> writes) {
  ModelRunner& runner = pipeline_->target().runner();
  runner.move(moves);
  for (const sched::BlockWrite& write : writes)
    runner.mover().write_block(write.group, write.block, write.bytes);
}

int ModelExecutor::even_step_tokens() const {
  return static_cast<int>(model_.backend->even_step_tokens());
}

Status ModelExecutor::alive() const {
  const std::optional<std::string> lost = model_.group ? model_.group->world().failure() : std::nullopt;
  return lost ? Status(Error{ErrorCode::Unavailable, *lost}) : Status();
}

Status ModelExecutor::reset() {
  submitted_.clear();
  if (model_.group && step_failure_) model_.group->abandon();
  const std::optional<Error> lost = failure_of([&] { pipeline_->clear(); });
  if (lost && !step_failure_) step_failure_ = lost->message;
  if (model_.group && step_failure_) {
    model_.group->abandon();
    return Error{ErrorCode::Unavailable, fmt::format("{}; the ranks cannot go on together", *step_failure_)};
  }
  if (!files_) return files_;
  if (pipeline_->ahead() == nullptr) return {};
  if (const std::string reason = pipeline_->ahead()->device().failure(); !reason.empty())
    return Error{ErrorCode::Unavailable, "the device has failed: " + reason};
  return {};
}

}  // namespace sluice::runtime
