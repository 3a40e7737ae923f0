// What a compiled grammar and a matcher keep of xgrammar.
#pragma once

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <cstdint>
#include <span>

#include "grammar/compiled_grammar.h"

namespace sluice::grammar {

struct CompiledGrammar::Library {
  xgrammar::CompiledGrammar grammar;
};

// False where every token may come. Throws what xgrammar does. REQUIRES: a word for every 32 tokens of the vocabulary
inline bool fill_bitmask(xgrammar::GrammarMatcher& matcher, std::span<int32_t> mask) {
  auto words = static_cast<int64_t>(mask.size());
  DLTensor tensor{.data = mask.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLInt, 32, 1},
                  .shape = &words,
                  .strides = nullptr,
                  .byte_offset = 0};
  return matcher.FillNextTokenBitmask(&tensor);
}

}  // namespace sluice::grammar
