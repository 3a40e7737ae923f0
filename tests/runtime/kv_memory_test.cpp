// The bytes behind the blocks: groups by window, shared layers, scales, and round trips through the tiers.
#include "runtime/memory/kv_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "kernels/ref/ref_backend.h"
#include "open_files.h"
#include "runtime/memory/block_mover.h"

namespace sluice::runtime {
namespace {

models::ModelSpec spec_of(std::vector<models::Attention> mixers) {
  models::ModelSpec spec;
  for (models::Attention& mixer : mixers) {
    mixer.heads = 4;
    mixer.kv_heads = 2;
    mixer.head_dim = 8;
    spec.layers.push_back({.mixer = mixer, .ffn = models::DenseFfn{}});
  }
  return spec;
}

// Full attention, a window, one that reads layer 1's KV, another window, one that reads layer 0's.
models::ModelSpec mixed_spec() {
  return spec_of({{}, {.window = 6}, {.window = 6, .kv_from = 1}, {.window = 12}, {.kv_from = 0}});
}

TEST(KvGroups, GatherLayersByWindow) {
  const KvGroups groups = kv_groups(mixed_spec());
  EXPECT_EQ(groups.windows, (std::vector{0, 6, 12}));
  EXPECT_EQ(groups.group_of_layer, (std::vector{0, 1, 1, 2, 0}));
}

TEST(KvGroups, PutAModelWithoutFullAttentionIntoOneGroup) {
  const KvGroups groups = kv_groups(spec_of({{.window = 6}, {.window = 6}}));
  EXPECT_EQ(groups.windows, std::vector{6});
  EXPECT_EQ(groups.group_of_layer, (std::vector{0, 0}));
}

TEST(KvMemory, GivesLayersThatReadAnothersKvNoMemory) {
  kernels::RefBackend backend;
  const KvMemory memory(mixed_spec(), backend, {.block_size = 4, .type = DType::F16, .blocks = {5, 6, 7}});
  const auto layers = memory.layers();
  ASSERT_EQ(layers.size(), 5u);
  EXPECT_EQ(layers[2].k.data, layers[1].k.data);
  EXPECT_EQ(layers[4].v.data, layers[0].v.data);
  EXPECT_EQ(layers[2].table, 1);
  EXPECT_EQ(layers[4].table, 0);
  EXPECT_EQ(layers[3].k.dim(0), 7);
  const int64_t block = 2 * 4 * 2 * 8 * 2;  // k and v, slots, heads, dim, bytes
  for (int group = 0; group < 3; ++group) EXPECT_EQ(memory.block_bytes(group), block);
  EXPECT_EQ(memory.bytes(), block * (5 + 6 + 7));
}

// A hybrid: attention, a state, attention that reads layer 0's KV, another state.
std::vector<models::LayerState> hybrid() {
  const models::PagedKv kv{.kv_heads = 2, .key_dim = 8, .value_dim = 8};
  return {kv, models::Recurrent{{3, 5}}, models::KvOf{0}, models::Recurrent{{7}}};
}

TEST(LayerStates, ChargeForWhatALayerOwns) {
  const std::vector<models::LayerState> states = hybrid();
  EXPECT_EQ(models::kv_bytes_per_token(states, DType::F16), 2 * (8 + 8) * 2);
  EXPECT_EQ(models::state_bytes(states), (3 * 5 + 7) * 4);
  EXPECT_EQ(models::kv_of(states, 2), std::get_if<models::PagedKv>(&states[0]));
  EXPECT_EQ(models::kv_of(states, 1), nullptr);
  const KvGroups groups = kv_groups(states);
  EXPECT_EQ(groups.windows, std::vector{0});
  EXPECT_EQ(groups.states, 1);
  EXPECT_EQ(groups.group_of_layer, (std::vector{0, 1, 0, 1}));
}

TEST(KvMemory, KeepsStatesInSlotsThatMoveAsBlocksDo) {
  kernels::RefBackend backend;
  KvMemory memory(hybrid(), backend, {.block_size = 4, .type = DType::F32, .blocks = {3, 4}});
  EXPECT_EQ(memory.block_bytes(0), 4 * 2 * (8 + 8) * 4);
  EXPECT_EQ(memory.block_bytes(1), (3 * 5 + 7) * 4);
  EXPECT_EQ(memory.layers()[2].k.data, memory.layers()[0].k.data);
  ASSERT_EQ(memory.states().size(), 4u);
  EXPECT_TRUE(memory.states()[0].empty() && memory.states()[2].empty());
  const TensorView first = memory.states()[1], second = memory.states()[3];
  EXPECT_EQ(first.describe(), "F32[4, 3, 5]");
  EXPECT_EQ(second.describe(), "F32[4, 7]");
  *first.at<float>(2, 1, 3) = 5;
  *second.at<float>(2, 6) = 7;
  memory.copy_block(1, BlockId{2}, BlockId{0});
  EXPECT_EQ(*first.at<float>(0, 1, 3), 5);
  EXPECT_EQ(*second.at<float>(0, 6), 7);
  Result<std::unique_ptr<BlockMover>> mover =
      BlockMover::make(memory, {.host_blocks = {1, 1}, .disk_blocks = {0, 0}});
  ASSERT_TRUE(mover.ok());
  using request::Tier;
  (*mover)->run(std::vector<request::BlockMove>{{1, {Tier::Device, BlockId{2}}, {Tier::Host, BlockId{0}}},
                                                {1, {Tier::Host, BlockId{0}}, {Tier::Device, BlockId{3}}}});
  memory.synchronize();
  EXPECT_EQ(*first.at<float>(3, 1, 3), 5);
  EXPECT_EQ(*second.at<float>(3, 6), 7);
}

TEST(KvMemory, CountsTheScalesOfInt8) {
  kernels::RefBackend backend;
  const KvMemory memory(spec_of({{}}), backend, {.block_size = 4, .type = DType::I8, .blocks = {3}});
  EXPECT_EQ(memory.block_bytes(0), 2 * 4 * 2 * (8 + 4));
  EXPECT_EQ(memory.layers()[0].k_scales.dim(2), 2);
}

TEST(KvMemory, KeepsLatentValuesInsideTheirKeys) {
  kernels::RefBackend backend;
  models::ModelSpec spec;
  spec.layers.push_back(
      {.mixer = models::LatentAttention{.heads = 4, .latent = 16, .rope_dim = 8}, .ffn = models::DenseFfn{}});
  const KvMemory memory(spec, backend, {.block_size = 4, .type = DType::F32, .blocks = {3}});
  EXPECT_EQ(memory.block_bytes(0), 4 * 24 * 4);
  EXPECT_EQ(memory.layers()[0].v.data, memory.layers()[0].k.data);
  EXPECT_EQ(memory.layers()[0].v.dim(3), 16);
}

TEST(KvMemory, KeepsAndCopiesTheKeysOfIndexers) {
  kernels::RefBackend backend;
  models::ModelSpec spec;
  spec.layers.push_back(
      {.mixer = models::Attention{.heads = 4, .kv_heads = 2, .head_dim = 8, .indexer = {4, 4, 1, 2, 6}},
       .ffn = models::DenseFfn{}});
  for (const DType type : {DType::F32, DType::I8}) {
    KvMemory memory(spec, backend, {.block_size = 4, .type = type, .blocks = {3}});
    const int64_t numbers = 2 * 2 * 8 + 6, scales = 2 * 2 + 1;
    EXPECT_EQ(memory.block_bytes(0), 4 * (type == DType::F32 ? numbers * 4 : numbers + scales * 4));
    const TensorView index = memory.layers()[0].index;
    EXPECT_EQ(index.dim(2), 1);
    EXPECT_EQ(index.dim(3), 6);
    if (type == DType::I8) {
      memory.layers()[0].index_scales.at<float>(2, 3)[0] = 0.5f;
    } else {
      index.at<float>(2, 3, 0)[5] = 7;
    }
    memory.copy_block(0, BlockId{2}, BlockId{1});
    if (type == DType::I8) {
      EXPECT_EQ(memory.layers()[0].index_scales.at<float>(1, 3)[0], 0.5f);
    } else {
      EXPECT_EQ(index.at<float>(1, 3, 0)[5], 7);
    }
  }
}

class Tiers : public testing::TestWithParam<DType> {
 protected:
  static constexpr int kGroup = 1;

