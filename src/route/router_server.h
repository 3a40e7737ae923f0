// The router as a program uses it: listens, passes on, drains.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "route/options.h"
#include "route/prompt_reader.h"

namespace sluice::route {

class Core;

class RouterServer {
 public:
  // Binds and listens. SIGTERM and SIGINT drain where `signals` is set.
  static Result<std::unique_ptr<RouterServer>> open(const RouteOptions& options, PromptReader reader,
                                                    bool signals);
  ~RouterServer();

  int port() const;
  std::string url() const;
  // Serves until it is drained, on the caller's thread.
  void run();
  // Of any thread: running requests get their time, no new connection is taken.
  void drain();

 private:
  explicit RouterServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace sluice::route
