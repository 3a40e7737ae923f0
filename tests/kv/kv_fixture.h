// What the tests of the KV manager share.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kv/kv_manager.h"

namespace sluice::kv {

inline constexpr SeqId kA{1}, kB{2}, kC{3};

inline KvManagerOptions one_group(int blocks, int host = 0, int disk = 0) {
  return {.block_size = 4, .groups = {{.window = 0, .blocks = {blocks, host, disk}}}, .model = "test"};
}

inline std::vector<Token> tokens(int count, Token first = 100) {
  std::vector<Token> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

}  // namespace sluice::kv