  std::vector<std::byte> pattern(int seed) const {
    std::vector<std::byte> bytes(static_cast<size_t>(memory_.block_bytes(kGroup)));
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>((i * 31 + static_cast<size_t>(seed) * 97) >> 1);
    return bytes;
  }
  std::vector<std::byte> content(int block) const {
    std::vector<std::byte> bytes(static_cast<size_t>(memory_.block_bytes(kGroup)));
    memory_.read_block(kGroup, BlockId{block}, bytes.data());
    return bytes;
  }
  void move(request::Tier from, int a, request::Tier to, int b) {
    const request::BlockMove step{kGroup, {from, BlockId{a}}, {to, BlockId{b}}};
    mover_->run({&step, 1});
  }

  kernels::RefBackend backend_;
  KvMemory memory_{mixed_spec(), backend_, {.block_size = 4, .type = GetParam(), .blocks = {4, 6, 4}}};
  std::unique_ptr<BlockMover> mover_ = std::move(*BlockMover::make(
      memory_, {.host_blocks = {2, 3, 2}, .disk_blocks = {1, 3, 1}, .disk_folder = "/var/tmp"}));
};

using enum request::Tier;

TEST_P(Tiers, BringBackEveryBitByEveryWay) {
  for (int i = 0; i < 3; ++i) memory_.write_block(kGroup, BlockId{i}, pattern(i).data());
  for (int i = 0; i < 3; ++i) move(Device, i, Host, 2 - i);
  for (int i = 0; i < 3; ++i) move(Host, 2 - i, Disk, i);
  for (int i = 0; i < 3; ++i) memory_.write_block(kGroup, BlockId{i}, pattern(50).data());
  for (int i = 0; i < 3; ++i) move(Disk, i, Device, 3 + i);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(content(3 + i), pattern(i)) << "through host and disk, block " << i;
  move(Device, 4, Disk, 0);
  move(Disk, 0, Host, 1);
  move(Host, 1, Device, 0);
  EXPECT_EQ(content(0), pattern(1));
  move(Device, 0, Device, 2);
  EXPECT_EQ(content(2), pattern(1));
  EXPECT_FALSE(mover_->any_lost());
}

TEST_P(Tiers, NoticeAChangedByteOnDisk) {
  memory_.write_block(kGroup, BlockId{0}, pattern(1).data());
  move(Device, 0, Disk, 1);
  move(Device, 0, Disk, 2);
  const int file = test::nameless_file("/var/tmp");
  ASSERT_GE(file, 0);
  const off_t at = memory_.block_bytes(0) + memory_.block_bytes(kGroup) + 17;  // in block 1 of this group
  char byte = 0;
  ASSERT_EQ(pread(file, &byte, 1, at), 1);
  byte = static_cast<char>(byte ^ 4);
  ASSERT_EQ(pwrite(file, &byte, 1, at), 1);
  move(Disk, 1, Device, 3);
  move(Disk, 2, Device, 4);
  EXPECT_TRUE(mover_->is_lost(kGroup, BlockId{3}));
  EXPECT_FALSE(mover_->is_lost(kGroup, BlockId{4}));
  EXPECT_EQ(content(4), pattern(1));

  // A copy of a lost block is lost, on every tier; what is written anew is not.
  move(Device, 3, Device, 5);
  EXPECT_TRUE(mover_->is_lost(kGroup, BlockId{5}));
  move(Device, 5, Disk, 0);
  move(Disk, 0, Device, 1);
  EXPECT_TRUE(mover_->is_lost(kGroup, BlockId{1}));
  move(Device, 5, Host, 0);
  move(Host, 0, Device, 2);
  EXPECT_TRUE(mover_->is_lost(kGroup, BlockId{2}));
  move(Device, 4, Device, 3);
  EXPECT_FALSE(mover_->is_lost(kGroup, BlockId{3}));
}

TEST_P(Tiers, NoticeAFileCutShort) {
  memory_.write_block(kGroup, BlockId{0}, pattern(1).data());
  move(Device, 0, Disk, 2);
  const int file = test::nameless_file("/var/tmp");
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, memory_.block_bytes(0)), 0);
  move(Disk, 2, Device, 1);
  EXPECT_TRUE(mover_->is_lost(kGroup, BlockId{1}));
}

INSTANTIATE_TEST_SUITE_P(Types, Tiers, testing::Values(DType::F32, DType::F16, DType::BF16, DType::I8),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST(BlockMover, SaysWhereTheDiskTierCannotBe) {
  kernels::RefBackend backend;
  KvMemory memory(spec_of({{}}), backend, {.block_size = 4, .type = DType::F32, .blocks = {2}});
  const auto made =
      BlockMover::make(memory, {.host_blocks = {0}, .disk_blocks = {2}, .disk_folder = "/nonexistent"});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace sluice::runtime
