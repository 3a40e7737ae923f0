// A gate that opens when a grammar is compiled, and has it: whoever runs the request need not look for it in the store, by
// a schema's whole text and under a lock that compiling threads take. Thread-safe.
#pragma once

#include "base/result.h"
#include "grammar/grammar_store.h"
#include "request/gate.h"

namespace sluice::grammar {

class GrammarGate : public request::Gate {
 public:
  // Opens it with the grammar, or fails it. Once.
  void settle_with(Result<GrammarStore::Grammar> grammar) {
    if (grammar) grammar_ = *grammar;
    settle(grammar ? Status() : grammar.error());
  }
  // Null where it is not open.
  GrammarStore::Grammar grammar() const { return state() == State::Open ? grammar_ : nullptr; }

 private:
  GrammarStore::Grammar grammar_;  // written before the gate opens
};

}  // namespace sluice::grammar
