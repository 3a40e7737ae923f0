// The bytes behind the KV manager's blocks: one paged array per layer that owns KV, grouped by attention window, and one
// array of slots per layer that keeps a state.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/async_device.h"
#include "kernels/backend.h"
#include "kv/kv_manager.h"
#include "models/spec.h"
#include "runtime/batch.h"
#include "sched/options.h"

namespace sluice::runtime {

// Layers with the same window share block tables; group 0 is the one without a window where there is any.
struct KvGroups {
  std::vector<int> windows;   // per group of layers with KV
  std::optional<int> states;  // the group of layers that keep a state, behind those
  std::vector<int>
      group_of_layer;  // per layer, of its KV; of its state where it has none; -1: it keeps nothing

  size_t count() const { return windows.size() + (states ? 1 : 0); }
};
KvGroups kv_groups(std::span<const models::LayerState> states);
KvGroups kv_groups(const models::ModelSpec& spec);

// What the scheduler is to know of a model whose keys depend on the length of the sequence.
sched::RopeSets rope_sets(const models::ModelSpec& spec);

struct KvMemoryOptions {
  int block_size = 16;
  DType type = DType::F16;
  std::vector<int> blocks;  // per group
  // Ranks that each keep an equal part of the positions of every block; of the keys of indexers, and of states, each keeps all.
  int shares = 1;
};

class KvMemory {
 public:
  KvMemory(std::span<const models::LayerState> states, kernels::Backend& backend,
           const KvMemoryOptions& options);
  KvMemory(const models::ModelSpec& spec, kernels::Backend& backend, const KvMemoryOptions& options)
      : KvMemory(models::layer_states(spec), backend, options) {}

  // Per layer, with the table index of its group; layers that read another's KV have that one's views, layers with a state
  // have none.
  std::span<const kernels::PagedKv> layers() const { return layers_; }
  // Per layer: [slots, shape of its state], f32; empty where it keeps none.
  std::span<const TensorView> states() const { return states_; }
  // The group of states among the block tables.
  bool is_state(int group) const { return group == state_group_; }
  std::optional<StateGroup> state_group() const {
    if (state_group_ < 0) return std::nullopt;
    return StateGroup{state_group_, options_.block_size};
  }
  int block_size() const { return options_.block_size; }
  int64_t bytes() const { return bytes_; }
  bool on_host() const { return arrays_.empty() || arrays_.front().view.device == Device::Cpu; }
  // Bytes of one block of a group, over all its layers.
  int64_t block_bytes(int group) const { return block_bytes_[static_cast<size_t>(group)]; }

  void copy_block(int group, BlockId from, BlockId to);
  // Host memory that blocks can be read to and written from.
  std::shared_ptr<std::byte> allocate_host(size_t bytes) const;
  // One block's bytes of all layers of a group, to and from such memory of block_bytes(group). Where the blocks lie on a
  // device this happens beside its work, in the order of the calls: settle() before the host looks at what was read, or
  // writes over what was to be written.
  void read_block(int group, BlockId block, std::byte* out) const;
  void write_block(int group, BlockId block, const std::byte* in);
  void synchronize() const;

 private:
  // Arrays whose first dimension is the block, block after block without gaps, of the layers that own memory.
  struct Array {
    int group;
    TensorView view;
  };
  TensorView add_array(int group, kernels::Memory memory);
  kernels::PagedKv add_kv(int group, const models::PagedKv& kv);
  TensorView add_state(int group, const models::Recurrent& state);
  std::vector<kernels::AsyncDevice::Piece> pieces_of(int group, BlockId block) const;

  KvMemoryOptions options_;
  kernels::Backend& backend_;
  std::vector<kernels::PagedKv> layers_;
  std::vector<TensorView> states_;
  int state_group_ = -1;
  std::vector<kernels::Memory> memory_;
  std::vector<Array> arrays_;
  std::vector<std::vector<size_t>> owners_by_group_;  // layers that own memory
  std::vector<int64_t> block_bytes_;
  int64_t bytes_ = 0;
};

}  // namespace sluice::runtime
