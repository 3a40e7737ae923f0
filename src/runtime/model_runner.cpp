#include "runtime/model_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/check.h"
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

void ModelRunner::time_steps() {
  if (models::ModelGroup* group = followers()) OrderWriter(Order::Time).send(*group);
  decoder_.time_steps(&clock_.emplace(model_.spec().layers.size()));
}

std::vector<models::PartTimes> ModelRunner::step_times() {
  SLUICE_CHECK(clock_.has_value());
  std::vector<models::PartTimes> all{clock_->times()};
  if (!model_.group) return all;
  dist::Communicator& world = model_.group->world();
  if (!model_.group->leads()) {
    std::vector<double> own = clock_->times().layers;
    own.push_back(clock_->times().logits);
    world.send_message(0, std::as_bytes(std::span(own)));
    return all;
  }
  OrderWriter(Order::Times).send(*model_.group);
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::vector<std::byte> bytes = world.receive_message(rank);
    if (bytes.size() < sizeof(double))
      throw dist::GroupFailure(fmt::format("rank {} sends no times of its layers", rank));
    std::vector<double> numbers(bytes.size() / sizeof(double));
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
    const double logits = numbers.back();
    numbers.pop_back();
    all.push_back({std::move(numbers), logits});
  }
  return all;
}

void ModelRunner::tell_scratch(size_t tokens) {
  if (!model_.group || decoder_.scratch_bytes() <= told_scratch_) return;
  told_scratch_ = decoder_.scratch_bytes();
  log_debug("rank {}: {} bytes of scratch memory after a step of {} tokens", model_.group->world().rank(),
            told_scratch_, tokens);
}

void ModelRunner::order_rows(std::span<const int32_t> rows, Wanted wanted) {
  models::ModelGroup* group = followers();
  if (group == nullptr) return;
  OrderWriter order(Order::Read);
  order.put(wanted.logits ? 1 : 0);
  order.put(wanted.hidden ? 1 : 0);
  order.put(rows);
  order.send(*group);
}

void ModelRunner::ask(std::span<const int32_t> rows, Wanted wanted) {
  SLUICE_CHECK(followers() != nullptr && steps_in_flight() > 1);
  order_rows(rows, wanted);
  asked_.push_back({rows.size(), wanted});
}

void ModelRunner::take(Rows& out) {
  SLUICE_CHECK(!asked_.empty());
  const Asked oldest = asked_.front();
  asked_.pop_front();
  receive_rows(oldest.rows, oldest.wanted, out);
}

void ModelRunner::drop_asked() {
  if (model_.group && model_.group->abandoned()) asked_.clear();
  Rows nobodys;
  while (!asked_.empty()) take(nobodys);
}

ModelRunner::~ModelRunner() {
  try {
    drop_asked();
  } catch (const std::exception& problem) {
    log_error("{}", problem.what());
    model_.group->abandon();
  }
}

void ModelRunner::read(std::span<const int32_t> rows, Wanted wanted, Rows& out) {
  SLUICE_CHECK(asked_.empty());
  order_rows(rows, wanted);
  const models::Placement placement = model_.group ? model_.group->placement() : models::Placement();
  if (!placement.last_stage()) return receive_rows(rows.size(), wanted, out);
  const auto count = static_cast<int64_t>(rows.size());
  const auto fetch = [&](std::vector<float>& to, TensorView from) {
    to.resize(static_cast<size_t>(from.elements()));
    model_.backend->download(TensorView::contiguous(to.data(), DType::F32, {count, from.dim(1)}), from);
  };
  if (wanted.tapped) fetch(out.tapped, decoder_.tapped(rows));
  if (wanted.stream) fetch(out.stream, decoder_.stream(rows));
  if (!wanted.hidden && !wanted.logits) return;
  const TensorView hidden = decoder_.hidden(rows);
  const bool sends_hidden = wanted.hidden || shares_logits();
  if (sends_hidden) fetch(out.hidden, hidden);
  // Rank 0 computes its share of the logits meanwhile, but where it waits for the cores.
  const bool at_once = !model_.group || !model_.group->takes_turns();
  if (sends_hidden && at_once) post_rows(out.hidden);
  TensorView logits;
  if (wanted.logits) {
    logits = decoder_.logits(hidden);
    const bool is_sent = model_.group && model_.group->last_rank() != 0;
    // Host memory is sent from where it lies.
    if (placement.tensor.index == 0 && (!is_sent || model_.backend->async_device() != nullptr)) {
      fetch(out.logits, logits);
      logits = TensorView::contiguous(out.logits.data(), DType::F32, {count, logits.dim(1)});
    }
  }
  if (model_.group) model_.group->end_turn();
  if (sends_hidden && !at_once) post_rows(out.hidden);
  if (model_.group) model_.group->expect_all();
  if (!wanted.logits || placement.tensor.index > 0) return;
  // A message for each row, which its receiver takes straight to the row's place.
  for (int64_t row = 0; row < count; ++row)
    post_rows({logits.at<float>(row, 0), static_cast<size_t>(logits.dim(1))});
}

bool ModelRunner::shares_logits() const {
  if (!model_.group || model_.group->last_rank() == 0) return false;
  const models::Placement& placement = model_.group->placement();
  const int64_t own = model_.weights.output.rows;
  return placement.tensor.whole() && own > 0 && own < model_.spec().vocab;
}

void ModelRunner::post_rows(std::span<const float> values) {
  if (!model_.group || model_.group->last_rank() == 0) return;
  dist::Communicator& world = model_.group->world();
  if (world.rank() == model_.group->last_rank()) world.post(0, std::as_bytes(values));
}

void ModelRunner::receive_rows(size_t rows, Wanted wanted, Rows& out) {
  dist::Communicator& world = model_.group->world();
  if (world.rank() != 0) return;
  const auto receive = [&](std::vector<float>& values, int64_t width) {
    values.resize(rows * static_cast<size_t>(width));
    world.receive(model_.group->last_rank(), std::as_writable_bytes(std::span(values)));
  };
  const int64_t dim = model_.spec().dim, vocab = model_.spec().vocab, own = model_.weights.output.rows;
  std::vector<float>& hidden = wanted.hidden ? out.hidden : last_hidden_;
  if (wanted.hidden || (wanted.logits && shares_logits())) receive(hidden, dim);
  if (!wanted.logits) return;
  out.logits.resize(rows * static_cast<size_t>(vocab));
  const auto count = static_cast<int64_t>(rows);
  const TensorView all = TensorView::contiguous(out.logits.data(), DType::F32, {count, vocab});
  const int64_t first = shares_logits() ? own : 0;
  if (first > 0)
    model_.backend->copy(all.columns(0, first),
                         decoder_.logits(TensorView::contiguous(hidden.data(), DType::F32, {count, dim})));
  for (int64_t row = 0; row < count; ++row) {
    const auto bytes = static_cast<size_t>(vocab - first) * sizeof(float);
    world.receive(model_.group->last_rank(),
                  {reinterpret_cast<std::byte*>(all.at<float>(row, first)), bytes});
  }
}

}  // namespace sluice::runtime
