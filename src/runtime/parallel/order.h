// What the leader of a group tells the other ranks: the passes of its model runner. A request::Step names positions and the
// tokens are known to whoever samples them, rank 0; so what travels is the step as it is run: tokens, positions and block
// tables of its batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/recurrent.h"
#include "models/decoder/decoder.h"
#include "models/model_group.h"
#include "request/block_move.h"
#include "runtime/memory/block_mover.h"
#include "runtime/memory/kv_memory.h"

namespace sluice::runtime {

// One forward pass. Spans of whoever made it.
struct Pass {
  std::span<const Token> tokens;
  kernels::RaggedBatch batch;
  kernels::StateBatch states;
  std::optional<std::span<const int32_t>> rows;      // as in models::StepInput
  std::span<const models::EmbeddedRows> embedded{};  // never of a group: its models read text alone
};

enum class Order : int32_t {
  Start,
  Forward,
  Read,
  Move,
  Time,   // parts of steps are timed from here on
  Times,  // the times of its parts go to rank 0
  Cut     // the layers of every stage: where there are any, the model is loaded again, cut by them
};

// An order as 32-bit words: its kind, then numbers and lists, each with its length before it.
class OrderWriter {
 public:
  explicit OrderWriter(Order order) { put(static_cast<int32_t>(order)); }
  void put(int32_t number) { words_.push_back(number); }
  void put(std::span<const int32_t> list);
  // To every other rank of the group, which follows when it comes to it.
  void send(models::ModelGroup& group) const;

 private:
  std::vector<int32_t> words_;
};

// Lists are views of the bytes. Throws dist::GroupFailure where an order ends too early.
class OrderReader {
 public:
  // REQUIRES: bytes are aligned for words and outlive the reader.
  explicit OrderReader(std::span<const std::byte> bytes);
  int32_t number();
  std::span<const int32_t> list();

 private:
  std::span<const int32_t> words_;
};

void put_pass(OrderWriter& order, const Pass& pass);
void put_memory(OrderWriter& order, const KvMemoryOptions& memory, const TierOptions& tiers);
void put_moves(OrderWriter& order, std::span<const request::BlockMove> moves);

// A pass with what its views need. Neither copied nor moved.
struct ReceivedPass {
  explicit ReceivedPass(OrderReader& order);
  ReceivedPass(const ReceivedPass&) = delete;
  ReceivedPass& operator=(const ReceivedPass&) = delete;

  Pass pass;

 private:
  std::vector<kernels::RaggedBatch::BlockTable> tables_;
  std::vector<kernels::StateBatch::Save> saves_;
};

struct MemoryOrder {
  KvMemoryOptions memory;
  TierOptions tiers;
};
MemoryOrder get_memory(OrderReader& order);
std::vector<request::BlockMove> get_moves(OrderReader& order);

}  // namespace sluice::runtime
