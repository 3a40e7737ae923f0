// The models of a server, which can be loaded and unloaded while others are served. One thread does both, one thing after
// the other, so that what is unloaded has given its memory back before the next is loaded.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/core/server.h"

namespace sluice::server {

class ModelPool : public ModelRepository {
 public:
  struct Known {
    std::string name;  // what requests and the repository call it
    // Loads it, anew each time. The backend's owner holds all that it needs, and nobody else does.
    std::function<Result<Backend>()> open;
  };
  // REQUIRES: names differ
  explicit ModelPool(std::vector<Known> models);
  // REQUIRES: the server is gone, or was never given.
  ~ModelPool() override;

  // Loads all of them, in their order, as long as `go_on` says so. What cannot be loaded is named in the log and left out;
  // an error, the first one, where nothing can.
  Status open_all(const std::function<bool()>& go_on);
  // What is loaded.
  std::vector<Backend> backends() const;
  // Serves it, and from now on loads and unloads as the server is asked to.
  void serve(Server& server);
  // Nothing is loaded or unloaded any more; waits for what is under way, but not for requests that keep a model from going.
  void stop();

  std::vector<Entry> index() const override;
  // Loading what is loaded, or unloading what is not, succeeds and does nothing. An unload ends when the requests at work
  // with the model have ended; new ones do not find it from the start.
  void load(const std::string& name, Done done) override;
  void unload(const std::string& name, Done done) override;

 private:
  enum class State : uint8_t { Ready, Loading, Unloading, Unavailable };
  // Tells that no set of models holds a backend any more.
  class Tenure;
  struct Gone;
  struct Slot {
    Known known;
    State state = State::Unavailable;
    std::string reason = "is not loaded";
    std::shared_ptr<void> owner;  // of the backend, which itself has a tenure in its place
    Backend backend;              // while Ready
    std::shared_ptr<Gone> gone;
  };
  struct Job {
    enum class Kind : uint8_t { Load, Unload } kind;
    size_t slot;
    Done done;
  };

  void post(Job::Kind kind, const std::string& name, Done done);
  void run();
  Status load_slot(Slot& slot);
  Status unload_slot(Slot& slot);
  std::vector<Backend> ready_backends() const;
  std::vector<api::AbsentModel> absent_models() const;
  void publish();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot>
      slots_;  // states and reasons are guarded by the mutex, the rest belongs to the thread that loads
  std::deque<Job> jobs_;
  Server* server_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice::server
