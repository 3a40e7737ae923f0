// KV blocks and states on their way from a server that prefills to one that decodes: the order, and the stream of blocks
// that answers it. Numbers are little-endian.
//
// The order is the body of POST /kv/prefill: "SLKO", version, layout (model, block size, of each group the bytes of a block,
// its window and what it holds), salt, first block, tokens. The answer is "SLKB", version, then for each block of each group
// its index, group, checksum and bytes, and at last kEnd in the place of an index. Blocks come in the order of their index,
// then of their group: of a group those that are needed behind the whole prompt, which of a group of states is the last one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/kv_access.h"

namespace sluice::server {

inline constexpr uint32_t kKvWireVersion = 2;
inline constexpr std::string_view kKvContentType = "application/x-sluice-kv";

struct PrefillOrder {
  engine::KvLayout layout;  // of the one who asks
  std::string salt;
  int first = 0;  // blocks before this one are there already
  std::vector<Token> tokens;
};

std::string write_order(const PrefillOrder& order);
// Memory is bounded by a multiple of bytes.size(). The error names the field. What is returned has a sound layout, and
// `first` lies within the blocks of the tokens.
Result<PrefillOrder> parse_order(std::string_view bytes);

// The error names the first thing that differs, with both values.
Status check_layout(const engine::KvLayout& ours, const engine::KvLayout& theirs);

void append_stream_head(std::string& out);
// `bytes` stand at the end of `out` already, behind kBlockHead bytes that are written here.
inline constexpr size_t kBlockHead = 16;
void finish_block(std::string& out, size_t begin, int index, int group);
void append_stream_end(std::string& out);

struct HandedBlock {
  int index = 0, group = 0;
  std::string bytes;
};

// Reads the stream as it comes; holds one block at most.
class BlockReader {
 public:
  // Blocks [first, end) are expected, of a prompt that has `end`.
  BlockReader(engine::KvLayout layout, int first, int end)
      : layout_(std::move(layout)), first_(first), end_(end) {}

  // Appends the blocks that are complete. An error ends the reading.
  Status feed(std::string_view bytes, std::vector<HandedBlock>& out);
  // The stream has come to its end.
  bool ended() const { return phase_ == Phase::Ended; }

 private:
  enum class Phase : uint8_t { Head, BlockHead, Bytes, Ended };

  size_t wanted() const;
  Status take(std::vector<HandedBlock>& out);
  Status read_block_head();

  engine::KvLayout layout_;
  int first_, end_;
  Phase phase_ = Phase::Head;
  std::string part_;  // of what is being read
  HandedBlock block_;
  uint64_t checksum_ = 0;
  int64_t last_ = -1;  // index * groups + group of the block before
};

}  // namespace sluice::server
