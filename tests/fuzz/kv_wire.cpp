// Any bytes as an order for a prefill and as a stream of KV blocks: an error, or what gives the same bytes again; the same
// blocks however they come in pieces, and never more memory than one of them. Groups hold positions, positions in a window, and
// states.
#include "server/handover/kv_wire.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace {

using namespace sluice;
using namespace sluice::server;

const engine::KvLayout kLayout{
    "m",
    4,
    {24, 7, 5},
    {0, 8, 0},
    {kv::KvGroup::Holds::Positions, kv::KvGroup::Holds::Positions, kv::KvGroup::Holds::State}};
constexpr int kFirst = 1, kEndBlock = 5;

struct Reading {
  std::vector<HandedBlock> blocks;
  bool sound = true, ended = false;
};

Reading read(std::string_view bytes, size_t piece) {
  Reading out;
  BlockReader reader(kLayout, kFirst, kEndBlock);
  for (size_t at = 0; at < bytes.size() && out.sound; at += piece)
    out.sound = reader.feed(bytes.substr(at, piece), out.blocks).ok();
  out.ended = reader.ended();
  return out;
}

void check_blocks(const Reading& whole, const Reading& pieces) {
  if (whole.sound != pieces.sound || whole.ended != pieces.ended ||
      whole.blocks.size() != pieces.blocks.size())
    std::abort();
  for (size_t i = 0; i < whole.blocks.size(); ++i) {
    const HandedBlock& block = whole.blocks[i];
    const auto group = static_cast<size_t>(block.group);
    if (group >= kLayout.block_bytes.size() || block.index >= kEndBlock ||
        block.index < std::max(kFirst, kLayout.first_needed(group, kEndBlock)) ||
        std::cmp_not_equal(block.bytes.size(), kLayout.block_bytes[group]))
      std::abort();
    if (block.bytes != pieces.blocks[i].bytes || block.index != pieces.blocks[i].index) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<PrefillOrder> order = parse_order(bytes);
  if (order.ok() && write_order(*order) != bytes) std::abort();
  const Reading whole = read(bytes, size + 1);
  check_blocks(whole, read(bytes, 1));
  check_blocks(whole, read(bytes, 5));
  return 0;
}
