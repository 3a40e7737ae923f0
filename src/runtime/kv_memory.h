// The bytes behind the KV manager's blocks: one paged array per layer that owns KV, grouped by attention window.
#pragma once

#include <memory>
#include <vector>

#include "kernels/async_device.h"
#include "kernels/backend.h"
#include "kv/kv_manager.h"
#include "models/spec.h"
#include "sched/options.h"

namespace sluice::runtime {

// Layers with the same window share block tables; group 0 is the one without a window where there is any.
struct KvGroups {
  std::vector<int> windows;         // per group
  std::vector<int> group_of_layer;  // per layer
};
KvGroups kv_groups(const models::ModelSpec& spec);

// What the scheduler is to know of a model whose keys depend on the length of the sequence.
sched::RopeSets rope_sets(const models::ModelSpec& spec);

struct KvMemoryOptions {
  int block_size = 16;
  DType type = DType::F16;
  std::vector<int> blocks;  // per group
};

class KvMemory {
 public:
  KvMemory(const models::ModelSpec& spec, kernels::Backend& backend, const KvMemoryOptions& options);

  // Per layer, with the table index of its group; layers that read another's KV have that one's views.
  std::span<const kernels::PagedKv> layers() const { return layers_; }
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
  void add_array(int group, kernels::Memory memory);
  std::vector<kernels::AsyncDevice::Piece> pieces_of(int group, BlockId block) const;

  KvMemoryOptions options_;
  kernels::Backend& backend_;
  std::vector<kernels::PagedKv> layers_;
  std::vector<kernels::Memory> memory_;
  std::vector<Array> arrays_;
  std::vector<std::vector<size_t>> owners_by_group_;  // layers that own memory
  std::vector<int64_t> block_bytes_;
  int64_t bytes_ = 0;
};

}  // namespace sluice::runtime
