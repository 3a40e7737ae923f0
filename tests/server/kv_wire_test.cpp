#include "server/handover/kv_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "server/handover/kv_export.h"
#include "server/handover/kv_import.h"
#include "server/handover/prefill_peers.h"

namespace sluice::server {
namespace {

constexpr auto kPositions = kv::KvGroup::Holds::Positions, kState = kv::KvGroup::Holds::State;

PrefillOrder sample_order() {
  return {{"model/f16/4", 4, {24, 7, 5}, {0, 8, 0}, {kPositions, kPositions, kState}},
          "salt",
          1,
          {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}};
}

void append_block(std::string& out, int index, int group, char byte) {
  const size_t begin = out.size();
  out.resize(begin + kBlockHead);
  const std::vector<int64_t> sizes = sample_order().layout.block_bytes;
  out.append(static_cast<size_t>(std::cmp_less(group, sizes.size()) ? sizes[static_cast<size_t>(group)] : 1),
             byte);
  finish_block(out, begin, index, group);
}

std::string sample_stream() {
  std::string out;
  append_stream_head(out);
  append_block(out, 1, 0, 'a');
  append_block(out, 2, 0, 'b');
  append_block(out, 2, 1, 'c');
  append_block(out, 2, 2, 'd');
  append_stream_end(out);
  return out;
}

std::string problem_of(const std::string& stream) {
  BlockReader reader(sample_order().layout, 1, 3);
  std::vector<HandedBlock> blocks;
  const Status status = reader.feed(stream, blocks);
  return status ? "" : status.error().message;
}

TEST(KvWireTest, AnOrderComesAsItWent) {
  const PrefillOrder order = sample_order();
  const std::string bytes = write_order(order);
  const Result<PrefillOrder> read = parse_order(bytes);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->layout, order.layout);
  EXPECT_EQ(read->salt, "salt");
  EXPECT_EQ(read->first, 1);
  EXPECT_EQ(read->tokens, order.tokens);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(parse_order(std::string_view(bytes).substr(0, size)).ok()) << size;
  EXPECT_FALSE(parse_order(bytes + "x").ok());
}

TEST(KvWireTest, WrongOrdersNameTheirField) {
  PrefillOrder order = sample_order();
  order.first = 3;
  EXPECT_EQ(parse_order(write_order(order)).error().message,
            "KV handover: block 3 is asked for, the tokens have 3");
  order = sample_order();
  order.layout.block_size = 1 << 20;
  EXPECT_NE(parse_order(write_order(order)).error().message.find("block size is 1048576"), std::string::npos);
  std::string bytes = write_order(sample_order());
  bytes[4] = 1;
  EXPECT_EQ(parse_order(bytes).error().message,
            "KV handover: version 1 is asked for, this server has version 2");
  order = sample_order();
  order.layout.holds[2] = static_cast<kv::KvGroup::Holds>(2);
  EXPECT_EQ(parse_order(write_order(order)).error().message,
            "KV handover: what a group holds is 2, the limits are 0 and 1");
}

TEST(KvWireTest, LayoutsThatDifferAreNamed) {
  const engine::KvLayout ours = sample_order().layout;
  EXPECT_TRUE(check_layout(ours, ours).ok());
  engine::KvLayout other = ours;
  other.model = "model/int8/4";
  EXPECT_NE(check_layout(ours, other).error().message.find("model/f16/4 here and model/int8/4 there"),
            std::string::npos);
  other = ours;
  other.windows = {0, 16, 0};
  EXPECT_NE(check_layout(ours, other).error().message.find("0+8+0 here and 0+16+0 there"), std::string::npos);
  other = ours;
  other.holds[2] = kPositions;
  EXPECT_NE(check_layout(ours, other).error().message.find("groups that hold states is 1 here and 0 there"),
            std::string::npos);
  other = ours;
  other.block_bytes = {24, 8, 5};
  EXPECT_NE(check_layout(ours, other).error().message.find("bytes of a block"), std::string::npos);
}

TEST(KvWireTest, BlocksComeInAnyPieces) {
  const std::string stream = sample_stream();
  for (const size_t piece : {size_t{1}, size_t{3}, stream.size()}) {
    BlockReader reader(sample_order().layout, 1, 3);
    std::vector<HandedBlock> blocks;
    for (size_t at = 0; at < stream.size(); at += piece) {
      EXPECT_FALSE(reader.ended());
      ASSERT_TRUE(reader.feed(std::string_view(stream).substr(at, piece), blocks).ok());
    }
    EXPECT_TRUE(reader.ended());
    ASSERT_EQ(blocks.size(), 4u);
    EXPECT_EQ(blocks[1].bytes, std::string(24, 'b'));
    EXPECT_EQ(blocks[2].index, 2);
    EXPECT_EQ(blocks[2].group, 1);
    EXPECT_EQ(blocks[3].bytes, std::string(5, 'd'));
    EXPECT_EQ(blocks[3].group, 2);
    EXPECT_FALSE(reader.feed("x", blocks).ok());
  }
}

TEST(KvWireTest, BlocksThatAreWrongAreRefused) {
  std::string stream = sample_stream();
  stream[8 + kBlockHead] ^= 1;
  EXPECT_EQ(problem_of(stream), "KV handover: block 1 has another checksum");
  const auto with = [](int index, int group) {
    std::string out;
    append_stream_head(out);
    append_block(out, 2, 0, 'a');
    append_block(out, index, group, 'b');
    return out;
  };
  EXPECT_EQ(problem_of(with(2, 1)), "");
  EXPECT_EQ(problem_of(with(2, 2)), "");
  for (const auto& [index, group] : {std::pair(1, 0), {2, 0}, {3, 0}, {2, 3}})
    EXPECT_NE(problem_of(with(index, group)), "") << index << " " << group;
  // Of states the last one alone is needed.
  std::string early;
  append_stream_head(early);
  append_block(early, 1, 2, 's');
  EXPECT_EQ(problem_of(early), "KV handover: block 1 of group 2 was not expected");
  EXPECT_EQ(problem_of("HTTP/1.1 200"), "KV handover: the answer holds no KV blocks");
}

TEST(PrefillPeersTest, TheOneThatFailedRests) {
  Result<PrefillPeers> peers = PrefillPeers::make({"http://a:1", "http://b:2"}, "");
  ASSERT_TRUE(peers.ok());
  const std::string wanted = "http://b:2", unknown = "http://evil:3";
  PrefillPeers::Peer* b = peers->choose(&wanted);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->address.port, "2");
  EXPECT_EQ(peers->choose(&unknown)->url, "http://a:1");
  PrefillPeers::Peer* a = peers->choose(nullptr);
  ++a->running;
  EXPECT_EQ(peers->choose(nullptr), b);
  PrefillPeers::note_failure(*b);
  EXPECT_EQ(peers->choose(&wanted), a);
  PrefillPeers::note_failure(*a);
  EXPECT_EQ(peers->choose(nullptr), nullptr);
  EXPECT_FALSE(PrefillPeers::make({"https://a"}, "").ok());
}

}  // namespace
}  // namespace sluice::server
