#include "runtime/kv_memory.h"

#include <algorithm>
#include <cstring>

namespace sluice::runtime {

KvGroups kv_groups(const models::ModelSpec& spec) {
  KvGroups groups;
  const std::vector<models::KvLayer> layers = models::kv_layers(spec);
  for (const models::KvLayer& layer : layers) {
    const int window = layers[static_cast<size_t>(layer.owner)].window;
    if (std::find(groups.windows.begin(), groups.windows.end(), window) == groups.windows.end())
      groups.windows.push_back(window);
  }
  std::sort(groups.windows.begin(), groups.windows.end());
  for (const models::KvLayer& layer : layers) {
    const int window = layers[static_cast<size_t>(layer.owner)].window;
    const auto found = std::find(groups.windows.begin(), groups.windows.end(), window);
    groups.group_of_layer.push_back(static_cast<int>(found - groups.windows.begin()));
  }
  return groups;
}

void KvMemory::add_array(int group, kernels::Memory memory) {
  const int64_t per_block = memory.view.bytes() / memory.view.dim(0);
  block_bytes_[static_cast<size_t>(group)] += per_block;
  bytes_ += memory.view.bytes();
  arrays_.push_back({group, memory.view});
  memory_.push_back(std::move(memory));
}

sched::RopeSets rope_sets(const models::ModelSpec& spec) {
  const models::Rope* rope = models::changing_rope(spec);
  if (rope == nullptr) return {};
  const bool recomputed = spec.outgrown == models::Outgrown::Recomputed;
  return {.outgrown = recomputed ? sched::RopeSets::Outgrown::Recomputed : sched::RopeSets::Outgrown::Kept,
          .limit = rope->limit,
          .count = 1 + static_cast<int>(rope->beyond.size() / rope->inverse_frequency.size())};
}

KvMemory::KvMemory(const models::ModelSpec& spec, kernels::Backend& backend, const KvMemoryOptions& options)
    : options_(options), backend_(backend) {
  const std::vector<models::KvLayer> layers = models::kv_layers(spec);
  const KvGroups groups = kv_groups(spec);
  SLUICE_CHECK_EQ(options.blocks.size(), groups.windows.size());
  block_bytes_.assign(groups.windows.size(), 0);
  owners_by_group_.resize(groups.windows.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const models::KvLayer& layer = layers[i];
    const int group = groups.group_of_layer[i];
    kernels::PagedKv kv;
    kv.table = group;
    if (layer.owner != static_cast<int>(i)) {
      kv = layers_[static_cast<size_t>(layer.owner)];
      layers_.push_back(kv);
      continue;
    }
    const int64_t blocks = options.blocks[static_cast<size_t>(group)];
    const auto keep = [&](kernels::Memory memory) {
      const TensorView view = memory.view;
      add_array(group, std::move(memory));
      return view;
    };
    const auto cache = [&](int64_t dim) {
      return keep(backend.allocate_kv(options.type, {blocks, options.block_size, layer.kv_heads, dim}));
    };
    const auto scales = [&] {
      return keep(backend.allocate(DType::F32, {blocks, options.block_size, layer.kv_heads}));
    };
    kv.k = cache(layer.key_dim);
    if (layer.value_in_key) {
      kv.v = kv.k;
      kv.v.shape[3] = layer.value_dim;
    } else {
      kv.v = cache(layer.value_dim);
    }
    if (options.type == DType::I8) {
      kv.k_scales = scales();
      kv.v_scales = layer.value_in_key ? kv.k_scales : scales();
    }
    owners_by_group_[static_cast<size_t>(group)].push_back(i);
    layers_.push_back(kv);
  }
}

void KvMemory::copy_block(int group, BlockId from, BlockId to) {
  const std::pair<BlockId, BlockId> move{from, to};
  for (size_t layer : owners_by_group_[static_cast<size_t>(group)])
    backend_.copy_blocks(layers_[layer], {&move, 1});
}

std::shared_ptr<std::byte> KvMemory::allocate_host(size_t bytes) const {
  if (!on_host()) return backend_.async_device()->allocate_pinned(bytes);
  auto buffer = std::make_shared<HostBuffer>(bytes);
  std::byte* data = buffer->data();
  return {std::move(buffer), data};
}

std::vector<kernels::AsyncDevice::Piece> KvMemory::pieces_of(int group, BlockId block) const {
  std::vector<kernels::AsyncDevice::Piece> pieces;
  for (const Array& array : arrays_) {
    if (array.group != group) continue;
    const auto bytes = static_cast<size_t>(array.view.bytes() / array.view.dim(0));
    pieces.push_back(
        {static_cast<std::byte*>(array.view.data) + static_cast<size_t>(block.value) * bytes, bytes});
  }
  return pieces;
}

void KvMemory::read_block(int group, BlockId block, std::byte* out) const {
  const std::vector<kernels::AsyncDevice::Piece> pieces = pieces_of(group, block);
  if (!on_host()) return backend_.async_device()->copy_to_host(out, pieces);
  for (const kernels::AsyncDevice::Piece& piece : pieces) {
    std::memcpy(out, piece.data, piece.bytes);
    out += piece.bytes;
  }
}

void KvMemory::write_block(int group, BlockId block, const std::byte* in) {
  const std::vector<kernels::AsyncDevice::Piece> pieces = pieces_of(group, block);
  if (!on_host()) return backend_.async_device()->copy_from_host(pieces, in);
  for (const kernels::AsyncDevice::Piece& piece : pieces) {
    std::memcpy(piece.data, in, piece.bytes);
    in += piece.bytes;
  }
}

void KvMemory::synchronize() const {
  if (!on_host()) backend_.async_device()->synchronize();
}

}  // namespace sluice::runtime
