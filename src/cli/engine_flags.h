// The engine's options, the same for every command that runs one.
#pragma once

#include <string>

#include "base/options.h"
#include "base/result.h"
#include "models/spec.h"
#include "runtime/device.h"
#include "runtime/model_executor.h"
#include "sched/options.h"

namespace sluice::cli {

struct EngineFlags {
  enum class LayoutChoice : uint8_t { Auto, Packed, Padded };

  std::string scheme = "continuous";
  LayoutChoice layout = LayoutChoice::Auto;  // Auto: the one people mean by the scheme's name
  sched::Prefill prefill = sched::Prefill::Mixed;
  sched::KvPolicy kv_policy = sched::KvPolicy::OnDemand;
  sched::Preemption preemption = sched::Preemption::Recompute;
  int max_seqs = 32;
  int max_step_tokens = 512;
  int block_size = 16;
  int context = 0;    // 0: what the model was made for
  int kv_tokens = 0;  // 0: by the context and the machine's memory
  int swap_tokens = 0;
  int disk_tokens = 0;
  std::string disk_folder = "/var/tmp";
  DType kv_type = DType::F16;
  bool prefix_cache = true;
  bool kv_cache = true;
  double batch_wait = 0.05;
  runtime::DeviceOptions device;

  void declare(OptionSet& options);
};

// The flags made concrete for one model.
struct EngineSetup {
  sched::SchedulerOptions scheduler;
  cache::LedgerOptions ledger;
  runtime::ExecutorOptions executor;
  int context = 0;    // positions of one sequence
  int kv_tokens = 0;  // positions in all
};

Result<EngineSetup> make_setup(const EngineFlags& flags, const models::ModelSpec& spec,
                               const std::string& identity, std::vector<Token> end_tokens);

}  // namespace sluice::cli
