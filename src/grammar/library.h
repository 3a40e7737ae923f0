// xgrammar behind this layer's types. Only .cpp files of the layer include it.
#pragma once

#include <xgrammar/config.h>
#include <xgrammar/xgrammar.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grammar/vocabulary.h"

namespace sluice::grammar {

struct Vocabulary::Library {
  xgrammar::TokenizerInfo tokens;
  // Keeps masks of rules that grammars share, a string's for instance. Thread-safe.
  mutable xgrammar::GrammarCompiler compiler;
};

// While it lives, work of this thread on grammars that takes longer than so many seconds of the processor throws, and so
// does work after `cancelled` has become true. `pause` is called about every 0.1 ms.
class WorkLimit {
 public:
  explicit WorkLimit(double seconds, const std::atomic<bool>* cancelled = nullptr,
                     void (*pause)() = nullptr) {
    xgrammar::LimitWork(seconds, cancelled, pause);
  }
  ~WorkLimit() { xgrammar::LimitWork(0); }
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;
};

// Collects what xgrammar warns of while it reads a grammar on this thread.
class WarningScope {
 public:
  WarningScope();
  ~WarningScope();
  WarningScope(const WarningScope&) = delete;
  WarningScope& operator=(const WarningScope&) = delete;
  const std::vector<std::string>& warnings() const { return warnings_; }
  void add(const std::string& warning) { warnings_.push_back(warning); }

 private:
  std::vector<std::string> warnings_;
  WarningScope* outer_;
};

}  // namespace sluice::grammar
