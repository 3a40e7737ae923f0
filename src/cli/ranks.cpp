#include "cli/ranks.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/lab/lists.h"
#include "dist/mpi_group.h"
#include "llm/follower.h"

namespace sluice::cli {

void RankFlags::declare(OptionSet& options) {
  options.add(cuts.tensor, "tp", "tensor parallel: ranks that share each layer; mpirun starts them")
      .within(1, 1024);
  options
      .add(cuts.experts, "ep",
           "expert parallel: ranks that each have a range of the experts; with --tp those of --tp")
      .within(1, 1024);
  options.add_choice<bool>(
      cuts.sequence, "sp",
      "sequence parallel: the ranks of --tp share the tokens between the parts of layers",
      {{"off", false}, {"on", true}});
  options
      .add(
          cuts.context, "cp",
          "context parallel: shares of the KV cache and of the tokens of each step, of as many ranks each as "
          "--tp or --ep says")
      .within(1, 1024);
  options
      .add(
          cuts.stages, "pp",
          "pipeline parallel: stages of consecutive layers, of as many ranks each as --tp, --ep and --cp say")
      .within(1, 1024);
  options
      .add(stage_layers, "pp-layers",
           "layers of every stage of --pp, as in 14,18; empty: cut so that the stages take as long")
      .shown_as("LIST");
  options
      .add(cuts.micro_batches, "pp-micro-batches",
           "steps that the stages of --pp run at the same time on CPUs, each of its share of the answers; 1: "
           "a step runs alone; 0: as many as there are stages, those that share their cores counted once")
      .within(0, 1024);
  options
      .add(rank_timeout, "rank-timeout",
           "seconds without a sign of life after which a rank counts as lost, and the group ends")
      .within(0.5, 3600);
  options.add_choice<kernels::Collectives>(
      collectives, "collectives",
      "how ranks on GPUs add up: kernels of our own over CUDA IPC, within a machine, or NCCL, one rank on a "
      "GPU; auto: ipc within a machine",
      {{"auto", kernels::Collectives::Auto},
       {"ipc", kernels::Collectives::Ipc},
       {"nccl", kernels::Collectives::Nccl}});
}

int RankFlags::place() {
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (text == nullptr) return 0;
  int place = 0;
  const std::string_view digits(text);
  std::from_chars(digits.data(), digits.data() + digits.size(), place);
  return std::max(place, 0);
}

Result<models::Cuts> RankFlags::read_cuts() const {
  models::Cuts read = cuts;
  if (!stage_layers.empty()) {
    Result<std::vector<int>> counts = read_list(stage_layers, "pp-layers", 1);
    if (!counts) return counts.error();
    read.stage_layers = std::move(*counts);
  }
  if (Status status = read.check(); !status) return status.error();
  return read;
}

Result<std::shared_ptr<models::ModelGroup>> RankFlags::join() const {
  const Result<models::Cuts> wanted = read_cuts();
  if (!wanted) return wanted.error();
  if (cuts.ranks() == 1 && collectives != kernels::Collectives::Auto)
    return Error{ErrorCode::InvalidArgument, "--collectives is for several ranks, as --tp starts them",
                 "collectives"};
  if (cuts.ranks() == 1) return std::shared_ptr<models::ModelGroup>();
  Result<std::unique_ptr<dist::Communicator>> world = dist::join_mpi(
      cuts.ranks(), {.silence = std::chrono::duration_cast<Clock::duration>(Seconds(rank_timeout))});
  if (!world) return world.error();
  return std::make_shared<models::ModelGroup>(std::move(*world), *wanted, collectives);
}

std::optional<int> RankFlags::join_session(llm::SessionOptions& options) const {
  Result<std::shared_ptr<models::ModelGroup>> group = join();
  if (!group) return report(group.error());
  options.group = std::move(*group);
  if (options.group) options.engine.device.place = place();
  if (options.group == nullptr || options.group->leads()) return std::nullopt;
  // Rank 0 decides when it ends: what reaches all ranks alike is for that one.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const Status done = llm::follow_session(options);
  return done ? static_cast<int>(kSuccess) : report(done.error());
}

}  // namespace sluice::cli
