// The engine's options, the same for every command that runs one.
#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "base/result.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/model_executor.h"
#include "sched/options.h"

namespace sluice::llm {

struct EngineFlags {
  enum class LayoutChoice : uint8_t { Auto, Packed, Padded };

  std::string scheme = "continuous";
  LayoutChoice layout = LayoutChoice::Auto;  // Auto: the one people mean by the scheme's name
  sched::Prefill prefill = sched::Prefill::Mixed;
  sched::KvPolicy kv_policy = sched::KvPolicy::OnDemand;
  sched::Preemption preemption = sched::Preemption::Recompute;
  int max_seqs = 0;  // 0: by the device, as the next two
  int max_step_tokens = 0;
  std::optional<double> target_tbt;  // milliseconds; 0: any
  bool prefilled_elsewhere = false;  // prompts come with their KV: what is left of them hardly delays answers
  int block_size = 0;
  int context = 0;      // 0: what the model was made for
  int kv_tokens = 0;    // 0: by the context and the machine's memory
  int state_slots = 0;  // 0: by the machine's memory
  int state_interval = 512;
  int swap_tokens = 0;
  int disk_tokens = 0;
  std::string disk_folder = "/var/tmp";
  std::optional<DType> kv_type;  // absent: by the device
  double gpu_memory = 0.9;       // share of a GPU's memory that may be used in all
  bool prefix_cache = true;
  bool kv_cache = true;
  double batch_wait = 0.05;
  std::string mmproj;             // empty: the file beside the model, if any
  std::string speculate = "off";  // see parse_speculate()
  int speculate_tokens = 16;
  // For measurements alone, not an option of those who serve: drafts are right with this probability; below 0: as they are.
  double forced_acceptance = -1;
  runtime::DeviceOptions device;
  // The model's part of the memory that the process may have, where other models have the rest. Not an option by itself.
  double memory_part = 1;

  void declare(OptionSet& options);
};

// Who guesses for requests that do not say, and the draft model or head that this needs: its file or folder, except of the
// model's own head.
struct SpeculateFlag {
  request::Speculation with = request::Speculation::Off;
  request::Speculation model = request::Speculation::Off;  // what is loaded: Draft, Mtp, Eagle3 or nothing
  std::string path;
};
// "off", "auto", the name of a proposer, "draft:MODEL", "eagle3:FOLDER", or "auto:" with a model, "mtp" or
// "eagle3:FOLDER".
Result<SpeculateFlag> parse_speculate(const std::string& text);

// The option --kv-type, and whether a back-end has a type.
void declare_kv_type(OptionSet& options, std::optional<DType>& type, const char* help);
Status check_kv_type(DType type, const kernels::Backend& backend);

// Tokens of the largest step unless told otherwise. GEMMs of small layers keep a GPU busier the more tokens they have: where a
// token is multiplied with less than 4e9 parameters, 16,384 take no longer than 8,192 of an 8B.
int default_step_tokens(bool gpu, int64_t active_parameters);

// Fills in what the flags leave to the device the model lies on; on a GPU the room for KV is found by running the
// largest step. `draft`: keeps KV of its own for as many positions; null: there is none.
Result<EngineFlags> resolve_defaults(EngineFlags flags, const models::Model& model,
                                     const models::ModelSpec* draft = nullptr);

// The flags made concrete for one model.
struct EngineSetup {
  sched::SchedulerOptions scheduler;
  kv::KvManagerOptions kv_manager;
  runtime::ExecutorOptions executor;
  int context = 0;    // positions of one sequence
  int kv_tokens = 0;  // positions in all
};

// REQUIRES: the flags are settled.
Result<EngineSetup> make_setup(const EngineFlags& flags, const models::ModelSpec& spec,
                               const std::string& identity, std::vector<Token> end_tokens);

}  // namespace sluice::llm
