// What a compiled grammar and a matcher keep of xgrammar.
#pragma once

#include <xgrammar/xgrammar.h>

#include "grammar/compiled_grammar.h"

namespace sluice::grammar {

struct CompiledGrammar::Library {
  xgrammar::CompiledGrammar grammar;
};

}  // namespace sluice::grammar
