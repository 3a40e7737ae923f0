#include "runtime/model_runner.h"

#include <fmt/format.h>

#include "base/log.h"

namespace sluice::runtime {

namespace {

int context_ranks(const models::Model& model) {
  return model.group ? model.group->placement().context.size : 1;
}

constexpr int64_t kMostRecordedDecode = 512;  // tokens of a pass of ranks on devices

KvMemoryOptions own_share(KvMemoryOptions memory, const models::Model& model) {
  memory.shares = context_ranks(model);
  return memory;
}

}  // namespace

ModelRunner::ModelRunner(const models::Model& model, const KvMemoryOptions& memory)
    : model_(model),
      decoder_(model.spec(), model.weights, *model.backend, model.group.get()),
      memory_(model.spec(), *model.backend, own_share(memory, model)) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::make(const models::Model& model,
                                                       const KvMemoryOptions& memory,
                                                       const TierOptions& tiers) {
  if (memory.block_size % context_ranks(model) != 0)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--block-size is {}, which {} ranks (--cp) cannot share equally",
                             memory.block_size, context_ranks(model))};
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(model, memory));
  if (models::ModelGroup* group = runner->followers()) {
    OrderWriter order(Order::Start);
    put_memory(order, memory, tiers);
    order.send(*group);
  }
  Result<std::unique_ptr<BlockMover>> mover = BlockMover::make(runner->memory_, tiers);
  if (!mover) return mover.error();
  runner->mover_ = std::move(*mover);
  return runner;
}

models::ModelGroup* ModelRunner::followers() const {
  return model_.group && model_.group->leads() ? model_.group.get() : nullptr;
}

void ModelRunner::move(std::span<const request::BlockMove> moves) {
  if (moves.empty()) return;
  if (models::ModelGroup* group = followers()) {
    OrderWriter order(Order::Move);
    put_moves(order, moves);
    order.send(*group);
  }
  mover_->run(moves);
}

void ModelRunner::forward(Batch& batch, std::optional<std::span<const int32_t>> rows) {
  forward({.tokens = batch.tokens(),
           .batch = batch.view(),
           .states = batch.state_view(),
           .rows = rows,
           .embedded = batch.embedded()});
}

void ModelRunner::forward(const Pass& pass) {
  if (models::ModelGroup* group = followers()) {
    OrderWriter order(Order::Forward);
    put_pass(order, pass);
    order.send(*group);
  }
  const auto run = [&] {
    decoder_.forward({.tokens = pass.tokens,
                      .batch = pass.batch,
                      .kv = memory_.layers(),
                      .states = memory_.states(),
                      .state_batch = pass.states,
                      .rows = pass.rows,
                      .embedded = pass.embedded});
  };
  if (is_recorded(pass)) {
    model_.backend->async_device()->run_step(run);
  } else {
    run();
  }
  tell_scratch(pass.tokens.size());
}

// Decode: a token of each sequence. Streams between stages go by way of the host, which no recorded step does.
bool ModelRunner::is_recorded(const Pass& pass) const {
  if (!model_.group || model_.backend->async_device() == nullptr) return false;
  return model_.group->placement().stage.whole() && pass.embedded.empty() &&
         pass.batch.tokens() == pass.batch.sequences() && pass.batch.tokens() <= kMostRecordedDecode;
}

void ModelRunner::tell_scratch(size_t tokens) {
  if (!model_.group || decoder_.scratch_bytes() <= told_scratch_) return;
  told_scratch_ = decoder_.scratch_bytes();
  log_debug("rank {}: {} bytes of scratch memory after a step of {} tokens", model_.group->world().rank(),
            told_scratch_, tokens);
}

void ModelRunner::read(std::span<const int32_t> rows, Wanted wanted, Rows& out) {
  if (models::ModelGroup* group = followers()) {
    OrderWriter order(Order::Read);
    order.put(wanted.logits ? 1 : 0);
    order.put(wanted.hidden ? 1 : 0);
    order.put(rows);
    order.send(*group);
  }
  const models::Placement placement = model_.group ? model_.group->placement() : models::Placement();
  if (!placement.last_stage()) return hand_over(rows.size(), wanted, out);
  const auto count = static_cast<int64_t>(rows.size());
  const auto fetch = [&](std::vector<float>& to, TensorView from) {
    to.resize(static_cast<size_t>(from.elements()));
    model_.backend->download(TensorView::contiguous(to.data(), DType::F32, {count, from.dim(1)}), from);
  };
  if (wanted.tapped) fetch(out.tapped, decoder_.tapped(rows));
  if (wanted.stream) fetch(out.stream, decoder_.stream(rows));
  if (!wanted.hidden && !wanted.logits) return;
  const TensorView hidden = decoder_.hidden(rows);
  if (wanted.hidden) fetch(out.hidden, hidden);
  if (wanted.logits) {
    const TensorView logits = decoder_.logits(hidden);
    if (placement.tensor.index == 0) fetch(out.logits, logits);
  }
  if (model_.group) model_.group->expect_all();
  hand_over(rows.size(), wanted, out);
}

void ModelRunner::hand_over(size_t rows, Wanted wanted, Rows& out) {
  const int last = model_.group ? model_.group->last_rank() : 0;
  if (last == 0) return;
  dist::Communicator& world = model_.group->world();
  const auto pass_on = [&](bool is_wanted, std::vector<float>& values, int width) {
    if (!is_wanted) return;
    if (world.rank() == last) world.send(0, std::as_bytes(std::span(values)));
    if (world.rank() != 0) return;
    values.resize(rows * static_cast<size_t>(width));
    world.receive(last, std::as_writable_bytes(std::span(values)));
  };
  pass_on(wanted.hidden, out.hidden, model_.spec().dim);
  pass_on(wanted.logits, out.logits, model_.spec().vocab);
}

}  // namespace sluice::runtime
