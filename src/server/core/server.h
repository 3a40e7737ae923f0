// The HTTP server: listens, serves, drains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/core/server_context.h"

namespace sluice::server {

class Server {
 public:
  // How a server's life ended.
  enum class End : uint8_t {
    Drained,     // all requests were answered
    Cut,         // some were ended before their answer was complete
    EngineLost,  // an engine failed for good
  };

  // Binds and listens: health can be asked for from now on, everything else is told to wait for a model. SIGTERM, SIGINT
  // (drain; the second ends at once) and SIGHUP (keys are read again) are handled where `signals` is set.
  static Result<std::unique_ptr<Server>> open(const ServerOptions& options, bool signals,
                                              std::vector<api::Operation> operations = api::operations());
  ~Server();

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  ServerContext& state();

  // From now on requests are served.
  void serve(std::vector<Backend> backends, std::vector<api::AbsentModel> absent = {});
  // Waits for the end that a signal, drain() or the failure of an engine brings about. Connections that were cut may
  // still be on their way out, which the destructor waits for.
  End wait();

  // -- any thread

  // As SIGTERM does: not ready any more, running requests get their time, new ones are sent away.
  void drain();
  void end_now();
  void reload_keys();

 private:
  class Loop;
  explicit Server(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace sluice::server
