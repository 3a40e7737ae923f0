#include "runtime/parallel/order.h"

#include <fmt/format.h>

namespace sluice::runtime {

void OrderWriter::put(std::span<const int32_t> list) {
  put(static_cast<int32_t>(list.size()));
  words_.insert(words_.end(), list.begin(), list.end());
}

void OrderWriter::send(models::ModelGroup& group) const {
  for (int rank = 1; rank < group.world().size(); ++rank)
    group.world().post_message(rank, std::as_bytes(std::span(words_)));
}

OrderReader::OrderReader(std::span<const std::byte> bytes)
    : words_(reinterpret_cast<const int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)) {}

int32_t OrderReader::number() {
  if (words_.empty()) throw dist::GroupFailure("an order of rank 0 ends too early");
  const int32_t number = words_.front();
  words_ = words_.subspan(1);
  return number;
}

std::span<const int32_t> OrderReader::list() {
  const auto length = static_cast<size_t>(number());
  if (length > words_.size())
    throw dist::GroupFailure(
        fmt::format("an order of rank 0 has a list of {} words, {} are left", length, words_.size()));
  const std::span<const int32_t> list = words_.first(length);
  words_ = words_.subspan(length);
  return list;
}

void put_pass(OrderWriter& order, const Pass& pass) {
  order.put(pass.tokens);
  order.put(pass.batch.query_begin);
  order.put(pass.batch.positions);
  order.put(pass.batch.rope_lengths);
  order.put(static_cast<int32_t>(pass.batch.tables.size()));
  for (const kernels::RaggedBatch::BlockTable& table : pass.batch.tables) {
    order.put(table.width);
    order.put(table.blocks);
  }
  order.put(pass.states.query_begin);
  order.put(pass.states.from);
  order.put(pass.states.save_begin);
  order.put(static_cast<int32_t>(pass.states.saves.size()));
  for (const kernels::StateBatch::Save& save : pass.states.saves) {
    order.put(save.tokens);
    order.put(save.slot);
  }
  order.put(pass.rows ? 1 : 0);
  if (pass.rows) order.put(*pass.rows);
}

ReceivedPass::ReceivedPass(OrderReader& order) {
  pass.tokens = order.list();
  pass.batch.query_begin = order.list();
  pass.batch.positions = order.list();
  pass.batch.rope_lengths = order.list();
  for (int32_t left = order.number(); left > 0; --left) {
    const int32_t width = order.number();
    tables_.push_back({.blocks = order.list(), .width = width});
  }
  pass.batch.tables = tables_;
  pass.states.query_begin = order.list();
  pass.states.from = order.list();
  pass.states.save_begin = order.list();
  for (int32_t left = order.number(); left > 0; --left) {
    const int32_t tokens = order.number();
    saves_.push_back({.tokens = tokens, .slot = order.number()});
  }
  pass.states.saves = saves_;
  if (order.number() != 0) pass.rows = order.list();
}

void put_memory(OrderWriter& order, const KvMemoryOptions& memory, const TierOptions& tiers) {
  order.put(memory.block_size);
  order.put(static_cast<int32_t>(memory.type));
  order.put(memory.blocks);
  order.put(tiers.host_blocks);
}

MemoryOrder get_memory(OrderReader& order) {
  const auto copy = [](std::span<const int32_t> list) { return std::vector<int>(list.begin(), list.end()); };
  MemoryOrder out;
  out.memory.block_size = order.number();
  out.memory.type = static_cast<DType>(order.number());
  out.memory.blocks = copy(order.list());
  out.tiers.host_blocks = copy(order.list());
  out.tiers.disk_blocks.assign(out.tiers.host_blocks.size(), 0);
  return out;
}

void put_moves(OrderWriter& order, std::span<const request::BlockMove> moves) {
  order.put(static_cast<int32_t>(moves.size()));
  for (const request::BlockMove& move : moves) {
    order.put(move.group);
    for (const request::Place& place : {move.from, move.to}) {
      order.put(static_cast<int32_t>(place.tier));
      order.put(place.block.value);
    }
  }
}

std::vector<request::BlockMove> get_moves(OrderReader& order) {
  std::vector<request::BlockMove> moves;
  for (int32_t left = order.number(); left > 0; --left) {
    request::BlockMove& move = moves.emplace_back();
    move.group = order.number();
    for (request::Place* place : {&move.from, &move.to}) {
      place->tier = static_cast<request::Tier>(order.number());
      place->block = BlockId{order.number()};
    }
  }
  return moves;
}

}  // namespace sluice::runtime
