#include "runtime/memory/kv_memory.h"

#include <algorithm>
#include <cstring>

#include "kernels/chosen_attention.h"

namespace sluice::runtime {

KvGroups kv_groups(std::span<const models::LayerState> states) {
  KvGroups groups;
  bool keeps_state = false;
  for (size_t i = 0; i < states.size(); ++i) {
    const models::PagedKv* kv = models::kv_of(states, i);
    keeps_state |= models::recurrent_of(states[i]) != nullptr;
    if (kv != nullptr &&
        std::find(groups.windows.begin(), groups.windows.end(), kv->window) == groups.windows.end())
      groups.windows.push_back(kv->window);
  }
  std::sort(groups.windows.begin(), groups.windows.end());
  if (keeps_state) groups.states = static_cast<int>(groups.windows.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const models::PagedKv* kv = models::kv_of(states, i);
    const auto found = kv == nullptr ? groups.windows.end()
                                     : std::find(groups.windows.begin(), groups.windows.end(), kv->window);
    const bool keeps = kv != nullptr || models::recurrent_of(states[i]) != nullptr;
    groups.group_of_layer.push_back(keeps ? static_cast<int>(found - groups.windows.begin()) : -1);
  }
  return groups;
}

KvGroups kv_groups(const models::ModelSpec& spec) {
  return kv_groups(models::layer_states(spec));
}

TensorView KvMemory::add_array(int group, kernels::Memory memory) {
  const TensorView view = memory.view;
  block_bytes_[static_cast<size_t>(group)] += view.bytes() / view.dim(0);
  bytes_ += view.bytes();
  arrays_.push_back({group, view});
  memory_.push_back(std::move(memory));
  return view;
}

sched::RopeSets rope_sets(const models::ModelSpec& spec) {
  const models::Rope* rope = models::changing_rope(spec);
  if (rope == nullptr) return {};
  const bool recomputed = spec.outgrown == models::Outgrown::Recomputed;
  return {.outgrown = recomputed ? sched::RopeSets::Outgrown::Recomputed : sched::RopeSets::Outgrown::Kept,
          .limit = rope->limit,
          .count = 1 + static_cast<int>(rope->beyond.size() / rope->inverse_frequency.size())};
}

KvMemory::KvMemory(std::span<const models::LayerState> states, kernels::Backend& backend,
                   const KvMemoryOptions& options)
    : options_(options), backend_(backend) {
  const KvGroups groups = kv_groups(states);
  SLUICE_CHECK_EQ(options.blocks.size(), groups.count());
  state_group_ = groups.states.value_or(-1);
  block_bytes_.assign(groups.count(), 0);
  owners_by_group_.resize(groups.count());
  states_.resize(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const int group = groups.group_of_layer[i];
    if (const auto* other = std::get_if<models::KvOf>(&states[i])) {
      layers_.push_back(layers_[static_cast<size_t>(other->layer)]);
      continue;
    }
    const models::PagedKv* kv = models::kv_of(states, i);
    if (kv != nullptr) owners_by_group_[static_cast<size_t>(group)].push_back(i);
    layers_.push_back(kv != nullptr ? add_kv(group, *kv) : kernels::PagedKv());
    if (const models::Recurrent* state = models::recurrent_of(states[i]))
      states_[i] = add_state(state_group_, *state);
  }
}

kernels::PagedKv KvMemory::add_kv(int group, const models::PagedKv& layer) {
  const int64_t blocks = options_.blocks[static_cast<size_t>(group)];
  const int64_t positions = options_.block_size / options_.shares;
  const auto cache_of = [&](int64_t count, int64_t heads, int64_t dim) {
    return add_array(group, backend_.allocate_kv(options_.type, {blocks, count, heads, dim}));
  };
  const auto scales_of = [&](int64_t count, int64_t heads) {
    return add_array(group, backend_.allocate(DType::F32, {blocks, count, heads}));
  };
  const auto cache = [&](int64_t heads, int64_t dim) { return cache_of(positions, heads, dim); };
  const auto scales = [&](int64_t heads) { return scales_of(positions, heads); };
  kernels::PagedKv kv;
  kv.table = group;
  kv.k = cache(layer.kv_heads, layer.key_dim);
  if (layer.value_in_key) {
    kv.v = kv.k;
    kv.v.shape[3] = layer.value_dim;
  } else {
    kv.v = cache(layer.kv_heads, layer.value_dim);
  }
  if (options_.type == DType::I8) {
    kv.k_scales = scales(layer.kv_heads);
    kv.v_scales = layer.value_in_key ? kv.k_scales : scales(layer.kv_heads);
  }
  if (layer.index_dim == 0) return kv;
  kv.index = cache_of(options_.block_size, 1, layer.index_dim);
  if (options_.type == DType::I8) kv.index_scales = scales_of(options_.block_size, 1);
  return kv;
}

TensorView KvMemory::add_state(int group, const models::Recurrent& state) {
  const int64_t slots = options_.blocks[static_cast<size_t>(group)];
  const TensorView flat = add_array(group, backend_.allocate(DType::F32, {slots, state.elements()}));
  std::vector<int64_t> shape{slots};
  shape.insert(shape.end(), state.shape.begin(), state.shape.end());
  return TensorView::contiguous(flat.data, DType::F32, shape, flat.device);
}

void KvMemory::copy_block(int group, BlockId from, BlockId to) {
  if (is_state(group)) {
    for (const Array& array : arrays_)
      if (array.group == group)
        backend_.copy(array.view.rows(to.value, to.value + 1), array.view.rows(from.value, from.value + 1));
    return;
  }
  const std::pair<BlockId, BlockId> move{from, to};
  for (size_t layer : owners_by_group_[static_cast<size_t>(group)]) {
    backend_.copy_blocks(layers_[layer], {&move, 1});
    if (!layers_[layer].index.empty()) backend_.copy_blocks(kernels::index_keys(layers_[layer]), {&move, 1});
  }
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
