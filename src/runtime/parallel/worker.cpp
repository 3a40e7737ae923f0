#include "runtime/parallel/worker.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <vector>

#include "base/check.h"
#include "runtime/model_runner.h"

namespace sluice::runtime {

namespace {

void start_runner(const models::Model& model, OrderReader& order, std::unique_ptr<ModelRunner>& runner) {
  const MemoryOrder wanted = get_memory(order);
  runner.reset();
  Result<std::unique_ptr<ModelRunner>> made = ModelRunner::make(model, wanted.memory, wanted.tiers);
  if (!made) throw dist::GroupFailure(made.error().message);
  runner = std::move(*made);
}

void follow(const models::Model& model, std::span<const std::byte> bytes,
            std::unique_ptr<ModelRunner>& runner) {
  OrderReader order(bytes);
  const auto kind = static_cast<Order>(order.number());
  if (kind == Order::Start) return start_runner(model, order, runner);
  if (runner == nullptr) throw dist::GroupFailure("rank 0 runs a pass before it has started");
  ModelRunner::Rows rows;
  switch (kind) {
    case Order::Forward:
      return runner->forward(ReceivedPass(order).pass);
    case Order::Read: {
      const ModelRunner::Wanted wanted{.logits = order.number() != 0, .hidden = order.number() != 0};
      return runner->read(order.list(), wanted, rows);
    }
    case Order::Move:
      return runner->move(get_moves(order));
    case Order::Time:
      return runner->time_steps();
    case Order::Times:
      runner->step_times();
      return;
    case Order::Start:
    case Order::Cut:
      break;
  }
  throw dist::GroupFailure(fmt::format("rank 0 gives an order of kind {}", static_cast<int>(kind)));
}

// Of an order to cut the model otherwise; empty: it is another one.
std::vector<int> stage_layers_of(std::span<const std::byte> bytes) {
  OrderReader order(bytes);
  if (static_cast<Order>(order.number()) != Order::Cut) return {};
  const std::span<const int32_t> layers = order.list();
  return {layers.begin(), layers.end()};
}

}  // namespace

Status run_worker(const models::Model& model) {
  const Result<std::vector<int>> ended = run_worker_until_cut(model);
  if (!ended) return ended.error();
  SLUICE_CHECK(ended->empty());
  return {};
}

Result<std::vector<int>> run_worker_until_cut(const models::Model& model) {
  models::ModelGroup& group = *model.group;
  std::unique_ptr<ModelRunner> runner;
  try {
    for (;;) {
      const std::vector<std::byte> order = group.world().receive_message(0);
      if (order.empty()) return std::vector<int>();
      group.expect_all();
      if (std::vector<int> layers = stage_layers_of(order); !layers.empty()) return layers;
      follow(model, order, runner);
    }
  } catch (const std::exception& problem) {
    group.abandon();
    return Error{ErrorCode::Unavailable, fmt::format("rank {}: {}", group.world().rank(), problem.what())};
  }
}

}  // namespace sluice::runtime
