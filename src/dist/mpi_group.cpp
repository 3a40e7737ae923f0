#include "dist/mpi_group.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "base/log.h"
#include "dist/mpi/plugin.h"
#include "dist/shared_messages.h"

namespace sluice::dist {

namespace {

constexpr const char* kPluginFile = "libsluice_mpi.so";

// Beside the program, or where `cmake --install` puts it.
std::string plugin_path() {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* place : {"", "../lib/sluice"})
    if (const std::filesystem::path path = folder / place / kPluginFile;
        std::filesystem::exists(path, ignored))
      return path.string();
  return "";
}

Result<const SluiceMpi*> load_plugin() {
  const std::string path = plugin_path();
  if (path.empty())
    return Error{
        ErrorCode::Unavailable,
        fmt::format("several ranks need {}, which this build does not have: install the Debian packages "
                    "libopenmpi-dev and openmpi-bin, and build again",
                    kPluginFile)};
  // Open MPI's own plugins look up symbols of libmpi.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return Error{
        ErrorCode::Unavailable,
        fmt::format("several ranks need Open MPI: install the Debian package openmpi-bin ({})", dlerror())};
  auto* entry = reinterpret_cast<const SluiceMpi* (*)()>(dlsym(library, "sluice_mpi"));
  if (entry == nullptr)
    return Error{ErrorCode::Unavailable, fmt::format("{} is not of this program: {}", path, dlerror())};
  return entry();
}

class MpiRank : public Communicator {
 public:
  MpiRank(const SluiceMpi& plugin, int rank, int size) : plugin_(plugin), rank_(rank), size_(size) {}
  ~MpiRank() override {
    heartbeat_.reset();
    if (!failed_) plugin_.stop();
  }
  MpiRank(const MpiRank&) = delete;
  MpiRank& operator=(const MpiRank&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // Tells every rank which process each of them is, and watches them from now on.
  void introduce(HeartbeatTiming timing) {
    std::vector<Peer> peers(static_cast<size_t>(size_));
    Peer& own = peers[static_cast<size_t>(rank_)];
    own.process = getpid();
    gethostname(own.host, sizeof own.host - 1);
    for (int rank = 0; rank < size_; ++rank)
      broadcast(rank, std::as_writable_bytes(std::span(&peers[static_cast<size_t>(rank)], 1)));
    peers_ = std::move(peers);
    watch(timing);
  }

  void abandon() override { failed_ = true; }

  std::optional<std::string> failure() const override {
    const std::optional<Heartbeat::Lost> lost = heartbeat_ ? heartbeat_->lost() : std::nullopt;
    if (!lost) return std::nullopt;
    const Peer& peer = peers_[static_cast<size_t>(lost->rank)];
    return fmt::format("rank {} (process {} on {}) {}", lost->rank, peer.process, peer.host, lost->how);
  }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    out_.clear();
    in_.clear();
    for (const Outgoing& item : out)
      out_.push_back({item.to, const_cast<std::byte*>(item.bytes.data()), item.bytes.size()});
    for (const Incoming& item : in) in_.push_back({item.from, item.bytes.data(), item.bytes.size()});
    const auto keep_waiting = [](void* self) { return static_cast<MpiRank*>(self)->failure() ? 0 : 1; };
    const char* problem =
        plugin_.exchange(out_.data(), out_.size(), in_.data(), in_.size(), keep_waiting, this);
    expect(problem);
  }

  void post(int to, std::span<const std::byte> bytes) override {
    const SluiceTransfer out{to, const_cast<std::byte*>(bytes.data()), bytes.size()};
    expect(plugin_.post(&out));
  }
  void progress() override { expect(plugin_.progress()); }

 private:
  // What the plugin says went wrong; null: nothing.
  void expect(const char* problem) {
    if (problem == nullptr) return;
    failed_ = true;
    if (const std::optional<std::string> lost = failure()) throw GroupFailure(*lost);
    throw GroupFailure(fmt::format("rank {}: {}", rank_, problem));
  }

  struct Peer {
    int64_t process = 0;
    char host[64] = {};
  };

  void watch(HeartbeatTiming timing) {
    HeartbeatAddress leader;
    Result<std::unique_ptr<Heartbeat>> made = Error{};
    if (rank_ == 0) made = Heartbeat::lead(size_, timing);
    if (rank_ == 0 && made) leader = (*made)->address();
    broadcast(0, std::as_writable_bytes(std::span(&leader, 1)));
    if (rank_ > 0) made = Heartbeat::follow(rank_, leader, timing);
    if (made)
      heartbeat_ = std::move(*made);
    else
      log_warning("ranks that hang will not be noticed: {}", made.error().message);
  }

  const SluiceMpi& plugin_;
  const int rank_, size_;
  std::vector<Peer> peers_;  // empty until they are known
  bool failed_ = false;      // the others cannot be told that this one leaves
  std::vector<SluiceTransfer> out_, in_;
  std::unique_ptr<Heartbeat> heartbeat_;  // null: none
};

}  // namespace

Result<std::unique_ptr<Communicator>> join_mpi(int size, HeartbeatTiming timing) {
  Result<const SluiceMpi*> plugin = load_plugin();
  if (!plugin) return plugin.error();
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && std::getenv("PMIX_RANK") == nullptr)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} ranks are wanted: start the program with mpirun -n {}", size, size)};
  int rank = 0, started = 0;
  if (const char* problem = (*plugin)->start(&rank, &started); problem != nullptr)
    return Error{ErrorCode::Unavailable, problem};
  auto group = std::make_unique<MpiRank>(**plugin, rank, started);
  if (started != size)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("mpirun has started {} ranks, the options ask for {}", started, size)};
  try {
    group->introduce(timing);
    return through_shared_memory(std::move(group));
  } catch (const GroupFailure& failure) {
    return Error{ErrorCode::Unavailable, failure.what()};
  }
}

}  // namespace sluice::dist
